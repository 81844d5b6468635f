package imagemirror

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/image-sync/pkg/mirror"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// The parts of a plan of image-sync, as a step has them.
type (
	planMirror struct {
		Source string `json:"source"`
		Target string `json:"target"`
	}
	planRelease struct {
		Image string `json:"image"`
	}
	planImage struct {
		Image  string `json:"image"`
		Target string `json:"target"`
	}
)

// component is the image of a component.
type component struct {
	key                          string
	registry, repository, digest string
}

// plan returns the plan of image-sync for a request. Components are single images of it.
func (a ImageMirror) plan(r action.Request, with parameters, options []name.Option) (*mirror.Plan, error) {
	components, err := a.components(r, with.Components)
	if err != nil {
		return nil, err
	}
	images := slices.Clone(with.Images)
	for _, c := range components {
		if c.registry != with.Target {
			return nil, fmt.Errorf("%s: components: %s.image.registry is %s and not the target %s", r.Step, c.key, c.registry, with.Target)
		}
		images = append(images, planImage{Image: with.Source + "/" + c.repository + "@" + c.digest, Target: c.repository})
	}
	text, err := json.Marshal(struct {
		Mirrors  []planMirror  `json:"mirrors"`
		Releases []planRelease `json:"releases"`
		Images   []planImage   `json:"images"`
	}{with.Mirrors, with.Releases, images})
	if err != nil {
		return nil, err
	}
	p, err := mirror.ParsePlan(text, options...) // JSON is YAML
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Step, err)
	}
	return p, nil
}

// components returns the images of the keys in all regions and stamps of the request's target, in order and each once. A region may have
// another digest than the other regions of its environment, or lack a component that is optional.
func (a ImageMirror) components(r action.Request, keys []string) ([]component, error) {
	var found []component
	var missing document.Problems
	for _, key := range keys {
		path := document.Split(key)
		imagePath := append(path[:len(path):len(path)], "image")
		if described := a.Configuration.Schema.Lookup(imagePath...); described == nil || !described.Image() {
			return nil, fmt.Errorf("%s: components: the configuration has no image %s.image", r.Step, key)
		}
		owners := a.within(r.Target, path[0])
		if len(owners) == 0 {
			return nil, fmt.Errorf("%s: components: %s has no region or stamp with the key %s", r.Step, r.Target, key)
		}
		for _, owner := range owners {
			values, err := a.Configuration.Render(owner)
			if err != nil {
				return nil, err
			}
			image := values.Get(imagePath...)
			if image == nil { // the region or stamp lacks the component, and the schema permits that
				continue
			}
			if image.Get("digest") == nil {
				missing = append(missing, slices.DeleteFunc(a.Configuration.Missing(owner, values), func(p document.Problem) bool { return p.Key != key+".image.digest" })...)
				continue
			}
			found = append(found, component{key, textOf(image, "registry"), textOf(image, "repository"), textOf(image, "digest")})
		}
	}
	if len(missing) > 0 {
		return nil, missing.Err()
	}
	slices.SortFunc(found, func(a, b component) int {
		return cmp.Or(cmp.Compare(a.repository, b.repository), cmp.Compare(a.digest, b.digest), cmp.Compare(a.registry, b.registry))
	})
	return slices.CompactFunc(found, func(a, b component) bool {
		return a.repository == b.repository && a.digest == b.digest && a.registry == b.registry
	}), nil
}

// within returns the regions or stamps of a target that a top-level key belongs to.
func (a ImageMirror) within(target layer.Target, top string) []layer.Target {
	return slices.DeleteFunc(a.Configuration.Owners(top), func(owner layer.Target) bool {
		return len(owner) < len(target) || !slices.Equal(owner[:len(target)], target)
	})
}

func textOf(image *document.Node, key string) string {
	if n := image.Get(key); n != nil {
		return fmt.Sprint(n.Value)
	}
	return ""
}
