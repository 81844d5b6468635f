package versions_test

import (
	"pgregory.net/rapid"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The generators return resources that validation accepts: fields with a default have a value.
var (
	word       = rapid.StringMatching(`[a-z][a-z0-9-]{0,12}`)
	optional   = rapid.OneOf(rapid.Just(""), word)
	visibility = rapid.SampledFrom([]hub.Visibility{hub.Public, hub.Private})
	ids        = rapid.MapOfN(word, word, 0, 4)
)

func drawResource(t *rapid.T) hub.Resource {
	resource := hub.Resource{
		ID: "/subscriptions/s/" + word.Draw(t, "id"), Name: word.Draw(t, "name"), Type: hub.ClusterResourceType,
		Location: word.Draw(t, "location"), Tags: rapid.MapOfN(word, optional, 0, 3).Draw(t, "tags"),
	}
	if rapid.Bool().Draw(t, "has identity") {
		resource.Identity = &hub.Identity{Type: rapid.SampledFrom([]string{"None", "UserAssigned"}).Draw(t, "identity type")}
		for _, id := range rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(t, "identities") {
			if resource.Identity.UserAssigned == nil {
				resource.Identity.UserAssigned = map[string]hub.UserAssignedIdentity{}
			}
			resource.Identity.UserAssigned[id] = hub.UserAssignedIdentity{}
		}
	}
	return resource
}

func drawCluster(t *rapid.T) *hub.Cluster {
	cluster := &hub.Cluster{Resource: drawResource(t)}
	p := &cluster.Properties
	p.Version = hub.Version{ID: word.Draw(t, "version"), ChannelGroup: word.Draw(t, "channel")}
	p.DNS.BaseDomainPrefix = word.Draw(t, "prefix")
	p.Network = hub.Network{
		NetworkType: rapid.SampledFrom([]string{"OVNKubernetes", "Other"}).Draw(t, "network type"),
		PodCIDR:     word.Draw(t, "pod"), ServiceCIDR: word.Draw(t, "service"), MachineCIDR: word.Draw(t, "machine"),
		HostPrefix: rapid.Int32Range(1, 32).Draw(t, "host prefix"),
	}
	p.API = hub.API{Visibility: visibility.Draw(t, "api"), AuthorizedCIDRs: rapid.SliceOfN(word, 0, 3).Draw(t, "cidrs")}
	p.Ingress.Type = visibility.Draw(t, "ingress")
	p.Platform = hub.Platform{
		ManagedResourceGroup: word.Draw(t, "group"), SubnetID: word.Draw(t, "subnet"), VnetIntegrationSubnetID: word.Draw(t, "integration"),
		OutboundType: "LoadBalancer", NetworkSecurityGroupID: word.Draw(t, "nsg"),
	}
	p.Platform.OperatorsAuthentication.UserAssignedIdentities = hub.OperatorIdentities{
		ControlPlaneOperators: ids.Draw(t, "control plane"), DataPlaneOperators: ids.Draw(t, "data plane"), ServiceManagedIdentity: word.Draw(t, "service identity"),
	}
	p.Autoscaling = hub.Autoscaling{
		MaxNodesTotal:               rapid.Int32Range(0, 500).Draw(t, "nodes"),
		MaxPodGracePeriodSeconds:    rapid.Int32Range(1, 1000).Draw(t, "grace"),
		MaxNodeProvisionTimeSeconds: rapid.Int32Range(1, 1000).Draw(t, "provision"),
		PodPriorityThreshold:        rapid.Int32().Draw(t, "priority"),
	}
	p.Etcd.DataEncryption.KeyManagementMode = "PlatformManaged"
	if rapid.Bool().Draw(t, "customer-managed key") {
		p.Etcd.DataEncryption = hub.DataEncryption{KeyManagementMode: "CustomerManaged", CustomerManaged: &hub.CustomerManagedEncryption{
			EncryptionType: "KMS",
			KMS: &hub.KMSEncryption{
				VaultName: word.Draw(t, "vault"), Visibility: visibility.Draw(t, "vault visibility"),
				ActiveKey: hub.KMSKey{Name: word.Draw(t, "key"), Version: word.Draw(t, "key version")},
			},
		}}
	}
	for range rapid.IntRange(0, 3).Draw(t, "mirrors") {
		p.ImageDigestMirrors = append(p.ImageDigestMirrors, hub.ImageDigestMirror{
			Source: word.Draw(t, "source"), Mirrors: rapid.SliceOfN(word, 1, 3).Draw(t, "mirror"),
		})
	}
	p.NodeDrainTimeoutMinutes = rapid.Int32Range(0, 10080).Draw(t, "drain")
	p.ClusterImageRegistry.State = rapid.SampledFrom([]string{"Enabled", "Disabled"}).Draw(t, "registry")
	p.CryptoRestrictions = rapid.SampledFrom([]string{"None", "FIPS"}).Draw(t, "crypto")
	return cluster
}

func drawNodePool(t *rapid.T) *hub.NodePool {
	pool := &hub.NodePool{Resource: drawResource(t)}
	p := &pool.Properties
	p.Version = hub.Version{ID: word.Draw(t, "version"), ChannelGroup: word.Draw(t, "channel")}
	p.Platform = hub.NodePoolPlatform{
		SubnetID: word.Draw(t, "subnet"), VMSize: word.Draw(t, "size"), EnableEncryptionAtHost: rapid.Bool().Draw(t, "encryption"),
		AvailabilityZone: optional.Draw(t, "zone"),
		OSDisk: hub.OSDisk{
			SizeGiB:                rapid.Int32Range(64, 4095).Draw(t, "disk"),
			DiskStorageAccountType: rapid.SampledFrom([]string{"Premium_LRS", "StandardSSD_LRS", "Standard_LRS"}).Draw(t, "storage"),
			EncryptionSetID:        optional.Draw(t, "encryption set"), DiskType: rapid.SampledFrom([]string{"Managed", "Ephemeral"}).Draw(t, "disk type"),
		},
	}
	if rapid.Bool().Draw(t, "scales") {
		p.AutoScaling = &hub.NodePoolAutoScaling{Min: rapid.Int32Range(0, 200).Draw(t, "min"), Max: rapid.Int32Range(0, 200).Draw(t, "max")}
	} else {
		p.Replicas = rapid.Int32Range(0, 200).Draw(t, "replicas")
	}
	p.AutoRepair = rapid.Bool().Draw(t, "repair")
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		p.Labels = append(p.Labels, hub.Label{Key: word.Draw(t, "key"), Value: optional.Draw(t, "value")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "taints") {
		p.Taints = append(p.Taints, hub.Taint{Key: word.Draw(t, "taint"), Value: optional.Draw(t, "value"),
			Effect: rapid.SampledFrom([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}).Draw(t, "effect")})
	}
	if rapid.Bool().Draw(t, "drains") {
		minutes := rapid.Int32Range(0, 10080).Draw(t, "drain")
		p.NodeDrainTimeoutMinutes = &minutes
	}
	return pool
}

func drawExternalAuth(t *rapid.T) *hub.ExternalAuth {
	auth := &hub.ExternalAuth{Resource: hub.Resource{ID: "/subscriptions/s/" + word.Draw(t, "id"), Name: word.Draw(t, "name"), Type: hub.ExternalAuthResourceType}}
	p := &auth.Properties
	p.Issuer = hub.TokenIssuer{URL: word.Draw(t, "url"), Audiences: rapid.SliceOfN(word, 0, 3).Draw(t, "audiences"), CA: optional.Draw(t, "ca")}
	for range rapid.IntRange(0, 3).Draw(t, "clients") {
		p.Clients = append(p.Clients, hub.ExternalAuthClient{
			Component: hub.ExternalAuthComponent{Name: optional.Draw(t, "component"), AuthClientNamespace: optional.Draw(t, "namespace")},
			ClientID:  word.Draw(t, "client"), ExtraScopes: rapid.SliceOfN(word, 0, 2).Draw(t, "scopes"),
			Type: rapid.SampledFrom([]string{"Confidential", "Public"}).Draw(t, "client type"),
		})
	}
	p.Claim.Mappings.Username = hub.UsernameClaim{
		Claim: optional.Draw(t, "username"), Prefix: optional.Draw(t, "prefix"),
		PrefixPolicy: rapid.SampledFrom([]string{"None", "Prefix", "NoPrefix"}).Draw(t, "policy"),
	}
	if rapid.Bool().Draw(t, "has groups") {
		p.Claim.Mappings.Groups = &hub.GroupClaim{Claim: word.Draw(t, "groups"), Prefix: optional.Draw(t, "groups prefix")}
	}
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		rule := hub.TokenClaimValidationRule{Type: "RequiredClaim"}
		if rapid.Bool().Draw(t, "has claim") {
			rule.RequiredClaim = &hub.RequiredClaim{Claim: word.Draw(t, "claim"), RequiredValue: word.Draw(t, "value")}
		}
		p.Claim.ValidationRules = append(p.Claim.ValidationRules, rule)
	}
	return auth
}
