// Package config reads the configuration of Cluster Service (Config) and the provision shards of a region (Shards). Both files
// are YAML. Unknown fields are errors that name the field. The files contain no secrets; the pull secret is in a file that
// Config names.
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

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// MaxImageContentSources is the most sources that are added to every cluster. HyperShift's definitions accept 255. The frontend accepts as many
// of a customer as that leaves (hub.MaxImageDigestMirrors).
const MaxImageContentSources = 15

// Config is the configuration file.
type Config struct {
	Azure Azure `json:"azure"`
	// PullSecretFile is a file in the format of a Docker configuration. Without it a pull secret without registries is rendered,
	// which only the flag --developer permits.
	PullSecretFile string `json:"pullSecretFile"`
	// ImageContentSources are added to every cluster, before those of the customer.
	ImageContentSources []ImageContentSource `json:"imageContentSources"`
	Etcd                Etcd                 `json:"etcd"`
	// InternalAPICIDRs are allowed to reach the API of every cluster, in addition to the customer's list. HyperShift's definitions accept 500
	// in all, and the frontend accepts as many of a customer: the last ones are left out for a customer whose list does not leave room for them, and
	// the cluster has the condition InternalRangesAllowed.
	InternalAPICIDRs []string `json:"internalAPICIDRs"`
	// ServingCertificates is the source of the API servers' serving certificates. Without it HyperShift generates them.
	ServingCertificates *ServingCertificates `json:"servingCertificates"`
	Deletion            Deletion             `json:"deletion"`
	// AzureResources configures the Azure resources of clusters. Without it clusters have none.
	AzureResources *AzureResources `json:"azureResources"`
	// Placement has the rules by which clusters are assigned to provision shards.
	Placement placement.Rules `json:"placement"`
}

// Deletion configures deletions.
type Deletion struct {
	// StuckAfter overrides, by kind of step, the time after which a step of a deletion counts as stuck.
	StuckAfter map[string]metav1.Duration `json:"stuckAfter"`
}

// stuckAfter returns an error for each unknown kind and for each time that is not positive.
func (d *Deletion) stuckAfter(path string) []error {
	var wrong []error
	for _, kind := range slices.Sorted(maps.Keys(d.StuckAfter)) {
		switch {
		case !slices.Contains(deletiongraph.Kinds(), kind):
			wrong = append(wrong, fmt.Errorf("%s: deletion.stuckAfter.%s: unknown step; supported steps are %s", path, kind, strings.Join(deletiongraph.Kinds(), ", ")))
		case d.StuckAfter[kind].Duration <= 0:
			wrong = append(wrong, fmt.Errorf("%s: deletion.stuckAfter.%s: must be positive", path, kind))
		}
	}
	return wrong
}

// Durations returns StuckAfter as durations, by kind of step.
func (d *Deletion) Durations() map[string]time.Duration {
	durations := map[string]time.Duration{}
	for kind, after := range d.StuckAfter {
		durations[kind] = after.Duration
	}
	return durations
}

// Azure identifies the region's cloud and vaults.
type Azure struct {
	Cloud string `json:"cloud"`
	// TenantID is the tenant of the service's vaults.
	TenantID string `json:"tenantID"`
	// IdentitiesVault is the vault with the credentials of the control planes' identities.
	IdentitiesVault string `json:"identitiesVault"`
}

// ImageContentSource redirects pulls of images from Source to Mirrors.
type ImageContentSource struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
}

// Etcd is the storage of the hosted control planes.
type Etcd struct {
	StorageClass string `json:"storageClass"`
	Size         string `json:"size"`
}

// ServingCertificates is the Key Vault with the certificates of the hosted API servers.
type ServingCertificates struct {
	Vault string `json:"vault"`
	// ClientID is that of an identity with read access to the vault.
	ClientID string `json:"clientID"`
	TenantID string `json:"tenantID"`
}

// Default returns the configuration of a local region.
func Default() *Config {
	return &Config{
		Azure: Azure{Cloud: "AzurePublicCloud", TenantID: "64dc69e4-d083-49fc-9569-ebece1dd1408", IdentitiesVault: "hcpmesh-identities"},
		Etcd:  Etcd{StorageClass: "managed-csi", Size: "8Gi"}, Placement: placement.DefaultRules(),
	}
}

// Load reads a file over the defaults. An empty path means the defaults.
func Load(path string) (*Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	// A list in the file must replace the default list instead of its first elements.
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
	if count := len(c.ImageContentSources); count > MaxImageContentSources {
		missing = append(missing, fmt.Errorf("%s: imageContentSources: %d entries, at most %d are possible", path, count, MaxImageContentSources))
	}
	missing = append(missing, c.Deletion.stuckAfter(path)...)
	if c.AzureResources != nil {
		c.AzureResources.complete()
		missing = append(missing, c.AzureResources.validate(path)...)
	}
	return c, errors.Join(missing...)
}

// PullSecret reads the pull secret file.
func (c *Config) PullSecret() ([]byte, error) {
	if c.PullSecretFile == "" {
		return []byte(`{"auths":{}}`), nil
	}
	text, err := os.ReadFile(c.PullSecretFile)
	if err != nil {
		return nil, fmt.Errorf("read the pull secret: %w", err)
	}
	var check struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	// The parser's error may quote the secret.
	if json.Unmarshal(text, &check) != nil || check.Auths == nil {
		return nil, fmt.Errorf("the pull secret %s is not a Docker configuration with auths", c.PullSecretFile)
	}
	if err := wire.CheckDuplicates(text); err != nil {
		return nil, fmt.Errorf("the pull secret %s: %w", c.PullSecretFile, err)
	}
	return text, nil
}

// Shard is a provision shard in the configuration.
type Shard struct {
	// Name is that of the management cluster and of its Maestro consumer.
	Name     string `json:"name"`
	Capacity int32  `json:"capacity"`
	// Zones are the availability zones of the shard. SizeClasses are the accepted size classes; none means all.
	Zones       []string          `json:"zones"`
	SizeClasses []string          `json:"sizeClasses"`
	Labels      map[string]string `json:"labels"`
}

// LoadShards reads the provision shards of a region and validates them against the rules of placement.
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
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
