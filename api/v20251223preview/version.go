// Package v20251223preview is the ARM api-version 2025-12-23-preview: 2024-06-10-preview with image mirrors, a subnet for
// the integration with the virtual network, ephemeral disks, private key vaults, and versions that can be changed.
package v20251223preview

import (
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/v20240610preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the name of the api-version.
const Version = "2025-12-23-preview"

// API is the api-version.
func API() version.Version {
	v := v20240610preview.API()
	v.Name = Version
	// The version must be named, and can be changed.
	v.VersionOptional = false
	v.Cluster = v.Cluster.
		With("properties.version", shape.Value("id")).
		With("properties", shape.List("imageDigestMirrors",
			shape.Value("source"),
			shape.Value("mirrors"),
		)).
		With("properties.platform", shape.Value("vnetIntegrationSubnetId")).
		// The vault is named beside the key, and may be a private one.
		With("properties.etcd.dataEncryption.customerManaged.kms",
			shape.Value("vaultName"),
			shape.Value("visibility").OneOf("Public", "Private"),
			shape.Object("activeKey",
				shape.Value("name"),
				shape.Value("version").Immutable(),
			),
		)
	v.NodePool = v.NodePool.
		With("properties.platform.osDisk", shape.Value("diskType").OneOf("Managed", "Ephemeral").Default("Managed"))
	return v
}
