// Package v20251223preview defines the ARM api-version 2025-12-23-preview. It adds image mirrors, a subnet for the
// integration with the virtual network, ephemeral disks and private key vaults.
package v20251223preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/v20240610preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the value of the api-version parameter.
const Version = "2025-12-23-preview"

// API returns the api-version.
func API() version.Version {
	v := v20240610preview.API()
	v.Name = Version
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
