package command

import (
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"sigs.k8s.io/yaml"
)

// field returns a value of a resource as text, by the path of its fields; empty if there is none.
func field(resource map[string]any, fields ...string) string {
	var value any = resource
	for _, field := range fields {
		object, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = object[field]
	}
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return fmt.Sprintf("%g", v)
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(texts, ",")
	default:
		return fmt.Sprint(v)
	}
}

// groupOf returns the resource group in a resource ID; empty if there is none.
func groupOf(resourceID string) string {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil {
		return ""
	}
	return id.ResourceGroupName
}

// conditions returns the conditions of a resource, one line each.
func conditions(resource map[string]any) []string {
	properties, _ := resource["properties"].(map[string]any)
	status, _ := properties["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	var lines []string
	for _, item := range list {
		condition, _ := item.(map[string]any)
		line := field(condition, "type") + "=" + field(condition, "status")
		if reason := field(condition, "reason"); reason != "" {
			line += " " + reason
		}
		if message := field(condition, "message"); message != "" {
			line += ": " + message
		}
		lines = append(lines, line)
	}
	return lines
}

// readBody reads a resource from a YAML or JSON file. It refuses a field that is given twice; ARM checks the others.
func readBody(path string) (armclient.Resource, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the resource: %w", err)
	}
	var body armclient.Resource
	if err := yaml.UnmarshalStrict(data, &body); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", path, err)
	}
	return body, nil
}

// clusterTemplate returns a cluster with defaults. All resources that it refers to are named after it, because each may be
// used by one cluster only.
func clusterTemplate(subscription, group, name, location, version, channel string) armclient.Resource {
	in := func(kind, resource string) string {
		return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/" + kind + "/" + resource
	}
	identity := func(operator string) string {
		return in("Microsoft.ManagedIdentity/userAssignedIdentities", name+"-"+operator)
	}
	controlPlane, assigned := map[string]any{}, map[string]any{}
	for _, operator := range []string{
		"cluster-api-azure", "control-plane", "cloud-controller-manager", "ingress", "disk-csi-driver", "file-csi-driver",
		"image-registry", "cloud-network-config", "kms",
	} {
		controlPlane[operator] = identity(operator)
		assigned[identity(operator)] = map[string]any{}
	}
	assigned[identity("service")] = map[string]any{}
	dataPlane := map[string]any{}
	for _, operator := range []string{"disk-csi-driver", "file-csi-driver", "image-registry"} {
		dataPlane[operator] = identity("dp-" + operator)
	}
	network := in("Microsoft.Network/virtualNetworks", name+"-vnet") + "/subnets/"
	return armclient.Resource{
		"location": location,
		"identity": map[string]any{"type": "UserAssigned", "userAssignedIdentities": assigned},
		"properties": map[string]any{
			"version": map[string]any{"id": version, "channelGroup": channel},
			"etcd": map[string]any{"dataEncryption": map[string]any{
				"keyManagementMode": "CustomerManaged",
				"customerManaged": map[string]any{"encryptionType": "KMS", "kms": map[string]any{
					"vaultName": name + "-keys", "visibility": "Public", "activeKey": map[string]any{"name": "etcd", "version": "1"}}},
			}},
			"platform": map[string]any{
				"managedResourceGroup":    name + "-managed",
				"subnetId":                network + "nodes",
				"vnetIntegrationSubnetId": network + "integration",
				"networkSecurityGroupId":  in("Microsoft.Network/networkSecurityGroups", name+"-nsg"),
				"operatorsAuthentication": map[string]any{"userAssignedIdentities": map[string]any{
					"controlPlaneOperators":  controlPlane,
					"dataPlaneOperators":     dataPlane,
					"serviceManagedIdentity": identity("service"),
				}},
			},
		},
	}
}

// nodePoolTemplate returns a node pool in the subnet of its cluster.
func nodePoolTemplate(location, version, vmSize string, replicas int) armclient.Resource {
	return armclient.Resource{
		"location": location,
		"properties": map[string]any{
			"version":  map[string]any{"id": version},
			"platform": map[string]any{"vmSize": vmSize},
			"replicas": replicas,
		},
	}
}
