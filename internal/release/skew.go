package release

import (
	"fmt"
	"slices"
	"strings"
)

// maxSkew is the maximum number of minor versions that nodes may be behind their control plane, and that one update may skip.
const maxSkew = 2

// NodePoolRule returns the rule that forbids nodes to run a version, with the versions that they could run, and "" if the version
// is allowed. current is the desired version of the nodes, nil for a new pool. controlPlane is the lowest version that the control
// plane still runs, because nodes also talk to that one during an upgrade.
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

// maxAllowed is the maximum number of versions in a message, newest first.
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
