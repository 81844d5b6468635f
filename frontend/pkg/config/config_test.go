package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

func TestLoad(t *testing.T) {
	cases := map[string]struct {
		reason, content, want string
	}{
		"good":     {reason: "an offer", content: "vmSizes: [Standard_D8s_v3]\nclusterVersions: ['4.20']\n"},
		"unknown":  {reason: "an unknown field is named", content: "vmSizes: [Standard_D8s_v3]\nvmSize: b\n", want: "vmSize"},
		"no sizes": {reason: "the region has all sizes", content: "clusterVersions: []\n"},
		"size":     {reason: "a size must be in the table", content: "vmSizes: [Standard_D8s_v3, standard_d8s_v3]\n", want: "vmSizes[1]"},
		"two":      {reason: "the file has one document", content: "vmSizes: [Standard_D8s_v3]\n---\nvmSizes: [Standard_D8s_v3]\n", want: "one YAML document"},
		"version":  {reason: "a release has three numbers", content: "vmSizes: [Standard_D8s_v3]\nreleases: [{version: '4.20', channelGroups: [stable], endOfLife: 2027-01-01T00:00:00Z}]\n", want: "releases[0].version"},
		"twice": {reason: "releases must be unique", content: "vmSizes: [Standard_D8s_v3]\nreleases:\n- &r {version: 4.20.8, channelGroups: [stable], endOfLife: 2027-01-01T00:00:00Z}\n- *r\n",
			want: "releases[1].version"},
		"channel":  {reason: "an unknown channel group is invalid", content: "vmSizes: [Standard_D8s_v3]\nreleases: [{version: 4.20.8, channelGroups: [slow], endOfLife: 2027-01-01T00:00:00Z}]\n", want: "slow"},
		"end":      {reason: "the end of support is required", content: "vmSizes: [Standard_D8s_v3]\nreleases: [{version: 4.20.8, channelGroups: [stable]}]\n", want: "endOfLife"},
		"role set": {reason: "a version has one role set", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20', '4.20']}]\n", want: "roleSets[0].versions"},
		"required": {reason: "only Always and OnEnablement are valid", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20'], controlPlaneOperators: [{name: x, required: Often}]}]\n", want: "Often"},
		"role":     {reason: "a role needs the UUID of its definition", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20'], dataPlaneOperators: [{name: x, required: Always, roles: [{name: r, id: Reader}]}]}]\n", want: "UUID"},
		"not YAML": {reason: "the file must be YAML", content: "{", want: "yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(path, "")
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := config.Load("", ""); err != nil {
		t.Errorf("the built-in configuration: %v", err)
	}
}

// TestOfferMatchesCatalogue: customers see only releases that Cluster Service can select, in the releases' channels. Every version
// that clusters can have has a role set.
func TestOfferMatchesCatalogue(t *testing.T) {
	offer, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	channels := map[string][]string{}
	for _, r := range catalogue.Releases() {
		channels[r.Version.String()] = r.Channels
	}
	minor := func(version string) string { return version[:strings.LastIndex(version, ".")] }
	offered := map[string]bool{}
	for _, release := range offer.Releases {
		offered[minor(release.Version)] = offered[minor(release.Version)] || release.Enabled
		for _, group := range release.ChannelGroups {
			if channel := group + "-" + minor(release.Version); !slices.Contains(channels[release.Version], channel) {
				t.Errorf("release %s is offered in channel group %s, but not in channel %s of the catalogue", release.Version, group, channel)
			}
		}
	}
	sets := map[string]bool{}
	for _, set := range offer.OperatorIdentityRoleSets() {
		sets[set.Name] = true
	}
	for _, version := range offer.ClusterVersions {
		if !offered[version] || !sets[version] {
			t.Errorf("clusters may have version %s, for which there is a release: %v, and a role set: %v", version, offered[version], sets[version])
		}
	}
}

func TestHasChannel(t *testing.T) {
	const offer = "vmSizes: [Standard_D8s_v3]\nclusterVersions: ['4.9', '4.20', '4.21']\nreleases:\n" +
		"- {version: 4.21.1, channelGroups: [fast], endOfLife: 2027-01-01T00:00:00Z, enabled: true}\n" +
		"- {version: 4.9.1, channelGroups: [stable, fast], endOfLife: 2027-01-01T00:00:00Z, enabled: true}\n" +
		"- {version: 4.20.9, channelGroups: [stable], endOfLife: 2027-01-01T00:00:00Z, enabled: true}\n" +
		"- {version: 4.21.2, channelGroups: [stable], endOfLife: 2027-01-01T00:00:00Z, enabled: false}\n" +
		"- {version: 4.22.0, channelGroups: [stable], endOfLife: 2027-01-01T00:00:00Z, enabled: true}\n"
	file := filepath.Join(t.TempDir(), "offer.yaml")
	if err := os.WriteFile(file, []byte(offer), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, "")
	if err != nil {
		t.Fatal(err)
	}
	for channel, want := range map[string]bool{"stable-4.20": true, "fast-4.20": false, "fast-4.21": true, "stable-4.2": false, "nightly-4.20": false} {
		group, minor, _ := strings.Cut(channel, "-")
		if got := c.HasChannel(group, minor); got != want {
			t.Errorf("%s: got %v, want %v", channel, got, want)
		}
	}
	if c.Releases = nil; !c.HasChannel("stable", "4.99") {
		t.Error("without releases every channel exists")
	}
}
