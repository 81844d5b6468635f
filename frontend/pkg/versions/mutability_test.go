package versions_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// additionalImmutable lists fields that are immutable in the service and mutable in the contract: the identities of operators.
const additionalImmutable = "properties.platform.operatorsAuthentication"

// TestMutability: a PUT that changes a field is rejected as immutable if and only if the field is create-only in the
// version's contract.
func TestMutability(t *testing.T) {
	offer := must.Get(config.Default())(t)
	rules := validation.NewRules(offer, "westus3")
	stored, pool := everyField()
	for name, v := range versions.All() {
		t.Run("cluster/"+name, func(t *testing.T) {
			mutability(t, v, "HcpOpenShiftCluster", text(t, v.EncodeCluster(stored, hub.Succeeded, &hub.ClusterStatus{})), func(body *wire.Body) []apierror.Violation {
				now := v.DecodeCluster(body, stored, true)
				return said(v, hub.ClusterResourceType, rules.Cluster(validation.ClusterChange{New: now, Old: stored, Subscription: &hub.Subscription{}}))
			})
		})
		t.Run("nodePool/"+name, func(t *testing.T) {
			mutability(t, v, "NodePool", text(t, v.EncodeNodePool(pool, hub.Succeeded, &hub.NodePoolStatus{})), func(body *wire.Body) []apierror.Violation {
				now := v.DecodeNodePool(body, pool, true)
				change := validation.NodePoolChange{New: now, Old: pool, Cluster: stored, ActiveVersions: []string{"4.22.0"}, Subscription: &hub.Subscription{}}
				return said(v, hub.NodePoolResourceType, rules.NodePool(change))
			})
		})
	}
}

// everyField returns resources in which every field has a value.
func everyField() (*hub.Cluster, *hub.NodePool) {
	c := &hub.Cluster{Resource: hub.Resource{ID: "/subscriptions/s/resourceGroups/g/providers/" + hub.ClusterResourceType + "/c", Name: "c", Location: "westus3"}}
	c.Properties = hub.ClusterProperties{
		Version: hub.Version{ID: "4.22", ChannelGroup: "stable"}, DNS: hub.DNS{BaseDomainPrefix: "c"},
		Network: hub.Network{NetworkType: "OVNKubernetes", PodCIDR: "10.128.0.0/14", ServiceCIDR: "172.30.0.0/16", MachineCIDR: "10.0.0.0/16", HostPrefix: 23},
		API:     hub.API{Visibility: hub.Public, AuthorizedCIDRs: []string{"10.0.0.0/8"}}, Ingress: hub.Ingress{Type: hub.Public},
		Platform: hub.Platform{ManagedResourceGroup: "m", SubnetID: "/s/1", VnetIntegrationSubnetID: "/s/2", OutboundType: "LoadBalancer", NetworkSecurityGroupID: "/n",
			OperatorsAuthentication: hub.OperatorsAuthentication{UserAssignedIdentities: hub.OperatorIdentities{
				ControlPlaneOperators: map[string]string{"a": "/i/a"}, DataPlaneOperators: map[string]string{"b": "/i/b"}, ServiceManagedIdentity: "/i/c"}}},
		Autoscaling: hub.Autoscaling{MaxNodesTotal: 9, MaxPodGracePeriodSeconds: 600, MaxNodeProvisionTimeSeconds: 900, PodPriorityThreshold: -10},
		Etcd: hub.Etcd{DataEncryption: hub.DataEncryption{KeyManagementMode: "CustomerManaged", CustomerManaged: &hub.CustomerManagedEncryption{EncryptionType: "KMS",
			KMS: &hub.KMSEncryption{VaultName: "v", Visibility: hub.Public, ActiveKey: hub.KMSKey{Name: "k", Version: "1"}}}}},
		ImageDigestMirrors:   []hub.ImageDigestMirror{{Source: "quay.io/a", Mirrors: []string{"m.example/a"}}},
		ClusterImageRegistry: hub.ImageRegistry{State: "Enabled"}, CryptoRestrictions: "None", NodeDrainTimeoutMinutes: 5,
	}
	minutes := int32(5)
	p := &hub.NodePool{Resource: hub.Resource{ID: c.ID + "/nodePools/p", Name: "p", Location: "westus3"}}
	p.Properties = hub.NodePoolProperties{
		Version: hub.Version{ID: "4.21.1", ChannelGroup: "stable"}, Replicas: 2, AutoRepair: true, NodeDrainTimeoutMinutes: &minutes,
		Platform: hub.NodePoolPlatform{SubnetID: "/s/1", VMSize: "Standard_D8s_v3", AvailabilityZone: "1",
			OSDisk: hub.OSDisk{SizeGiB: 64, DiskStorageAccountType: "Premium_LRS", EncryptionSetID: "/e", DiskType: "Managed"}},
		AutoScaling: &hub.NodePoolAutoScaling{Min: 1, Max: 3}, Labels: []hub.Label{{Key: "a"}}, Taints: []hub.Taint{{Key: "a", Effect: "NoSchedule"}},
	}
	return c, p
}

