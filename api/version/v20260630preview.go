package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

// v20260630preview returns the api-version 2026-06-30-preview. It adds the visibility of the ingress, FIPS, the
// status of every resource and the rotation of etcd's key.
func v20260630preview() Version {
	v := v20251223preview()
	v.Name = "2026-06-30-preview"
	v.Cluster = v.Cluster.
		With("properties",
			shape.Object("ingress",
				// The contract lists Disabled too. The service provides neither that nor a private ingress.
				shape.Value("type").OneOf("Public", "Private").Supported("Public").Mandatory().Default("Public").DefaultIfNull(),
			),
			shape.Value("cryptoRestrictions").OneOf("None", "FIPS").Default("None").DefaultIfNull(),
			statusField(func(s *hub.ClusterStatus) any { return status(s.Conditions) }),
		).
		// A cluster with a platform-managed key keeps it while requests omit the object; there is no value for it any more.
		With("properties.etcd.dataEncryption", shape.Value("keyManagementMode").OneOf("CustomerManaged").Mandatory()).
		With("properties.etcd.dataEncryption.customerManaged.kms.activeKey", shape.Value("version"))
	v.NodePool = v.NodePool.
		With("properties", statusField(func(s *hub.NodePoolStatus) any { return status(s.Conditions) }))
	v.ExternalAuth = v.ExternalAuth.
		Without("properties", "condition").
		With("properties", statusField(func(s *hub.ExternalAuthStatus) any { return status(s.Conditions) }))
	return v
}
