package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	c, err := config.Load(write(t, "azure: {identitiesVault: mine}\ninternalAPICIDRs: [10.0.0.0/8]"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Azure.IdentitiesVault != "mine" || c.Azure.Cloud != "AzurePublicCloud" || len(c.InternalAPICIDRs) != 1 {
		t.Errorf("%+v; want the file over the defaults", c)
	}
	tests := map[string]struct{ reason, text, want string }{
		"Unknown field": {"a typing mistake is named", "azure: {identitysVault: mine}", "identitysVault"},
		"Emptied":       {"a required value", "etcd: {size: ''}", "etcd.size"},
		"Step":          {"a threshold for a step that does not exist would never be reached", "deletion: {stuckAfter: {hosted-clusters: 1m}}", "deletion.stuckAfter.hosted-clusters"},
		"No time":       {"every step would count as stuck", "deletion: {stuckAfter: {namespaces: 0s}}", "deletion.stuckAfter.namespaces"},
		"Mirrors":       {"HyperShift would refuse all clusters whose customers have the most mirrors", "imageContentSources: [" + strings.Repeat("{source: a},", 16) + "]", "imageContentSources"},
		"Not YAML":      {"the error names the file", "a: [", "file.yaml"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := config.Load(write(t, tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want it to name %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestLoadShards(t *testing.T) {
	shards, err := config.LoadShards(write(t, "provisionShards: [{name: mgmt-1, capacity: 3}, {name: mgmt-2, capacity: 0}]"), &config.Default().Placement)
	if err != nil || len(shards) != 2 || shards[0].Name != "mgmt-1" || shards[0].Capacity != 3 {
		t.Errorf("%v, %v", shards, err)
	}
	tests := map[string]struct{ reason, text, want string }{
		"Unknown field": {"a typing mistake is named", "provisionShards: [{name: a, capactiy: 1}]", "capactiy"},
		"Name":          {"consumers have such names", "provisionShards: [{name: A, capacity: 1}]", "provisionShards[0].name"},
		"Reserved":      {"it would be mistaken for the service cluster", "provisionShards: [{name: service-cluster}]", "provisionShards[0].name"},
		"Twice":         {"names are unique", "provisionShards: [{name: a, capacity: 1}, {name: a, capacity: 2}]", "provisionShards[1].name"},
		"Capacity":      {"a capacity is not negative", "provisionShards: [{name: a, capacity: -1}]", "provisionShards[0].capacity"},
		"Zone":          {"zones have names", "provisionShards: [{name: a, zones: [1!]}]", "provisionShards[0].zones[0]"},
		"Size class":    {"the region has no such class", "provisionShards: [{name: a, sizeClasses: [huge]}]", "provisionShards[0].sizeClasses[0]"},
		"Label":         {"label values have no spaces", "provisionShards: [{name: a, labels: {a: b c}}]", "provisionShards[0].labels"},
		"None":          {"a region needs a shard", "provisionShards: []", "provisionShards"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := config.LoadShards(write(t, tc.text), &config.Default().Placement); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want it to name %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

// TestPullSecretIsNotQuoted checks that errors about the pull secret do not contain it.
func TestPullSecretIsNotQuoted(t *testing.T) {
	for _, text := range []string{`{"auths": hunter2}`, `{"hunter2": {}}`} {
		c := config.Default()
		c.PullSecretFile = write(t, text)
		if _, err := c.PullSecret(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
}