// said converts violations to a version's paths as the frontend does.
func said(v *versions.Version, resourceType string, violations []apierror.Violation) (said []apierror.Violation) {
	for _, violation := range violations {
		if path, ok := v.Path(resourceType, violation.Field); ok {
			said = append(said, apierror.Violation{Field: path, Message: violation.Message})
		}
	}
	return said
}

func mutability(t *testing.T, v *versions.Version, schema string, shown []byte, judge func(body *wire.Body) []apierror.Violation) {
	createOnly := map[string]bool{}
	contract{openapi.Files()}.createOnly(t, path.Join(v.Name, "openapi.json"), schema, "", false, createOnly)
	words := map[string][]string{}
	for _, entry := range tables()[v.Name][schema] {
		words[entry.Path] = entry.Supported
	}
	tried := 0
	for field, fixed := range createOnly {
		var tree map[string]any
		must.Do(t, json.Unmarshal(shown, &tree))
		if !changed(tree, strings.Split(field, "."), words[field]) {
			continue
		}
		tried++
		body := body(t, tree)
		violations := judge(body)
		for _, problem := range body.Problems() {
			violations = append(violations, apierror.Violation{Field: problem.Field, Message: problem.Message})
		}
		told := slices.ContainsFunc(violations, func(v apierror.Violation) bool {
			return v.Message == "Forbidden: field is immutable" && validation.Covers(v.Field, field)
		})
		if field == "properties.version.id" {
			// The contract of 2024-06-10-preview marks it create-only. As in the published service, it can be changed.
			fixed = false
		}
		if want := fixed || strings.HasPrefix(field, additionalImmutable); told != want {
			t.Errorf("%s: create-only %v, reported as immutable %v: %v", field, want, told, violations)
		}
	}
	if tried < 12 {
		t.Errorf("only %d fields", tried)
	}
}

// changed gives an existing field another value and reports whether that is possible.
func changed(tree map[string]any, names []string, words []string) bool {
	value, there := tree[names[0]]
	if !there {
		return false
	}
	if len(names) > 1 {
		inner, ok := value.(map[string]any)
		return ok && changed(inner, names[1:], words)
	}
	switch value := value.(type) {
	case string:
		tree[names[0]] = value + "x"
		if words != nil {
			i := slices.IndexFunc(words, func(word string) bool { return word != value })
			if i < 0 {
				return false
			}
			tree[names[0]] = words[i]
		}
	case float64:
		tree[names[0]] = value + 1
	case bool:
		tree[names[0]] = !value
	case map[string]any:
		for name, inner := range value {
			if text, ok := inner.(string); ok {
				value[name] = text + "x"
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

// createOnly collects for each leaf of a schema's properties whether it is create-only.
func (c contract) createOnly(t *testing.T, file, schema, at string, fixed bool, into map[string]bool) {
	definitions := c.read(t, file)["definitions"].(map[string]any)
	properties, _ := definitions[schema].(map[string]any)["properties"].(map[string]any)
	for name, value := range properties {
		field, described := strings.TrimPrefix(at+"."+name, "."), value.(map[string]any)
		mutability := list(described["x-ms-mutability"])
		own := fixed || mutability != nil && !slices.Contains(mutability, any("update"))
		ref, _ := described["$ref"].(string)
		inner, local := strings.CutPrefix(ref, "#/definitions/")
		switch {
		case described["readOnly"] == true || ref != "" && !local:
		case local && definitions[inner].(map[string]any)["properties"] != nil:
			c.createOnly(t, file, inner, field, own, into)
		default:
			into[field] = own
		}
	}
}
