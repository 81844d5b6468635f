// Package v20260630preview defines the ARM api-version 2026-06-30-preview. It adds the visibility of the ingress, FIPS, the
// status of every resource and the rotation of etcd's key.
package v20260630preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/v20251223preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the value of the api-version parameter.
const Version = "2026-06-30-preview"

// API returns the api-version.
func API() version.Version {
	v := v20251223preview.API()
	v.Name = Version
	v.Cluster = v.Cluster.
		With("properties",
			shape.Object("ingress",
				// The contract lists Disabled too. The service provides neither that nor a private ingress.
				shape.Value("type").OneOf("Public", "Private").Supported("Public").Mandatory().Default("Public").DefaultIfNull(),
			),
			shape.Value("cryptoRestrictions").OneOf("None", "FIPS").Default("None").DefaultIfNull(),
			version.StatusField(func(s *hub.ClusterStatus) any { return version.Status(s.Conditions) }),
		).
		// A cluster with a platform-managed key keeps it while requests omit the object; there is no value for it any more.
		With("properties.etcd.dataEncryption", shape.Value("keyManagementMode").OneOf("CustomerManaged").Mandatory()).
		With("properties.etcd.dataEncryption.customerManaged.kms.activeKey", shape.Value("version"))
	v.NodePool = v.NodePool.
		With("properties", version.StatusField(func(s *hub.NodePoolStatus) any { return version.Status(s.Conditions) }))
	v.ExternalAuth = v.ExternalAuth.
		Without("properties", "condition").
		With("properties", version.StatusField(func(s *hub.ExternalAuthStatus) any { return version.Status(s.Conditions) }))
	return v
}
