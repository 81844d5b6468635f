package validation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

func validNodePool() *hub.NodePool {
	return &hub.NodePool{
		Resource: hub.Resource{ID: clusterID + "/nodePools/pool", Name: "pool", Type: hub.NodePoolResourceType, Location: "westus3"},
		Properties: hub.NodePoolProperties{
			Version: hub.Version{ID: "4.21.1", ChannelGroup: "stable"},
			Platform: hub.NodePoolPlatform{
				SubnetID: vnet + "/subnets/nodes", VMSize: "Standard_D8s_v3",
				OSDisk: hub.OSDisk{SizeGiB: 64, DiskStorageAccountType: "Premium_LRS", DiskType: "Managed"},
			},
			Replicas: 2, AutoRepair: true,
		},
	}
}

func TestNodePoolRules(t *testing.T) {
	invalid := func(field, value, message string) []apierror.Violation {
		return []apierror.Violation{violation(field, "Invalid value: "+value+": "+message)}
	}
	cases := map[string]struct {
		reason string
		change func(*hub.NodePool)
		// active is the version that the control plane runs; nil means 4.21.4.
		active []string
		want   []apierror.Violation
	}{
		"valid": {reason: "nothing is wrong", change: func(*hub.NodePool) {}},
		"version form": {
			reason: "a pool's version has three numbers", change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.21" },
			want: invalid("properties.version.id", `"4.21"`, "must be of the form MAJOR.MINOR.PATCH"),
		},
		"version absent": {
			reason: "a version is required", change: func(p *hub.NodePool) { p.Properties.Version.ID = "" },
			want: []apierror.Violation{violation("properties.version.id", "Required value")},
		},
		"version old": {
			reason: "4.20.8 is the first", change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.20.7" },
			want: invalid("properties.version.id", `"4.20.7"`, "must be at least 4.20.8"),
		},
		"version ahead": {
			reason: "nodes are not newer than their control plane", change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.21.5" },
			want: invalid("properties.version.id", `"4.21.5"`, "must not be higher than the control plane's version 4.21.4"),
		},
		"version during an upgrade": {
			reason: "while the control plane is upgraded, its oldest version counts", active: []string{"4.22.0", "4.21.1"},
			change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.21.4" },
			want:   invalid("properties.version.id", `"4.21.4"`, "must not be higher than the control plane's version 4.21.1"),
		},
		"version before the first control plane": {
			reason: "until one runs, the wanted minor counts", active: []string{},
			change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.22.0" },
			want:   invalid("properties.version.id", `"4.22.0"`, "must not be higher than the control plane's version 4.21"),
		},
		"version behind": {
			reason: "within two minors", active: []string{"4.23.0"}, change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.20.8" },
			want: invalid("properties.version.id", `"4.20.8"`, "must be within 2 minor versions of the control plane's version 4.23.0"),
		},
		"version across the major": {reason: "5.0 counts as the minor after 4.22", active: []string{"5.0.0"}, change: func(*hub.NodePool) {}},
		"vm size": {
			reason: "offered sizes only", change: func(p *hub.NodePool) { p.Properties.Platform.VMSize = "" },
			want: []apierror.Violation{violation("properties.platform.vmSize", "Required value")},
		},
		"subnet elsewhere": {
			reason: "in the cluster's network", change: func(p *hub.NodePool) {
				p.Properties.Platform.SubnetID = strings.Replace(vnet, "vnet", "other", 1) + "/subnets/nodes"
			},
			want: invalid("properties.platform.subnetId", `"`+strings.Replace(vnet, "vnet", "other", 1)+`/subnets/nodes"`, "must be in the virtual network of the cluster's subnet"),
		},
		"zone": {
			reason: "zones of the region", change: func(p *hub.NodePool) { p.Properties.Platform.AvailabilityZone = "4" },
			want: []apierror.Violation{violation("properties.platform.availabilityZone", `Unsupported value: "4": supported values: "1", "2", "3"`)},
		},
		"replicas in a zone": {reason: "no cap in a zone", change: func(p *hub.NodePool) {
			p.Properties.Replicas, p.Properties.Platform.AvailabilityZone = 201, "1"
		}},
		"replicas": {
			reason: "otherwise 200", change: func(p *hub.NodePool) { p.Properties.Replicas = 201 },
			want: invalid("properties.replicas", "201", "must be less than or equal to 200"),
		},
		"both sizes": {
			reason: "replicas or autoScaling", change: func(p *hub.NodePool) { p.Properties.AutoScaling = &hub.NodePoolAutoScaling{Min: 1, Max: 2} },
			want: invalid("properties.replicas", "2", "must not be given together with autoScaling"),
		},
		"min above max": {
			reason: "min is at most max", change: func(p *hub.NodePool) {
				p.Properties.Replicas, p.Properties.AutoScaling = 0, &hub.NodePoolAutoScaling{Min: 3, Max: 2}
			},
			want: invalid("properties.autoScaling.max", "2", "must be greater than or equal to min 3"),
		},
		"disk": {
			reason: "64 to 4095 GiB", change: func(p *hub.NodePool) { p.Properties.Platform.OSDisk.SizeGiB = 63 },
			want: invalid("properties.platform.osDisk.sizeGiB", "63", "must be greater than or equal to 64"),
		},
		"ephemeral disk": {
			reason: "smaller, and with repair", change: func(p *hub.NodePool) {
				p.Properties.Platform.OSDisk.DiskType, p.Properties.Platform.OSDisk.SizeGiB, p.Properties.AutoRepair = "Ephemeral", 2041, false
			},
			want: append(invalid("properties.autoRepair", "false", "must be true when diskType is Ephemeral"),
				invalid("properties.platform.osDisk.sizeGiB", "2041", "must be less than or equal to 2040")...),
		},
		"encryption set": {
			reason: "an id of one", change: func(p *hub.NodePool) { p.Properties.Platform.OSDisk.EncryptionSetID = vnet },
			want: invalid("properties.platform.osDisk.encryptionSetId", `"`+vnet+`"`, "must be the id of a resource of type Microsoft.Compute/diskEncryptionSets"),
		},
		"labels": {
			reason: "Kubernetes' syntax, no roles", change: func(p *hub.NodePool) {
				p.Properties.Labels = []hub.Label{
					{Key: "example.com/ok", Value: "yes"}, {Key: "node-role.kubernetes.io/worker"},
					{Key: "machine.openshift.io/cluster-api-machine-role", Value: "infra"}, {Key: "a/b/c"}, {Key: "example.com/value", Value: "-"},
				}
			},
			want: []apierror.Violation{
				violation("properties.labels", `Invalid value: "a/b/c": must consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric character, be no more than 63 characters, and may have a DNS subdomain prefix and '/'`),
				violation("properties.labels[example.com/value]", `Invalid value: "-": must be empty or consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric character, and be no more than 63 characters`),
				violation("properties.labels[machine.openshift.io/cluster-api-machine-role]", `Invalid value: "infra": the label must not have this value`),
				violation("properties.labels[node-role.kubernetes.io/worker]", `Invalid value: "node-role.kubernetes.io/worker": the label is reserved`),
			},
		},
		"taint": {
			reason: "key at most 253, and an effect", change: func(p *hub.NodePool) {
				p.Properties.Taints = []hub.Taint{{Key: strings.Repeat("a", 254), Effect: "NoSchedule"}, {Key: "a"}}
			},
			want: []apierror.Violation{
				violation("properties.taints[0].key", "Too long: may not be more than 253 bytes"),
				violation("properties.taints[1].effect", `Unsupported value: "": supported values: "NoExecute", "NoSchedule", "PreferNoSchedule"`),
			},
		},
		"drain": {
			reason: "at most a week", change: func(p *hub.NodePool) { minutes := int32(-1); p.Properties.NodeDrainTimeoutMinutes = &minutes },
			want: invalid("properties.nodeDrainTimeoutMinutes", "-1", "must be greater than or equal to 0"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pool, cluster := validNodePool(), validCluster()
			cluster.Properties.Version.ID = "4.21"
			tc.change(pool)
			if tc.active == nil {
				tc.active = []string{"4.21.4"}
			}
			got := rules(t).NodePool(validation.NodePoolChange{New: pool, Cluster: cluster, ActiveVersions: tc.active, Subscription: &hub.Subscription{}})
			documented(t, book(t), got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodePoolUpdates(t *testing.T) {
	cases := map[string]struct {
		reason  string
		change  func(*hub.NodePool)
		running string
		want    []apierror.Violation
	}{
		"scale": {reason: "the size may change", change: func(p *hub.NodePool) { p.Properties.Replicas = 5 }},
		"platform": {
			reason: "the machines may not, which is reported at the platform and at the field", change: func(p *hub.NodePool) {
				p.Properties.Platform.VMSize, p.Properties.AutoRepair = "Standard_D4s_v3", false
			},
			want: []apierror.Violation{
				violation("properties.autoRepair", "Forbidden: field is immutable"),
				violation("properties.platform", "Forbidden: field is immutable"),
				violation("properties.platform.vmSize", "Forbidden: field is immutable"),
			},
		},
		"disk": {
			reason: "changes of the disk are reported at the disk", change: func(p *hub.NodePool) {
				p.Properties.Platform.OSDisk.SizeGiB, p.Properties.Platform.OSDisk.DiskStorageAccountType = 128, "Standard_LRS"
			},
			want: []apierror.Violation{
				violation("properties.platform", "Forbidden: field is immutable"),
				violation("properties.platform.osDisk", "Forbidden: field is immutable"),
			},
		},
		"invalid size": {
			reason: "an immutable field can violate its own rule too", change: func(p *hub.NodePool) { p.Properties.Platform.OSDisk.SizeGiB = 1 },
			want: []apierror.Violation{
				violation("properties.platform", "Forbidden: field is immutable"),
				violation("properties.platform.osDisk", "Forbidden: field is immutable"),
				violation("properties.platform.osDisk.sizeGiB", "Invalid value: 1: must be greater than or equal to 64"),
			},
		},
		"casing of ids": {reason: "ARM IDs have no casing", change: func(p *hub.NodePool) {
			p.Properties.Platform.SubnetID = strings.ToUpper(p.Properties.Platform.SubnetID)
		}},
		"down": {
			reason: "nodes do not go back", change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.20.8" },
			want: []apierror.Violation{
				violation("properties.version.id", `Invalid value: "4.20.8": must be within 2 minor versions of the control plane's version 5.0.0`),
				violation("properties.version.id", `Invalid value: "4.20.8": must not be lower than the current version 4.21.1`),
			},
		},
		"back": {
			reason: "nodes can return to the version that they run", change: func(p *hub.NodePool) { p.Properties.Version.ID = "4.20.8" }, running: "4.20.8",
		},
		"far up": {
			reason: "at most two minors at a time", change: func(p *hub.NodePool) { p.Properties.Version.ID = "5.1.0" },
			want: []apierror.Violation{
				violation("properties.version.id", `Invalid value: "5.1.0": a new major version needs the feature Microsoft.RedHatOpenShift/ExperimentalReleaseFeatures registered on the subscription`),
				violation("properties.version.id", `Invalid value: "5.1.0": must be at most 2 minor versions above the current version 4.21.1`),
				violation("properties.version.id", `Invalid value: "5.1.0": must not be higher than the control plane's version 5.0.0`),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pool := validNodePool()
			tc.change(pool)
			got := rules(t).NodePool(validation.NodePoolChange{
				New: pool, Old: validNodePool(), Running: tc.running, Cluster: validCluster(), ActiveVersions: []string{"5.0.0"}, Subscription: &hub.Subscription{},
			})
			documented(t, book(t), got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
