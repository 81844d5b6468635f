package validation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	group      = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/group"
	vnet       = group + "/providers/Microsoft.Network/virtualNetworks/vnet"
	identities = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"
	clusterID  = group + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster"
	forbidden  = "Forbidden: field is immutable"
	operators  = "properties.platform.operatorsAuthentication.userAssignedIdentities."
)

func rules(t testing.TB) *validation.Rules {
	t.Helper()
	offer := must.Get(config.Default())(t)
	// All versions that the rules allow.
	offer.ClusterVersions = nil
	return validation.NewRules(offer, "westus3")
}

func validCluster() *hub.Cluster {
	c := &hub.Cluster{Resource: hub.Resource{
		ID: clusterID, Name: "cluster", Type: hub.ClusterResourceType, Location: "westus3",
		Identity: &hub.Identity{Type: "UserAssigned", UserAssigned: map[string]hub.UserAssignedIdentity{
			identities + "service": {},
		}},
	}}
	p := &c.Properties
	p.Version = hub.Version{ID: "4.20", ChannelGroup: "stable"}
	p.DNS.BaseDomainPrefix = "prefix"
	p.Network = hub.Network{NetworkType: "OVNKubernetes", PodCIDR: "10.128.0.0/14", ServiceCIDR: "172.30.0.0/16", MachineCIDR: "10.0.0.0/16", HostPrefix: 23}
	p.API.Visibility, p.Ingress.Type = hub.Public, hub.Public
	p.Platform = hub.Platform{
		ManagedResourceGroup: "managed", SubnetID: vnet + "/subnets/nodes", VnetIntegrationSubnetID: vnet + "/subnets/integration",
		OutboundType: "LoadBalancer", NetworkSecurityGroupID: group + "/providers/Microsoft.Network/networkSecurityGroups/nsg",
	}
	p.Platform.OperatorsAuthentication.UserAssignedIdentities = hub.OperatorIdentities{
		ControlPlaneOperators: map[string]string{
			"cluster-api-azure": identities + "api", "cloud-network-config": identities + "network", "control-plane": identities + "control-plane",
			"cloud-controller-manager": identities + "cloud", "ingress": identities + "ingress", "disk-csi-driver": identities + "control-disk",
			"file-csi-driver": identities + "control-file", "image-registry": identities + "control-registry", "kms": identities + "kms",
		},
		DataPlaneOperators: map[string]string{
			"disk-csi-driver": identities + "disk", "file-csi-driver": identities + "file", "image-registry": identities + "registry",
		},
		ServiceManagedIdentity: identities + "service",
	}
	for _, id := range p.Platform.OperatorsAuthentication.UserAssignedIdentities.ControlPlaneOperators {
		c.Identity.UserAssigned[id] = hub.UserAssignedIdentity{}
	}
	p.Autoscaling = hub.Autoscaling{MaxPodGracePeriodSeconds: 600, MaxNodeProvisionTimeSeconds: 900, PodPriorityThreshold: -10}
	p.Etcd.DataEncryption = customerKey()
	p.ClusterImageRegistry.State, p.CryptoRestrictions = "Enabled", "None"
	return c
}

func customerKey() hub.DataEncryption {
	return hub.DataEncryption{KeyManagementMode: "CustomerManaged", CustomerManaged: &hub.CustomerManagedEncryption{
		EncryptionType: "KMS", KMS: &hub.KMSEncryption{VaultName: "vault", Visibility: hub.Public, ActiveKey: hub.KMSKey{Name: "key", Version: "1"}},
	}}
}

func platformKey(c *hub.Cluster) {
	c.Properties.Etcd.DataEncryption = hub.DataEncryption{KeyManagementMode: "PlatformManaged"}
}

// TestClustersWithPlatformManagedKeysCanBeUpdated changes a cluster that was created before only customer-managed keys were
// supported.
func TestClustersWithPlatformManagedKeysCanBeUpdated(t *testing.T) {
	old, now := validCluster(), validCluster()
	platformKey(old)
	platformKey(now)
	now.Properties.NodeDrainTimeoutMinutes = 5
	if got := rules(t).Cluster(validation.ClusterChange{Old: old, New: now, Subscription: &hub.Subscription{}}); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestPrivateClustersAreKept changes a cluster that was created with a private API and ingress, before these were rejected.
// They stay as they are; only a request that changes them is rejected.
func TestPrivateClustersAreKept(t *testing.T) {
	for _, version := range versions.All() {
		old := validCluster()
		old.Properties.API.Visibility, old.Properties.Ingress.Type = hub.Private, hub.Private
		shown := must.Get(json.Marshal(version.EncodeCluster(old, hub.Succeeded, &hub.ClusterStatus{})))(t)
		change := func(patch string) []apierror.Violation {
			fields := must.Get(wire.ParseObject(shown))(t)
			change := must.Get(wire.ParseObject([]byte(patch)))(t)
			body := wire.NewBody(wire.MergePatch(fields, change))
			now := version.DecodeCluster(body, old, true)
			violations := rules(t).Cluster(validation.ClusterChange{Old: old, New: now, Subscription: &hub.Subscription{}})
			for _, problem := range body.Problems() {
				violations = append(violations, apierror.Violation{Field: problem.Field, Message: problem.Message})
			}
			return violations
		}
		if got := change(`{"properties":{"nodeDrainTimeoutMinutes":5}}`); len(got) > 0 {
			t.Errorf("%s: another change: %v", version.Name, got)
		}
		want := []apierror.Violation{violation("properties.api.visibility", forbidden)}
		if got := change(`{"properties":{"api":{"visibility":"Public"}}}`); !cmp.Equal(got, want) {
			t.Errorf("%s: API: got %v, want %v", version.Name, got, want)
		}
		if version.Name < "2026-06-30" {
			continue
		}
		want = []apierror.Violation{violation("properties.ingress.type", forbidden)}
		if got := change(`{"properties":{"ingress":{"type":"Public"}}}`); !cmp.Equal(got, want) {
			t.Errorf("%s: ingress: got %v, want %v", version.Name, got, want)
		}
	}
}

// TestPinVersion pins full versions with the feature only, and never replaces the exact version of a tag.
func TestPinVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		id, tag, wantID, wantPin string
		subscription             *hub.Subscription
	}{
		"minor":           {"4.21", "", "4.21", "", experimenting()},
		"full":            {"4.21.3", "", "4.21", "4.21.3", experimenting()},
		"pre-release":     {"4.21.3-rc.1+b", "", "4.21", "4.21.3-rc.1+b", experimenting()},
		"tag":             {"4.21.3", "4.21.5", "4.21", "4.21.5", experimenting()},
		"not a version":   {"4.21.3-", "", "4.21.3-", "", experimenting()},
		"without feature": {"4.21.3", "", "4.21.3", "", &hub.Subscription{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := validCluster()
			c.Properties.Version.ID = tc.id
			if tc.tag != "" {
				c.Experiments = map[string]string{experiment.ExactVersion: tc.tag}
			}
			rules(t).PinVersion(c, tc.subscription)
			if id, pin := c.Properties.Version.ID, c.Experiments[experiment.ExactVersion]; id != tc.wantID || pin != tc.wantPin {
				t.Errorf("got %s pinned to %q, want %s pinned to %q", id, pin, tc.wantID, tc.wantPin)
			}
		})
	}
}

