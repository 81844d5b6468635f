package clusterservice

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ClusterRequest translates a cluster document into the request that applies its generation. It is a pure function: the
// same document results in the same request in every service.
//
// It returns an error of kind Invalid that names the fields whose values it does not support.
func ClusterRequest(document *database.ClusterDocument) (*clusterservicev1.ApplyClusterRequest, error) {
	cluster := &document.Cluster
	id, err := arm.ParseResourceID(cluster.ID)
	if err != nil || id.ResourceGroupName == "" {
		return nil, fmt.Errorf("%q is not the ARM ID of a resource in a resource group", cluster.ID)
	}
	var invalid violations
	p := &cluster.Properties
	spec := &clusterservicev1.ClusterSpec{
		Name:     cluster.Name,
		Location: cluster.Location,
		TenantId: document.TenantID,
		Version:  version(p.Version),
		Dns:      &clusterservicev1.Dns{BaseDomainPrefix: p.DNS.BaseDomainPrefix},
		Network: &clusterservicev1.Network{
			NetworkType: p.Network.NetworkType,
			PodCidr:     p.Network.PodCIDR,
			ServiceCidr: p.Network.ServiceCIDR,
			MachineCidr: p.Network.MachineCIDR,
			HostPrefix:  p.Network.HostPrefix,
		},
		Api:                  &clusterservicev1.Api{Visibility: lookup(&invalid, "properties.api.visibility", p.API.Visibility, visibilities), AuthorizedCidrs: ranges(p.API.AuthorizedCIDRs)},
		Ingress:              &clusterservicev1.Ingress{Visibility: lookup(&invalid, "properties.ingress.type", p.Ingress.Type, visibilities)},
		Platform:             platform(&p.Platform, id.SubscriptionID, id.ResourceGroupName),
		Autoscaling:          autoscaling(&p.Autoscaling),
		Etcd:                 &clusterservicev1.Etcd{KmsKey: kmsKey(&invalid, &p.Etcd)},
		NodeDrainTimeout:     minutes(p.NodeDrainTimeoutMinutes),
		ImageRegistryEnabled: lookup(&invalid, "properties.clusterImageRegistry.state", p.ClusterImageRegistry.State, registryEnabled),
		Fips:                 lookup(&invalid, "properties.cryptoRestrictions", p.CryptoRestrictions, fips),
		Experiments:          cluster.Experiments,
		Identities:           identities(cluster.Identity),
		IdentityUrl:          document.IdentityURL,
	}
	for _, mirror := range p.ImageDigestMirrors {
		spec.ImageDigestMirrors = append(spec.ImageDigestMirrors, &clusterservicev1.ImageDigestMirror{Source: mirror.Source, Mirrors: distinct(mirror.Mirrors)})
	}
	if err := invalid.err(); err != nil {
		return nil, err
	}
	return &clusterservicev1.ApplyClusterRequest{
		Uid: document.UID, ResourceId: cluster.ID, Generation: document.Generation, Spec: spec, Recovery: recoveryRequest(document.Fleet.Recovery),
	}, nil
}

// DeleteClusterRequest returns the request that deletes the document's incarnation.
func DeleteClusterRequest(document *database.ClusterDocument) *clusterservicev1.DeleteClusterRequest {
	return &clusterservicev1.DeleteClusterRequest{Uid: document.UID, ResourceId: document.Cluster.ID}
}

