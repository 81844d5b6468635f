package release

import (
	"fmt"
	"testing"
)

func TestNodePoolRule(t *testing.T) {
	text := "repository: example.test/ocp-release\nreleases:\n"
	for i, v := range []string{"4.19.20", "4.20.8", "4.20.16", "4.21.1", "4.21.4", "4.22.0", "4.22.2"} {
		text += fmt.Sprintf("- {version: %s, digest: 'sha256:%064d', architecture: Multi, channels: [stable-%s]}\n", v, i, v[:4])
	}
	catalog, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason                        string
		wanted, current, controlPlane string
		want                          string
	}{
		"New, as the control plane": {reason: "nodes of the control plane's version", wanted: "4.21.4", controlPlane: "4.21.4"},
		"New, two behind":           {reason: "the oldest that is allowed", wanted: "4.20.8", controlPlane: "4.22.2"},
		"Newer": {"nodes follow their control plane", "4.22.2", "", "4.21.4",
			"nodes must not be newer than their control plane, which runs 4.21.4; allowed: 4.21.4, 4.21.1, 4.20.16, 4.20.8, 4.19.20"},
		"Too old": {"three behind", "4.19.20", "", "4.22.2",
			"nodes must be at most 2 minor versions behind their control plane, which runs 4.22.2; allowed: 4.22.2, 4.22.0, 4.21.4, 4.21.1, 4.20.16, 4.20.8"},
		"Back":           {"nothing lowers a version", "4.21.1", "4.21.4", "4.21.4", "nodes cannot go back from 4.21.4; allowed: 4.21.4"},
		"Update":         {reason: "a minor version up", wanted: "4.22.2", current: "4.21.4", controlPlane: "4.22.2"},
		"Update, far":    {reason: "two minor versions up", wanted: "4.22.0", current: "4.20.8", controlPlane: "4.22.2"},
		"Update too far": {"three at once", "4.22.2", "4.19.20", "4.22.2", "an update may move nodes by at most 2 minor versions, and they run 4.19.20; allowed: 4.21.4, 4.21.1, 4.20.16, 4.20.8"},
		"None":           {"the catalogue has nothing for it", "5.3.0", "5.2.0", "5.2.1", "nodes must not be newer than their control plane, which runs 5.2.1; no version of the catalogue is allowed"},
		"Across a major": {reason: "5.0 is one above 4.22", wanted: "4.22.2", controlPlane: "5.1.0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			version := func(text string) Version {
				v, err := ParseVersion(text)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			var current *Version
			if tc.current != "" {
				v := version(tc.current)
				current = &v
			}
			if got := catalog.NodePoolRule(version(tc.wanted), current, version(tc.controlPlane)); got != tc.want {
				t.Errorf("%q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}
