package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

// v20251223preview returns the api-version 2025-12-23-preview. It adds image mirrors, a subnet for the
// integration with the virtual network, ephemeral disks and private key vaults.
func v20251223preview() Version {
	v := v20240610preview()
	v.Name = "2025-12-23-preview"
	v.Cluster = v.Cluster.
		With("properties", shape.Value("nodeDrainTimeoutMinutes").WriteZero()).
		With("properties", shape.List("imageDigestMirrors",
			shape.Value("source"),
			shape.Value("mirrors").AtMost(hub.MaxMirrors),
		).AtMost(hub.MaxImageDigestMirrors)).
		With("properties.platform", shape.Value("vnetIntegrationSubnetId")).
		// The vault has a field beside the key and may be private.
		With("properties.etcd.dataEncryption.customerManaged.kms",
			shape.Value("vaultName"),
			shape.Value("visibility").OneOf("Public", "Private").Mandatory().RequiredIfNull(),
			shape.Object("activeKey",
				shape.Value("name"),
				shape.Value("version").Immutable(),
			),
		)
	v.NodePool = v.NodePool.
		With("properties.platform.osDisk", shape.Value("diskType").OneOf("Managed", "Ephemeral").Mandatory().Default("Managed").DefaultIfNull()).
		With("properties",
			shape.Value("replicas").WriteZero(),
			shape.Object("autoScaling",
				shape.Value("min").WriteZero(),
				shape.Value("max").WriteZero(),
			),
		)
	return v
}
