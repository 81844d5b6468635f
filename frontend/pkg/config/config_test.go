package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestLoad(t *testing.T) {
	cases := map[string]struct {
		reason, content, want string
	}{
		"good":     {reason: "an offer", content: "vmSizes: [Standard_D8s_v3]\nclusterVersions: ['4.20']\n"},
		"unknown":  {reason: "an unknown field is named", content: "vmSizes: [Standard_D8s_v3]\nvmSize: b\n", want: "vmSize"},
		"no sizes": {reason: "the region has all sizes", content: "clusterVersions: []\n"},
		"size":     {reason: "a size must be in the table", content: "vmSizes: [Standard_D8s_v3, standard_d8s_v3]\n", want: "vmSizes[1]"},
		"RDMA":     {reason: "HyperShift refuses the size", content: "vmSizes: [Standard_D8s_v3, Standard_NC24rs_v3]\n", want: `vmSizes[1]: "Standard_NC24rs_v3"`},
		"zone":     {reason: "HyperShift refuses other zones", content: "availabilityZones: ['1', '4']\n", want: `availabilityZones[1]: "4"`},
		"two":      {reason: "the file has one document", content: "vmSizes: [Standard_D8s_v3]\n---\nvmSizes: [Standard_D8s_v3]\n", want: "one YAML document"},
		"role set": {reason: "a version has one role set", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20', '4.20']}]\n", want: "roleSets[0].versions"},
		"required": {reason: "only Always and OnEnablement are valid", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20'], controlPlaneOperators: [{name: x, required: Often}]}]\n", want: "Often"},
		"role":     {reason: "a role needs the UUID of its definition", content: "vmSizes: [Standard_D8s_v3]\nroleSets: [{versions: ['4.20'], dataPlaneOperators: [{name: x, required: Always, roles: [{name: r, id: Reader}]}]}]\n", want: "UUID"},
		"not YAML": {reason: "the file must be YAML", content: "{", want: "yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			must.Do(t, os.WriteFile(path, []byte(tc.content), 0o600))
			_, err := config.Load(path)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := config.Load(""); err != nil {
		t.Errorf("the built-in configuration: %v", err)
	}
}

// TestOfferMatchesCatalogue: Cluster Service can install every version that clusters can have, and every such version has a
// role set.
func TestOfferMatchesCatalogue(t *testing.T) {
	offer := must.Get(config.Default())(t)
	catalogue := must.Get(release.Default())(t)
	sets := map[string]bool{}
	for _, set := range offer.OperatorIdentityRoleSets() {
		sets[set.Name] = true
	}
	for _, version := range offer.ClusterVersions {
		offered := slices.ContainsFunc(catalogue.Offers(), func(offer release.Offer) bool { return offer.Enabled && offer.Release.Version.MinorID() == version })
		if !offered || !sets[version] {
			t.Errorf("clusters may have version %s, for which there is a release: %v, and a role set: %v", version, offered, sets[version])
		}
	}
}
