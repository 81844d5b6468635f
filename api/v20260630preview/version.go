// Package v20260630preview is the ARM api-version 2026-06-30-preview: 2025-12-23-preview with the visibility of the ingress,
// FIPS, the status of every resource, and keys of etcd that can be rotated.
package v20260630preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/v20251223preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the name of the api-version.
const Version = "2026-06-30-preview"

// API is the api-version.
func API() version.Version {
	v := v20251223preview.API()
	v.Name = Version
	v.Cluster = v.Cluster.
		With("properties",
			shape.Object("ingress",
				// Disabled is in the vocabulary too, and not offered.
				shape.Value("type").OneOf("Public", "Private").Default("Public"),
			),
			shape.Value("cryptoRestrictions").OneOf("None", "FIPS").Default("None"),
			shape.FromStatus("status", func(s *hub.ClusterStatus) any { return version.Status(s.Conditions) }),
		).
		// Who leaves the object out has the platform keep the key; the word for that is gone.
		With("properties.etcd.dataEncryption",
			shape.Value("keyManagementMode").OneOf("CustomerManaged").IfObjectAbsent("PlatformManaged"),
		).
		With("properties.etcd.dataEncryption.customerManaged.kms.activeKey", shape.Value("version"))
	v.NodePool = v.NodePool.
		With("properties", shape.FromStatus("status", func(s *hub.NodePoolStatus) any { return version.Status(s.Conditions) }))
	v.ExternalAuth = v.ExternalAuth.
		Without("properties", "condition").
		With("properties", shape.FromStatus("status", func(s *hub.ExternalAuthStatus) any { return version.Status(s.Conditions) }))
	return v
}
