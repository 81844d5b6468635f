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

func TestClusterRules(t *testing.T) {
	id := func(name string) string { return `Invalid value: "` + name + `": ` }
	cases := map[string]struct {
		reason       string
		change       func(*hub.Cluster)
		subscription *hub.Subscription
		want         []apierror.Violation
	}{
		"valid": {reason: "nothing is wrong", change: func(*hub.Cluster) {}},
		"location missing": {
			reason: "location is required", change: func(c *hub.Cluster) { c.Location = "" },
			want: []apierror.Violation{violation("location", "Required value")},
		},
		"location elsewhere": {
			reason: "a region makes clusters in itself only", change: func(c *hub.Cluster) { c.Location = "eastus" },
			want: []apierror.Violation{violation("location", `Unsupported value: "eastus": supported values: "westus3"`)},
		},
		"location display name": {reason: "a region may be written as it is displayed", change: func(c *hub.Cluster) { c.Location = "West US 3" }},
		"tag too long": {
			reason: "ARM limits values of tags", change: func(c *hub.Cluster) { c.Tags = map[string]string{"a": strings.Repeat("x", 257)} },
			want: []apierror.Violation{violation("tags[a]", "Too long: may not be more than 256 characters")},
		},
		"version form": {
			reason: "a version is MAJOR.MINOR", change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.20.8" },
			want: []apierror.Violation{violation("properties.version.id", `Invalid value: "4.20.8": must be of the form MAJOR.MINOR`)},
		},
		"version zero": {
			reason: "numbers have no leading zeros", change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.020" },
			want: []apierror.Violation{violation("properties.version.id", `Invalid value: "4.020": must be of the form MAJOR.MINOR`)},
		},
		"version old": {
			reason: "4.20 is the first", change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.19" },
			want: []apierror.Violation{violation("properties.version.id", `Invalid value: "4.19": must be at least 4.20`)},
		},
		"channel group": {
			reason: "candidate is behind the feature", change: func(c *hub.Cluster) { c.Properties.Version.ChannelGroup = "candidate" },
			want: []apierror.Violation{violation("properties.version.channelGroup", `Unsupported value: "candidate": supported values: "fast", "stable"`)},
		},
		"channel group with the feature": {
			reason: "with it, candidate is fine", subscription: experimenting(), change: func(c *hub.Cluster) { c.Properties.Version.ChannelGroup = "candidate" },
		},
		"prefix": {
			reason: "a prefix is a DNS label of 15", change: func(c *hub.Cluster) { c.Properties.DNS.BaseDomainPrefix = "a-name-of-sixteen" },
			want: []apierror.Violation{violation("properties.dns.baseDomainPrefix", "Too long: may not be more than 15 bytes")},
		},
		"prefix form": {
			reason: "it starts with a letter", change: func(c *hub.Cluster) { c.Properties.DNS.BaseDomainPrefix = "1a" },
			want: []apierror.Violation{violation("properties.dns.baseDomainPrefix", id("1a")+"must consist of lower-case letters, digits and '-', start with a letter and end with a letter or digit")},
		},
		"host prefix": {
			reason: "23 to 26", change: func(c *hub.Cluster) { c.Properties.Network.HostPrefix = 22 },
			want: []apierror.Violation{violation("properties.network.hostPrefix", "Invalid value: 22: must be greater than or equal to 23")},
		},
		"CIDR v6": {
			reason: "IPv4 only", change: func(c *hub.Cluster) { c.Properties.Network.PodCIDR = "fd00::/48" },
			want: []apierror.Violation{violation("properties.network.podCidr", id("fd00::/48")+"must be an IPv4 CIDR")},
		},
		"CIDR overlap": {
			reason: "ranges are disjoint, each pair of them is reported", change: func(c *hub.Cluster) {
				c.Properties.Network.PodCIDR, c.Properties.Network.ServiceCIDR = "10.0.0.0/14", "10.0.128.0/17"
			},
			want: []apierror.Violation{
				violation("properties.network", id("10.0.0.0/14")+"podCidr must not overlap with machineCidr 10.0.0.0/16"),
				violation("properties.network", id("10.0.0.0/14")+"podCidr must not overlap with serviceCidr 10.0.128.0/17"),
				violation("properties.network", id("10.0.128.0/17")+"serviceCidr must not overlap with machineCidr 10.0.0.0/16"),
			},
		},
		"authorized CIDRs empty": {
			reason: "all addresses are allowed by leaving it out", change: func(c *hub.Cluster) { c.Properties.API.AuthorizedCIDRs = []string{} },
			want: []apierror.Violation{violation("properties.api.authorizedCidrs", id("[]")+"must have at least one item; leave it out to allow all addresses")},
		},
		"authorized CIDRs many": {
			reason: "at most 500", change: func(c *hub.Cluster) { c.Properties.API.AuthorizedCIDRs = make([]string, 501) },
			want: []apierror.Violation{violation("properties.api.authorizedCidrs", "Too many: 501: must have at most 500 items")},
		},
		"authorized CIDR form": {
			reason: "each one is an address or a CIDR", change: func(c *hub.Cluster) { c.Properties.API.AuthorizedCIDRs = []string{"1.2.3.4/32", "1.2.3.4", "1.2.3"} },
			want: []apierror.Violation{violation("properties.api.authorizedCidrs[2]", id("1.2.3")+"must be a valid IPv4 CIDR, as in 10.0.0.0/16")},
		},
		"subnet missing": {
			reason: "required", change: func(c *hub.Cluster) { c.Properties.Platform.SubnetID = "" },
			want: []apierror.Violation{violation("properties.platform.subnetId", "Required value")},
		},
		"subnet not an id": {
			reason: "an id has the form of one", change: func(c *hub.Cluster) { c.Properties.Platform.SubnetID = "subnet" },
			want: []apierror.Violation{violation("properties.platform.subnetId", id("subnet")+"must be an Azure resource id: must start with /subscriptions/")},
		},
		"integration subnet equal": {
			reason: "two subnets are needed", change: func(c *hub.Cluster) {
				c.Properties.Platform.VnetIntegrationSubnetID = strings.ToUpper(vnet + "/subnets/nodes")
			},
			want: []apierror.Violation{violation("properties.platform.vnetIntegrationSubnetId", id(strings.ToUpper(vnet+"/subnets/nodes"))+"must not be the subnet of subnetId")},
		},
		"in the managed group": {
			reason: "what the customer brings is not in the group that the service deletes", change: func(c *hub.Cluster) {
				c.Properties.Platform.ManagedResourceGroup = "MGMT"
				c.Properties.Platform.NetworkSecurityGroupID = strings.Replace(group, "/group", "/mgmt", 1) + "/providers/Microsoft.Network/networkSecurityGroups/nsg"
			},
			want: []apierror.Violation{violation("properties.platform.networkSecurityGroupId",
				id(strings.Replace(group, "/group", "/mgmt", 1)+"/providers/Microsoft.Network/networkSecurityGroups/nsg")+"must not be in the managed resource group MGMT")},
		},
		"managed group name": {
			reason: "a resource group's name", change: func(c *hub.Cluster) { c.Properties.Platform.ManagedResourceGroup = "ends." },
			want: []apierror.Violation{violation("properties.platform.managedResourceGroup",
				id("ends.")+"must be a valid resource group name of 2 to 90 letters, digits, '_', '-', '.', '(' and ')', not ending with '.'")},
		},
		"identity used twice": {
			reason: "an identity has one use", change: func(c *hub.Cluster) {
				c.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities.ControlPlaneOperators["other"] = identities + "API"
			},
			want: []apierror.Violation{
				violation("identity.userAssignedIdentities["+identities+"api]", id(identities+"api")+"identity is used more than once"),
				violation(operators+"controlPlaneOperators[other]", id(identities+"API")+"identity is used more than once"),
			},
		},
		"identity not assigned": {
			reason: "what is used is assigned", change: func(c *hub.Cluster) {
				c.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities.ControlPlaneOperators["other"] = identities + "new"
			},
			want: []apierror.Violation{violation(operators+"controlPlaneOperators[other]", id(identities+"new")+"identity is not assigned to this resource")},
		},
		"operators missing": {
			reason: "all three are required", change: func(c *hub.Cluster) {
				c.Properties.Platform.OperatorsAuthentication, c.Identity = hub.OperatorsAuthentication{}, nil
			},
			want: []apierror.Violation{
				violation(operators+"controlPlaneOperators", "Required value"), violation(operators+"dataPlaneOperators", "Required value"),
				violation(operators+"serviceManagedIdentity", "Required value"),
			},
		},
		"identity type": {
			reason: "the service has no identity of its own to assign", change: func(c *hub.Cluster) { c.Identity.Type = "SystemAssigned" },
			want: []apierror.Violation{violation("identity.type", `Unsupported value: "SystemAssigned": supported values: "None", "UserAssigned"`)},
		},
		"autoscaling": {
			reason: "its numbers have bounds", change: func(c *hub.Cluster) { c.Properties.Autoscaling = hub.Autoscaling{MaxNodesTotal: 501} },
			want: []apierror.Violation{
				violation("properties.autoscaling.maxNodeProvisionTimeSeconds", "Required value"),
				violation("properties.autoscaling.maxNodesTotal", "Invalid value: 501: must be less than or equal to 500"),
				violation("properties.autoscaling.maxPodGracePeriodSeconds", "Required value"),
				violation("properties.autoscaling.podPriorityThreshold", "Required value"),
			},
		},
		"platform-managed key": {
			reason: "only a key of the customer is supported", change: func(c *hub.Cluster) {
				c.Properties.Etcd.DataEncryption = hub.DataEncryption{KeyManagementMode: "PlatformManaged"}
			},
			want: []apierror.Violation{violation("properties.etcd.dataEncryption.keyManagementMode", `Unsupported value: "PlatformManaged": supported values: "CustomerManaged"`)},
		},
		"incomplete key": {
			reason: "every field of a key is required", change: func(c *hub.Cluster) {
				c.Properties.Etcd.DataEncryption = customerKey()
				c.Properties.Etcd.DataEncryption.CustomerManaged.KMS = &hub.KMSEncryption{Visibility: hub.Private}
			},
			want: []apierror.Violation{
				violation("properties.etcd.dataEncryption.customerManaged.kms.activeKey.name", "Required value"),
				violation("properties.etcd.dataEncryption.customerManaged.kms.activeKey.version", "Required value"),
				violation("properties.etcd.dataEncryption.customerManaged.kms.vaultName", "Required value"),
			},
		},
		"key without a mode": {
			reason: "the mode is required", change: func(c *hub.Cluster) {
				c.Properties.Etcd.DataEncryption = customerKey()
				c.Properties.Etcd.DataEncryption.KeyManagementMode = ""
			},
			want: []apierror.Violation{
				violation("properties.etcd.dataEncryption.customerManaged", `Invalid value: "": may only be specified when keyManagementMode is "CustomerManaged"`),
				violation("properties.etcd.dataEncryption.keyManagementMode", "Required value"),
				violation("properties.etcd.dataEncryption.keyManagementMode", `Unsupported value: "": supported values: "CustomerManaged"`),
			},
		},
		"mirrors": {
			reason: "repositories are lower case, without scheme, tag or digest", change: func(c *hub.Cluster) {
				c.Properties.ImageDigestMirrors = []hub.ImageDigestMirror{{Source: "quay.io/UPPER", Mirrors: []string{"mirror.example:5000/a/b", "a/b:latest"}}, {Source: "quay.io/a"}}
			},
			want: []apierror.Violation{
				violation("properties.imageDigestMirrors[0].mirrors[1]", id("a/b:latest")+"must be an image repository in lower case, without a tag or digest, as in quay.io/organization/name"),
				violation("properties.imageDigestMirrors[0].source", id("quay.io/UPPER")+"must be an image repository in lower case, without a tag or digest, as in quay.io/organization/name"),
				violation("properties.imageDigestMirrors[1].mirrors", "Required value"),
			},
		},
		"mirrors many": {
			reason: "at most 240", change: func(c *hub.Cluster) { c.Properties.ImageDigestMirrors = make([]hub.ImageDigestMirror, 241) },
			want: []apierror.Violation{violation("properties.imageDigestMirrors", "Too many: 241: must have at most 240 items")},
		},
		"drain": {
			reason: "at most a week", change: func(c *hub.Cluster) { c.Properties.NodeDrainTimeoutMinutes = 10081 },
			want: []apierror.Violation{violation("properties.nodeDrainTimeoutMinutes", "Invalid value: 10081: must be less than or equal to 10080")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := validCluster()
			tc.change(cluster)
			if tc.subscription == nil {
				tc.subscription = &hub.Subscription{State: hub.Registered}
			}
			got := rules(t).Cluster(validation.ClusterChange{New: cluster, Subscription: tc.subscription})
			documented(t, book(t), got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClusterOffer(t *testing.T) {
	cluster := validCluster()
	cluster.Properties.Version.ID = "4.99"
	offer := must.Get(config.Default())(t)
	got := validation.NewRules(offer, "westus3").Cluster(validation.ClusterChange{New: cluster, Subscription: &hub.Subscription{}})
	want := []apierror.Violation{violation("properties.version.id", `Unsupported value: "4.99": supported values: "4.20", "4.21", "4.22"`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a version that is not offered (-want +got):\n%s", diff)
	}
}

func TestClusterUpdates(t *testing.T) {
	cases := map[string]struct {
		reason       string
		old, change  func(*hub.Cluster)
		subscription *hub.Subscription
		want         []apierror.Violation
	}{
		"nothing": {reason: "writing the same is fine", change: func(*hub.Cluster) {}},
		"ratchet": {
			reason: "what the stored cluster violates may stay",
			old:    func(c *hub.Cluster) { c.Properties.NodeDrainTimeoutMinutes = 20000 },
			change: func(c *hub.Cluster) { c.Tags = map[string]string{"a": "b"} },
		},
		"ratchet changed": {
			reason: "but not be changed to another violation",
			old:    func(c *hub.Cluster) { c.Properties.NodeDrainTimeoutMinutes = 20000 },
			change: func(c *hub.Cluster) { c.Properties.NodeDrainTimeoutMinutes = 20001 },
			want:   []apierror.Violation{violation("properties.nodeDrainTimeoutMinutes", "Invalid value: 20001: must be less than or equal to 10080")},
		},
		"create-only": {
			reason: "every create-only field is named",
			change: func(c *hub.Cluster) {
				p := &c.Properties
				p.DNS.BaseDomainPrefix, p.Network.PodCIDR, p.Network.HostPrefix = "other", "10.132.0.0/14", 30
				p.API.Visibility, p.Ingress.Type, p.Platform.ManagedResourceGroup = hub.Private, hub.Private, "other"
				p.ClusterImageRegistry.State, p.CryptoRestrictions = "Disabled", "FIPS"
			},
			want: []apierror.Violation{
				violation("properties.api.visibility", forbidden),
				violation("properties.clusterImageRegistry", forbidden), violation("properties.clusterImageRegistry.state", forbidden),
				violation("properties.cryptoRestrictions", forbidden), violation("properties.dns.baseDomainPrefix", forbidden),
				violation("properties.ingress.type", forbidden),
				violation("properties.network", forbidden), violation("properties.network.hostPrefix", forbidden),
				violation("properties.network.hostPrefix", "Invalid value: 30: must be less than or equal to 26"),
				violation("properties.network.podCidr", forbidden),
				violation("properties.platform", forbidden), violation("properties.platform.managedResourceGroup", forbidden),
			},
		},
		"casing": {
			reason: "ids in another casing are the same",
			change: func(c *hub.Cluster) { c.Properties.Platform.SubnetID = strings.ToLower(c.Properties.Platform.SubnetID) },
		},
		"operators": {
			reason: "the operators' identities are fixed",
			change: func(c *hub.Cluster) {
				c.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities.DataPlaneOperators["more"] = identities + "more"
			},
			want: []apierror.Violation{
				violation("properties.platform", forbidden), violation("properties.platform.operatorsAuthentication", forbidden),
				violation(strings.TrimSuffix(operators, "."), forbidden), violation(operators+"dataPlaneOperators", forbidden),
			},
		},
		"customer-managed key afterwards": {
			reason: "the mode is immutable",
			old:    platformKey,
			change: func(c *hub.Cluster) { c.Properties.Etcd.DataEncryption = customerKey() },
			want:   []apierror.Violation{violation("properties.etcd.dataEncryption.keyManagementMode", forbidden)},
		},
		"key rotation too early": {
			reason: "rotation needs 4.22",
			old:    func(c *hub.Cluster) { c.Properties.Etcd.DataEncryption = customerKey() },
			change: func(c *hub.Cluster) { c.Properties.Etcd.DataEncryption.CustomerManaged.KMS.ActiveKey.Version = "2" },
			want: []apierror.Violation{violation("properties.etcd.dataEncryption.customerManaged.kms.activeKey.version",
				`Invalid value: "2": the key can be rotated only on a control plane of version 4.22 or later`)},
		},
		"key rotation": {
			reason: "on 4.22 it is fine",
			old: func(c *hub.Cluster) {
				c.Properties.Version.ID, c.Properties.Etcd.DataEncryption = "4.22", customerKey()
			},
			change: func(c *hub.Cluster) { c.Properties.Etcd.DataEncryption.CustomerManaged.KMS.ActiveKey.Version = "2" },
		},
		"down": {
			reason: "never down", old: func(c *hub.Cluster) { c.Properties.Version.ID = "4.21" },
			change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.20" },
			want:   []apierror.Violation{violation("properties.version.id", `Invalid value: "4.20": must not be lower than the current version 4.21`)},
		},
		"two up": {
			reason: "one minor at a time", change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.22" },
			want: []apierror.Violation{violation("properties.version.id", `Invalid value: "4.22": must be at most one minor version above the current version 4.20`)},
		},
		"one up": {reason: "one minor is fine", change: func(c *hub.Cluster) { c.Properties.Version.ID = "4.21" }},
		"major without the feature": {
			reason: "5.0 needs the feature", old: func(c *hub.Cluster) { c.Properties.Version.ID = "4.22" },
			change: func(c *hub.Cluster) { c.Properties.Version.ID = "5.0" },
			want:   []apierror.Violation{violation("properties.version.id", `Invalid value: "5.0": must be lower than 5.0`)},
		},
		"major": {
			reason: "with the feature it is fine", subscription: experimenting(),
			old: func(c *hub.Cluster) { c.Properties.Version.ID = "4.23" }, change: func(c *hub.Cluster) { c.Properties.Version.ID = "5.1" },
		},
		"major sideways": {
			reason: "5.0 does not follow 4.23", subscription: experimenting(),
			old: func(c *hub.Cluster) { c.Properties.Version.ID = "4.23" }, change: func(c *hub.Cluster) { c.Properties.Version.ID = "5.0" },
			want: []apierror.Violation{violation("properties.version.id", `Invalid value: "5.0": must be at most one minor version above the current version 4.23`)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old, cluster := validCluster(), validCluster()
			if tc.old != nil {
				tc.old(old)
				tc.old(cluster)
			}
			tc.change(cluster)
			if tc.subscription == nil {
				tc.subscription = &hub.Subscription{State: hub.Registered}
			}
			got := rules(t).Cluster(validation.ClusterChange{New: cluster, Old: old, Subscription: tc.subscription})
			documented(t, book(t), got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
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