// NodePoolRequest translates a node pool document; see ClusterRequest.
func NodePoolRequest(document *database.NodePoolDocument) (*clusterservicev1.ApplyNodePoolRequest, error) {
	var invalid violations
	p := &document.NodePool.Properties
	spec := &clusterservicev1.NodePoolSpec{
		Name:    document.NodePool.Name,
		Version: version(p.Version),
		Platform: &clusterservicev1.NodePoolPlatform{
			SubnetId:         canonicalID(p.Platform.SubnetID),
			VmSize:           p.Platform.VMSize,
			EncryptionAtHost: p.Platform.EnableEncryptionAtHost,
			AvailabilityZone: p.Platform.AvailabilityZone,
			OsDisk: &clusterservicev1.OsDisk{
				SizeGib:            p.Platform.OSDisk.SizeGiB,
				StorageAccountType: p.Platform.OSDisk.DiskStorageAccountType,
				EncryptionSetId:    canonicalID(p.Platform.OSDisk.EncryptionSetID),
				Ephemeral:          lookup(&invalid, "properties.platform.osDisk.diskType", p.Platform.OSDisk.DiskType, ephemeralDisk),
			},
		},
		Size:       &clusterservicev1.NodePoolSpec_Replicas{Replicas: p.Replicas},
		AutoRepair: p.AutoRepair,
	}
	if p.AutoScaling != nil {
		spec.Size = &clusterservicev1.NodePoolSpec_Autoscaling{Autoscaling: &clusterservicev1.NodePoolAutoscaling{Min: p.AutoScaling.Min, Max: p.AutoScaling.Max}}
	}
	if len(p.Labels) > 0 {
		spec.Labels = make(map[string]string, len(p.Labels))
	}
	for _, label := range p.Labels {
		spec.Labels[label.Key] = label.Value
	}
	for _, taint := range p.Taints {
		spec.Taints = append(spec.Taints, &clusterservicev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	if p.NodeDrainTimeoutMinutes != nil {
		// Unlike the cluster's, a zero of the node pool is sent: it overrides the cluster's limit with none.
		spec.NodeDrainTimeout = durationpb.New(time.Duration(*p.NodeDrainTimeoutMinutes) * time.Minute)
	}
	if err := invalid.err(); err != nil {
		return nil, err
	}
	return &clusterservicev1.ApplyNodePoolRequest{
		Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.NodePool.ID, Generation: document.Generation, Spec: spec,
	}, nil
}

// DeleteNodePoolRequest returns the request that deletes the document's incarnation.
func DeleteNodePoolRequest(document *database.NodePoolDocument) *clusterservicev1.DeleteNodePoolRequest {
	return &clusterservicev1.DeleteNodePoolRequest{Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.NodePool.ID}
}

// ranges returns address ranges without duplicates, which HyperShift rejects. A single address becomes a range of its own.
func ranges(addresses []string) []string {
	all := slices.Clone(addresses)
	for i, address := range all {
		if addr, err := netip.ParseAddr(address); err == nil {
			all[i] = netip.PrefixFrom(addr, addr.BitLen()).String()
		}
	}
	return distinct(all)
}

// distinct returns texts without duplicates, in order.
func distinct(texts []string) []string {
	var all []string
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if !seen[text] {
			all = append(all, text)
		}
		seen[text] = true
	}
	return all
}

// canonicalSegments maps the lower-case segments of ARM IDs that are not names to Azure's casing.
var canonicalSegments = map[string]string{
	"subscriptions": "subscriptions", "resourcegroups": "resourceGroups", "providers": "providers",
	"microsoft.network": "Microsoft.Network", "virtualnetworks": "virtualNetworks", "subnets": "subnets",
	"networksecuritygroups": "networkSecurityGroups",
	"microsoft.compute":     "Microsoft.Compute", "diskencryptionsets": "diskEncryptionSets",
}

// canonicalID returns an ARM ID with the types in Azure's casing and the names unchanged. ARM accepts IDs in any casing,
// but the validation rules of HyperShift's CRDs compare the types exactly. arm.ParseResourceID keeps the casing it reads.
func canonicalID(id string) string {
	parts := strings.Split(id, "/")
	for i, part := range parts {
		// Even segments are names, except the provider's namespace.
		if i%2 == 0 && i != 6 {
			continue
		}
		if canonical, ok := canonicalSegments[strings.ToLower(part)]; ok {
			parts[i] = canonical
		}
	}
	return strings.Join(parts, "/")
}

func version(v hub.Version) *clusterservicev1.Version {
	return &clusterservicev1.Version{Id: v.ID, ChannelGroup: v.ChannelGroup}
}

func platform(p *hub.Platform, subscription, group string) *clusterservicev1.Platform {
	operators := &p.OperatorsAuthentication.UserAssignedIdentities
	return &clusterservicev1.Platform{
		SubscriptionId:          subscription,
		ResourceGroup:           group,
		ManagedResourceGroup:    p.ManagedResourceGroup,
		SubnetId:                canonicalID(p.SubnetID),
		VnetIntegrationSubnetId: canonicalID(p.VnetIntegrationSubnetID),
		NetworkSecurityGroupId:  canonicalID(p.NetworkSecurityGroupID),
		OutboundType:            p.OutboundType,
		ControlPlaneOperators:   operators.ControlPlaneOperators,
		DataPlaneOperators:      operators.DataPlaneOperators,
		ServiceManagedIdentity:  operators.ServiceManagedIdentity,
	}
}

func autoscaling(a *hub.Autoscaling) *clusterservicev1.ClusterAutoscaling {
	return &clusterservicev1.ClusterAutoscaling{
		MaxNodesTotal:        a.MaxNodesTotal,
		MaxPodGracePeriod:    durationpb.New(time.Duration(a.MaxPodGracePeriodSeconds) * time.Second),
		MaxNodeProvisionTime: durationpb.New(time.Duration(a.MaxNodeProvisionTimeSeconds) * time.Second),
		PodPriorityThreshold: a.PodPriorityThreshold,
	}
}

// kmsKey returns nil if the platform manages the key. A customer-managed mode without a key is a violation: without it,
// Cluster Service would encrypt with the platform's key.
func kmsKey(invalid *violations, e *hub.Etcd) *clusterservicev1.KmsKey {
	const path = "properties.etcd.dataEncryption"
	required := lookup(invalid, path+".keyManagementMode", e.DataEncryption.KeyManagementMode, customerKey)
	customer := e.DataEncryption.CustomerManaged
	if customer == nil || customer.KMS == nil {
		if required {
			invalid.add(path+".customerManaged.kms", "Required value")
		}
		return nil
	}
	lookup(invalid, path+".customerManaged.encryptionType", customer.EncryptionType, keyEncryptions)
	return &clusterservicev1.KmsKey{
		VaultName:       customer.KMS.VaultName,
		KeyName:         customer.KMS.ActiveKey.Name,
		KeyVersion:      customer.KMS.ActiveKey.Version,
		VaultVisibility: lookup(invalid, path+".customerManaged.kms.visibility", customer.KMS.Visibility, visibilities),
	}
}

// minutes returns nil for zero, which stands for no limit.
func minutes(n int32) *durationpb.Duration {
	if n == 0 {
		return nil
	}
	return durationpb.New(time.Duration(n) * time.Minute)
}

// identities returns the user-assigned identities by lower-case ARM ID, or nil.
func identities(identity *hub.Identity) map[string]*clusterservicev1.UserAssignedIdentity {
	if identity == nil || len(identity.UserAssigned) == 0 {
		return nil
	}
	found := make(map[string]*clusterservicev1.UserAssignedIdentity, len(identity.UserAssigned))
	for id, assigned := range identity.UserAssigned {
		found[hub.Key(id)] = &clusterservicev1.UserAssignedIdentity{ClientId: assigned.ClientID, PrincipalId: assigned.PrincipalID}
	}
	return found
}
