package render

import (
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

func (r *Renderer) nodePool(c *fleet.Cluster, p *fleet.NodePool) *hyperv1.NodePool {
	spec := p.Spec
	maxSurge, maxUnavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	n := &hyperv1.NodePool{
		TypeMeta:   typeMeta(hyperv1.GroupVersion, "NodePool"),
		ObjectMeta: r.metadata(c, fleet.NodePoolName(c, p), r.namespaceOf(c)),
		Spec: hyperv1.NodePoolSpec{
			ClusterName: fleet.HostedClusterName(c),
			Arch:        architecture(spec.GetPlatform().GetVmSize()),
			Release:     hyperv1.Release{Image: p.Release.Image},
			Management: hyperv1.NodePoolManagement{UpgradeType: hyperv1.UpgradeTypeReplace, AutoRepair: spec.GetAutoRepair(),
				Replace: &hyperv1.ReplaceUpgrade{Strategy: hyperv1.UpgradeStrategyRollingUpdate,
					RollingUpdate: &hyperv1.RollingUpdate{MaxSurge: &maxSurge, MaxUnavailable: &maxUnavailable}}},
			Platform:    hyperv1.NodePoolPlatform{Type: hyperv1.AzurePlatform, Azure: azureNodePool(c, p)},
			NodeLabels:  spec.GetLabels(),
			PausedUntil: pausedUntil(c),
		},
	}
	n.Annotations = map[string]string{managementcluster.AnnotationNodePoolResourceID: p.ResourceID}
	// HyperShift's autoscaler requires at least one node as maximum. A pool whose maximum is zero has zero replicas.
	if a := spec.GetAutoscaling(); a != nil && a.GetMax() > 0 {
		n.Spec.AutoScaling = &hyperv1.NodePoolAutoScaling{Min: new(a.GetMin()), Max: a.GetMax()}
	} else {
		n.Spec.Replicas = new(spec.GetReplicas())
	}
	drain := spec.GetNodeDrainTimeout()
	if drain == nil {
		drain = c.Spec.GetNodeDrainTimeout()
	}
	if drain != nil {
		n.Spec.NodeDrainTimeout = &metav1.Duration{Duration: drain.AsDuration()}
	}
	for _, t := range spec.GetTaints() {
		n.Spec.Taints = append(n.Spec.Taints, hyperv1.Taint{Key: t.GetKey(), Value: t.GetValue(), Effect: corev1.TaintEffect(t.GetEffect())})
	}
	return n
}

// architecture returns the architecture of a virtual machine size. A size that is no longer in the table is amd64, with
// which its nodes were created.
func architecture(size string) string {
	if found, ok := vmsize.ArchitectureOf(size); ok {
		return string(found)
	}
	return hyperv1.ArchitectureAMD64
}

func azureNodePool(c *fleet.Cluster, p *fleet.NodePool) *hyperv1.AzureNodePoolPlatform {
	platform := p.Spec.GetPlatform()
	subnet := platform.GetSubnetId()
	if subnet == "" {
		subnet = c.Spec.GetPlatform().GetSubnetId()
	}
	encryptionAtHost := "Disabled"
	if platform.GetEncryptionAtHost() {
		encryptionAtHost = "Enabled"
	}
	disk := platform.GetOsDisk()
	persistence := hyperv1.PersistentDiskPersistence
	if disk.GetEphemeral() {
		persistence = hyperv1.EphemeralDiskPersistence
	}
	image := &hyperv1.AzureMarketplaceImage{ImageGeneration: new(hyperv1.Gen2)}
	// HyperShift takes the image of nodes from releases since 4.20. It creates no machine of an older release whose NodePool does not name the image.
	if strings.HasPrefix(p.Release.Version, "4.19.") {
		image.Publisher, image.Offer, image.SKU, image.Version = "azureopenshift", "aro4", "419-v2", "419.6.20250523"
		if architecture(platform.GetVmSize()) == hyperv1.ArchitectureARM64 {
			image.SKU = "419-arm"
		}
	}
	return &hyperv1.AzureNodePoolPlatform{
		VMSize:           platform.GetVmSize(),
		SubnetID:         subnet,
		AvailabilityZone: platform.GetAvailabilityZone(),
		EncryptionAtHost: encryptionAtHost,
		Diagnostics:      &hyperv1.Diagnostics{StorageAccountType: hyperv1.AzureDiagnosticsStorageAccountTypeManaged},
		Image:            hyperv1.AzureVMImage{Type: hyperv1.AzureMarketplace, AzureMarketplace: image},
		OSDisk: hyperv1.AzureNodePoolOSDisk{SizeGiB: disk.GetSizeGib(), Persistence: persistence, EncryptionSetID: disk.GetEncryptionSetId(),
			DiskStorageAccountType: hyperv1.AzureDiskStorageAccountType(disk.GetStorageAccountType())},
	}
}
