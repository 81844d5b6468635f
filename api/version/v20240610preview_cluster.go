package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

func cluster() shape.Field {
	identityIDs := []shape.Field{
		shape.ShownFromStatus(shape.Value("clientId"), func(s *hub.ClusterStatus, id string) any { return s.Identities[hub.Key(id)].ClientID }),
		shape.ShownFromStatus(shape.Value("principalId"), func(s *hub.ClusterStatus, id string) any { return s.Identities[hub.Key(id)].PrincipalID }),
	}
	return tracked(identityIDs,
		shape.State("provisioningState"),
		shape.Object("version",
			// The contract marks it create-only; the published service accepts changes.
			shape.Value("id"),
			shape.Value("channelGroup").Default("stable"),
		),
		shape.Object("dns",
			shape.FromStatus("baseDomain", func(s *hub.ClusterStatus) any { return s.BaseDomain }),
			shape.Value("baseDomainPrefix").KeepIfAbsent(),
		),
		shape.Object("network",
			shape.Value("networkType").OneOf("OVNKubernetes", "Other").Mandatory().Default("OVNKubernetes").DefaultIfNull(),
			shape.Value("podCidr").Default("10.128.0.0/14"),
			shape.Value("serviceCidr").Default("172.30.0.0/16"),
			shape.Value("machineCidr").Default("10.0.0.0/16"),
			shape.Value("hostPrefix").Default(23),
		),
		shape.Object("console",
			shape.FromStatus("url", func(s *hub.ClusterStatus) any { return s.ConsoleURL }),
		).Inline(),
		shape.Object("api",
			shape.FromStatus("url", func(s *hub.ClusterStatus) any { return s.APIURL }),
			// The service provides no private APIs yet.
			shape.Value("visibility").OneOf("Public", "Private").Supported("Public").Mandatory().Default("Public").DefaultIfNull(),
			shape.Value("authorizedCidrs").AtMost(hub.MaxAuthorizedCIDRs),
		),
		platform(),
		shape.Object("autoscaling",
			shape.Value("maxNodesTotal"),
			shape.Value("maxPodGracePeriodSeconds").Default(600),
			shape.Value("maxNodeProvisionTimeSeconds").Default(900),
			shape.Value("podPriorityThreshold").Default(-10),
		),
		etcd(),
		shape.Value("nodeDrainTimeoutMinutes"),
		shape.Object("clusterImageRegistry",
			shape.Value("state").OneOf("Enabled", "Disabled").Mandatory().Default("Enabled").DefaultIfNull(),
		),
	)
}

func platform() shape.Field {
	return shape.Object("platform",
		shape.Value("managedResourceGroup").KeepIfAbsent(),
		shape.Value("subnetId"),
		// Later versions require one. A cluster that this version creates uses its own subnet.
		shape.ImpliedFrom("vnetIntegrationSubnetId", "subnetId"),
		shape.Value("outboundType").OneOf("LoadBalancer").Mandatory().Default("LoadBalancer").DefaultIfNull(),
		shape.Value("networkSecurityGroupId"),
		shape.Object("operatorsAuthentication",
			shape.Object("userAssignedIdentities",
				// The contract requires both in responses, even if they are empty.
				shape.Value("controlPlaneOperators").AtMost(hub.MaxOperators).WriteZero().DropEmpty(),
				shape.Value("dataPlaneOperators").AtMost(hub.MaxOperators).WriteZero().DropEmpty(),
				shape.Value("serviceManagedIdentity"),
			),
		),
		shape.FromStatus("issuerUrl", func(s *hub.ClusterStatus) any { return s.IssuerURL }),
	)
}

func etcd() shape.Field {
	return shape.Object("etcd",
		shape.Object("dataEncryption",
			shape.Value("keyManagementMode").OneOf("PlatformManaged", "CustomerManaged").Supported("CustomerManaged").Mandatory().Default("PlatformManaged"),
			shape.Object("customerManaged",
				shape.Value("encryptionType").OneOf("KMS"),
				shape.Object("kms",
					// This version supports public vaults only.
					shape.Implied("visibility", "Public"),
					shape.Object("activeKey",
						shape.Value("vaultName"),
						shape.Value("name").From("activeKey.name"),
						shape.Value("version").From("activeKey.version").Immutable(),
					).Inline(),
				),
			),
		),
	)
}
