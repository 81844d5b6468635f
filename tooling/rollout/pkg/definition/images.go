package definition

import (
	"slices"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// imageMirror checks the components of a step that mirrors images, and that its credentials are references to secrets.
func (c *checker) imageMirror(s *Step) {
	for _, field := range []string{"sourceCredentials", "targetCredentials"} {
		text, set := s.With[field].(string)
		if !set {
			continue
		}
		names := References(text)
		if len(names) != 1 || text != "${"+names[0]+"}" || s.Inputs[names[0]].Secret == "" {
			s.complain(c, "with."+field, "must be one input with a secret, ${NAME}")
		}
	}
	components, _ := s.With["components"].([]any)
	for i, item := range components {
		key, _ := item.(string)
		at := "with.components." + strconv.Itoa(i)
		path := document.Split(key)
		image := c.configuration.Lookup(append(slices.Clone(path), "image")...)
		switch {
		case image == nil || !image.Image():
			s.complain(c, at, "the configuration has no image %s.image", key)
		case s.Group.Scope == ScopeStamp && path[0] != "managementCluster":
			s.complain(c, at, "%s belongs to regions, and the scope of the group is stamp", key)
		}
	}
}