func TestStrandedNodePools(t *testing.T) {
	c := validCluster()
	for version, want := range map[string]int{"4.22": 0, "4.23": 1, "5.0": 1, "invalid": 0} {
		c.Properties.Version.ID = version
		got := rules(t).StrandedNodePools(c, map[string][]string{"a": {"4.22.1", "4.20.9"}, "b": {"4.23.0", ""}, "c": {"", ""}})
		if len(got) != want {
			t.Errorf("%s: got %v", version, got)
		}
		if want > 0 && got[0] != violation("properties.version.id", `Invalid value: "`+version+`": must be at most 2 minor versions above every node pool: upgrade a (4.20.9) first`) {
			t.Errorf("%s: got %v", version, got)
		}
	}
}

func experimenting() *hub.Subscription {
	return &hub.Subscription{State: hub.Registered, Properties: &hub.SubscriptionProperties{
		RegisteredFeatures: []hub.Feature{{Name: validation.ExperimentalFeature, State: "Registered"}},
	}}
}

func violation(field, message string) apierror.Violation {
	return apierror.Violation{Field: field, Message: message}
}

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "Cluster-1": true, strings.Repeat("a", 54): true, strings.Repeat("a", 55): false, "1a": false, "a-": false, "-a": false, "a_b": false, "ä": false, "": false,
	} {
		if got := len(validation.ClusterName(name)) == 0; got != valid {
			t.Errorf("cluster name %q: valid %v, want %v", name, got, valid)
		}
	}
	if len(validation.NodePoolName(strings.Repeat("a", 16))) == 0 || len(validation.NodePoolName(strings.Repeat("a", 15))) > 0 {
		t.Error("a node pool's name has at most 15 characters")
	}
}

// fullCluster returns a change that creates a cluster with all fields.
func fullCluster() validation.ClusterChange {
	cluster := validCluster()
	cluster.Properties.Etcd.DataEncryption = customerKey()
	cluster.Tags = map[string]string{"team": "a", "stage": "test", "cost-center": "1"}
	operators := &cluster.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities
	for i := range 8 {
		id := fmt.Sprintf("%scontrol-plane-%d", identities, i)
		operators.ControlPlaneOperators[fmt.Sprintf("operator-%d", i)] = id
		operators.DataPlaneOperators[fmt.Sprintf("operator-%d", i)] = fmt.Sprintf("%sdata-plane-%d", identities, i)
		cluster.Identity.UserAssigned[id] = hub.UserAssignedIdentity{}
	}
	for i := range 40 {
		cluster.Properties.API.AuthorizedCIDRs = append(cluster.Properties.API.AuthorizedCIDRs, fmt.Sprintf("203.0.%d.0/24", i))
		cluster.Properties.ImageDigestMirrors = append(cluster.Properties.ImageDigestMirrors,
			hub.ImageDigestMirror{Source: "quay.io/openshift/release", Mirrors: []string{"mirror.example:5000/openshift/release"}})
	}
	return validation.ClusterChange{New: cluster, Subscription: &hub.Subscription{State: hub.Registered}}
}

// TestFullClusterAllocations bounds the work of a valid cluster: it formats no message and no path of a list's item.
func TestFullClusterAllocations(t *testing.T) {
	r, change := rules(t), fullCluster()
	allocations := testing.AllocsPerRun(10, func() {
		if found := r.Cluster(change); found != nil {
			t.Error(found)
		}
	})
	if allocations > 300 {
		t.Errorf("validation needs %.0f allocations, want at most 300", allocations)
	}
}

// BenchmarkFullCluster measures validation of a cluster with all fields. `make bench` prints it with its target.
func BenchmarkFullCluster(b *testing.B) {
	r, change := rules(b), fullCluster()
	b.ReportAllocs()
	for b.Loop() {
		if found := r.Cluster(change); found != nil {
			b.Fatal(found)
		}
	}
}
