package release

import (
	"fmt"
	"slices"
	"strings"
)

// maxSkew is how many minor versions nodes may be behind their control plane, and how many one update may move them.
const maxSkew = 2

// NodePoolRule says which rule keeps nodes from running a version, and what they could run instead; empty when none does.
// Current is what they are to run now, nil for a new pool; controlPlane is the lowest version that the control plane still
// runs, for during an upgrade nodes talk to that, too.
func (c *Catalog) NodePoolRule(wanted Version, current *Version, controlPlane Version) string {
	rule := nodePoolRule(wanted, current, controlPlane)
	if rule == "" {
		return ""
	}
	var allowed []string
	for _, r := range c.releases {
		if nodePoolRule(r.Version, current, controlPlane) == "" {
			allowed = append(allowed, r.Version.String())
		}
	}
	slices.Reverse(allowed)
	if len(allowed) == 0 {
		return rule + "; no version of the catalogue is allowed"
	}
	return rule + "; allowed: " + strings.Join(allowed[:min(len(allowed), maxAllowed)], ", ")
}

// maxAllowed bounds how many versions a message names, newest first.
const maxAllowed = 10

func nodePoolRule(wanted Version, current *Version, controlPlane Version) string {
	switch {
	case wanted.Compare(controlPlane) > 0:
		return fmt.Sprintf("nodes must not be newer than their control plane, which runs %s", controlPlane)
	case controlPlane.Ordinal()-wanted.Ordinal() > maxSkew:
		return fmt.Sprintf("nodes must be at most %d minor versions behind their control plane, which runs %s", maxSkew, controlPlane)
	case current != nil && wanted.Compare(*current) < 0:
		return fmt.Sprintf("nodes cannot go back from %s", current)
	case current != nil && wanted.Ordinal()-current.Ordinal() > maxSkew:
		return fmt.Sprintf("an update may move nodes by at most %d minor versions, and they run %s", maxSkew, current)
	}
	return ""
}
