// Package config reads what a region tells its Cluster Service: the Azure side of every cluster (Config) and the provision
// shards (Shards). Both files are YAML and strict: an unknown field is refused by its name. Neither holds a secret; the
// pull secret is a file of its own, named here.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// Config is the configuration file.
type Config struct {
	Azure Azure `json:"azure"`
	// PullSecretFile is a file in the format of a Docker configuration; empty renders one without registries, which only
	// the environment `local` may.
	PullSecretFile string `json:"pullSecretFile"`
	// ImageContentSources are added to every cluster's, before the customer's own.
	ImageContentSources []ImageContentSource `json:"imageContentSources"`
	Etcd                Etcd                 `json:"etcd"`
	// InternalAPICIDRs may always reach a cluster's API, whatever the customer allows.
	InternalAPICIDRs []string `json:"internalAPICIDRs"`
	// ServingCertificates has the API server's serving certificate come from Key Vault.
	ServingCertificates *ServingCertificates `json:"servingCertificates"`
	Deletion            Deletion             `json:"deletion"`
	// AzureResources has each cluster get resources in Azure; without, clusters have none.
	AzureResources *AzureResources `json:"azureResources"`
	// Placement is the rules by which clusters get their provision shards.
	Placement placement.Rules `json:"placement"`
}

// Deletion is what is expected of deletions.
type Deletion struct {
	// StuckAfter is how long a step may run before it counts as stuck, by the kind of step, where it is not as built in.
	StuckAfter map[string]metav1.Duration `json:"stuckAfter"`
}

// stuckAfter checks the kinds against those there are.
func (d *Deletion) stuckAfter(path string) []error {
	var wrong []error
	for _, kind := range slices.Sorted(maps.Keys(d.StuckAfter)) {
		switch {
		case !slices.Contains(deletiongraph.Kinds(), kind):
			wrong = append(wrong, fmt.Errorf("%s: deletion.stuckAfter.%s: there is no such step; there are %s", path, kind, strings.Join(deletiongraph.Kinds(), ", ")))
		case d.StuckAfter[kind].Duration <= 0:
			wrong = append(wrong, fmt.Errorf("%s: deletion.stuckAfter.%s: must be longer than nothing", path, kind))
		}
	}
	return wrong
}

// Durations by the kind of step.
func (d *Deletion) Durations() map[string]time.Duration {
	durations := map[string]time.Duration{}
	for kind, after := range d.StuckAfter {
		durations[kind] = after.Duration
	}
	return durations
}

// Azure is the cloud that the region is in.
type Azure struct {
	Cloud string `json:"cloud"`
	// TenantID is the tenant of the service's own vaults.
	TenantID string `json:"tenantID"`
	// IdentitiesVault holds the credentials of the control planes' identities.
	IdentitiesVault string `json:"identitiesVault"`
}

// ImageContentSource redirects pulls.
type ImageContentSource struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
}

// Etcd is the hosted control planes' storage.
type Etcd struct {
	StorageClass string `json:"storageClass"`
	Size         string `json:"size"`
}

// ServingCertificates says where the certificates of the hosted API servers are.
type ServingCertificates struct {
	Vault string `json:"vault"`
	// ClientID is of the identity that may read them.
	ClientID string `json:"clientID"`
	TenantID string `json:"tenantID"`
}

// Default is the configuration of a local region.
func Default() *Config {
	return &Config{
		Azure: Azure{Cloud: "AzurePublicCloud", TenantID: "64dc69e4-d083-49fc-9569-ebece1dd1408", IdentitiesVault: "hcpmesh-identities"},
		Etcd:  Etcd{StorageClass: "managed-csi", Size: "8Gi"}, Placement: placement.DefaultRules(),
	}
}

// Load reads a file over the defaults; an empty path means the defaults.
func Load(path string) (*Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	// A list in the file replaces the default one, element by element too.
	c.Placement.SizeClasses = nil
	if err := readStrict(path, c); err != nil {
		return nil, err
	}
	if c.Placement.SizeClasses == nil {
		c.Placement.SizeClasses = placement.DefaultRules().SizeClasses
	}
	if err := c.Placement.Validate(path + ": placement"); err != nil {
		return nil, err
	}
	var missing []error
	for name, value := range map[string]string{"azure.cloud": c.Azure.Cloud, "azure.tenantID": c.Azure.TenantID,
		"azure.identitiesVault": c.Azure.IdentitiesVault, "etcd.storageClass": c.Etcd.StorageClass, "etcd.size": c.Etcd.Size} {
		if value == "" {
			missing = append(missing, fmt.Errorf("%s: %s is required", path, name))
		}
	}
	missing = append(missing, c.Deletion.stuckAfter(path)...)
	if c.AzureResources != nil {
		c.AzureResources.complete()
		missing = append(missing, c.AzureResources.validate(path)...)
	}
	return c, errors.Join(missing...)
}

// PullSecret reads the pull secret's file.
func (c *Config) PullSecret() ([]byte, error) {
	if c.PullSecretFile == "" {
		return []byte(`{"auths":{}}`), nil
	}
	text, err := os.ReadFile(c.PullSecretFile)
	if err != nil {
		return nil, fmt.Errorf("reading the pull secret: %w", err)
	}
	var check struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	// The parser's error would quote the secret.
	if json.Unmarshal(text, &check) != nil || check.Auths == nil {
		return nil, fmt.Errorf("the pull secret %s is not a Docker configuration with auths", c.PullSecretFile)
	}
	return text, nil
}

// Shard is a provision shard as the configuration declares it.
type Shard struct {
	// Name of the management cluster, which is also its Maestro consumer's.
	Name     string `json:"name"`
	Capacity int32  `json:"capacity"`
	// Zones are the availability zones that it stands in, SizeClasses those that it takes: none means all.
	Zones       []string          `json:"zones"`
	SizeClasses []string          `json:"sizeClasses"`
	Labels      map[string]string `json:"labels"`
}

// LoadShards reads the provision shards of a region with such rules.
func LoadShards(path string, rules *placement.Rules) ([]Shard, error) {
	var file struct {
		ProvisionShards []Shard `json:"provisionShards"`
	}
	if err := readStrict(path, &file); err != nil {
		return nil, err
	}
	if len(file.ProvisionShards) == 0 {
		return nil, fmt.Errorf("%s: provisionShards is required", path)
	}
	seen := map[string]bool{}
	for i, s := range file.ProvisionShards {
		switch {
		case seen[s.Name]:
			return nil, fmt.Errorf("%s: provisionShards[%d].name: %q appears twice", path, i, s.Name)
		case s.Capacity < 0:
			return nil, fmt.Errorf("%s: provisionShards[%d].capacity: %d is negative", path, i, s.Capacity)
		}
		seen[s.Name] = true
		at := fmt.Sprintf("provisionShards[%d].", i)
		problems := slices.Concat(placement.CheckName(at+"name", s.Name), placement.CheckZones(at+"zones", s.Zones),
			rules.CheckClasses(at+"sizeClasses", s.SizeClasses), placement.CheckLabels(at+"labels", s.Labels))
		for _, problem := range problems {
			return nil, fmt.Errorf("%s: %s: %s", path, problem.Field, problem.Message)
		}
	}
	return file.ProvisionShards, nil
}

func readStrict(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
