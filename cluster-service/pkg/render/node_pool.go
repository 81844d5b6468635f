package render

import (
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

func (r *Renderer) nodePool(c *fleet.Cluster, p *fleet.NodePool) object {
	spec := p.Spec
	subnet := spec.GetPlatform().GetSubnetId()
	if subnet == "" {
		subnet = c.Spec.GetPlatform().GetSubnetId()
	}
	encryptionAtHost := "Disabled"
	if spec.GetPlatform().GetEncryptionAtHost() {
		encryptionAtHost = "Enabled"
	}
	disk := spec.GetPlatform().GetOsDisk()
	persistence := "Persistent"
	if disk.GetEphemeral() {
		persistence = "Ephemeral"
	}
	osDisk := object{"sizeGiB": disk.GetSizeGib(), "diskStorageAccountType": disk.GetStorageAccountType(), "persistence": persistence}
	if id := disk.GetEncryptionSetId(); id != "" {
		osDisk["encryptionSetID"] = id
	}
	azure := object{
		"vmSize":           spec.GetPlatform().GetVmSize(),
		"subnetID":         subnet,
		"encryptionAtHost": encryptionAtHost,
		"diagnostics":      object{"storageAccountType": "Managed"},
		"image":            object{"type": "AzureMarketplace", "azureMarketplace": object{"imageGeneration": "Gen2"}},
		"osDisk":           osDisk,
	}
	if zone := spec.GetPlatform().GetAvailabilityZone(); zone != "" {
		azure["availabilityZone"] = zone
	}
	s := object{
		"clusterName": fleet.HostedClusterName(c),
		"arch":        "amd64",
		"release":     object{"image": p.Release.Image},
		"management": object{"upgradeType": "Replace", "autoRepair": spec.GetAutoRepair(),
			"replace": object{"strategy": "RollingUpdate", "rollingUpdate": object{"maxSurge": 1, "maxUnavailable": 0}}},
		"platform": object{"type": "Azure", "azure": azure},
	}
	// HyperShift scales to one node at least; a pool that may have none has none.
	if a := spec.GetAutoscaling(); a != nil && a.GetMax() > 0 {
		s["autoScaling"] = object{"min": a.GetMin(), "max": a.GetMax()}
	} else {
		s["replicas"] = spec.GetReplicas()
	}
	drain := spec.GetNodeDrainTimeout()
	if drain == nil {
		drain = c.Spec.GetNodeDrainTimeout()
	}
	if drain != nil {
		s["nodeDrainTimeout"] = drain.AsDuration().String()
	}
	if len(spec.GetLabels()) > 0 {
		labels := object{}
		for k, v := range spec.GetLabels() {
			labels[k] = v
		}
		s["nodeLabels"] = labels
	}
	var taints []any
	for _, t := range spec.GetTaints() {
		taint := object{"key": t.GetKey(), "effect": t.GetEffect()}
		if t.GetValue() != "" {
			taint["value"] = t.GetValue()
		}
		taints = append(taints, taint)
	}
	if len(taints) > 0 {
		s["taints"] = taints
	}
	pause(s, c)
	metadata := r.metadata(c, fleet.NodePoolName(c, p), r.namespaceOf(c))
	metadata["annotations"].(object)["azure.microsoft.com/node-pool-azure-resource-id"] = p.ResourceID
	return object{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": metadata, "spec": s}
}
