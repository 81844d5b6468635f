package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
)

// TestOfferFollowsCatalogue: the visible releases follow the release catalogue, limited to the versions that clusters can have.
func TestOfferFollowsCatalogue(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	release := func(version, digit, channels string) string {
		return "- {version: " + version + ", digest: 'sha256:" + strings.Repeat(digit, 64) + "', channels: [" + channels + "]}\n"
	}
	offer := write("offer.yaml", "vmSizes: [Standard_D8s_v3]\nclusterVersions: ['4.21']\n")
	releases := "repository: r\nreleases:\n" + release("4.20.1", "a", "stable-4.20, stable-4.21") + release("4.21.3", "b", "stable-4.21, candidate-4.21") +
		release("4.21.9", "c", "candidate-4.21")
	c, err := config.Load(offer, write("catalogue.yaml", releases+"minors: [{version: '4.21', endOfLife: 2027-08-17T00:00:00Z}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, r := range c.Releases {
		shown = append(shown, r.Version+" "+strings.Join(r.ChannelGroups, ",")+" until "+r.EndOfLife.Format("2006-01-02"))
	}
	if diff := cmp.Diff([]string{"4.21.3 stable,candidate until 2027-08-17", "4.21.9 candidate until 2027-08-17"}, shown); diff != "" {
		t.Error(diff)
	}
	if _, err := config.Load(offer, write("endless.yaml", releases)); err == nil || !strings.Contains(err.Error(), "endOfLife") {
		t.Errorf("a release whose support has no end: %v", err)
	}
}
