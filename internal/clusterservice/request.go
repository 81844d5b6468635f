package clusterservice

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ClusterRequest translates a cluster into the request that brings Cluster Service to its generation. It is pure: the
// same document makes the same request in every service.
func ClusterRequest(document *database.ClusterDocument) (*clusterservicev1.ApplyClusterRequest, error) {
	cluster := &document.Cluster
	subscription, group, err := scopeOf(cluster.ID)
	if err != nil {
		return nil, err
	}
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
		Api:                  &clusterservicev1.Api{Visibility: visibility(p.API.Visibility), AuthorizedCidrs: p.API.AuthorizedCIDRs},
		Ingress:              &clusterservicev1.Ingress{Visibility: visibility(p.Ingress.Type)},
		Platform:             platform(&p.Platform, subscription, group),
		Autoscaling:          autoscaling(&p.Autoscaling),
		Etcd:                 &clusterservicev1.Etcd{KmsKey: kmsKey(&p.Etcd)},
		NodeDrainTimeout:     minutes(p.NodeDrainTimeoutMinutes),
		ImageRegistryEnabled: p.ClusterImageRegistry.State != "Disabled",
		Fips:                 p.CryptoRestrictions == "FIPS",
		Experiments:          experiments(cluster.Tags),
		Identities:           identities(cluster.Identity),
		IdentityUrl:          document.IdentityURL,
	}
	for _, mirror := range p.ImageDigestMirrors {
		spec.ImageDigestMirrors = append(spec.ImageDigestMirrors, &clusterservicev1.ImageDigestMirror{Source: mirror.Source, Mirrors: mirror.Mirrors})
	}
	return &clusterservicev1.ApplyClusterRequest{
		Uid: document.UID, ResourceId: cluster.ID, Generation: document.Generation, Spec: spec, Recovery: recoveryRequest(document.Fleet.Recovery),
	}, nil
}

// DeleteClusterRequest asks for the deletion of the document's incarnation.
func DeleteClusterRequest(document *database.ClusterDocument) *clusterservicev1.DeleteClusterRequest {
	return &clusterservicev1.DeleteClusterRequest{Uid: document.UID, ResourceId: document.Cluster.ID}
}

// NodePoolRequest translates a node pool; see ClusterRequest.
func NodePoolRequest(document *database.NodePoolDocument) *clusterservicev1.ApplyNodePoolRequest {
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
				Ephemeral:          p.Platform.OSDisk.DiskType == "Ephemeral",
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
		// A pool's zero is not the cluster's absence: it waits for ever whatever the cluster says.
		spec.NodeDrainTimeout = durationpb.New(time.Duration(*p.NodeDrainTimeoutMinutes) * time.Minute)
	}
	return &clusterservicev1.ApplyNodePoolRequest{
		Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.NodePool.ID, Generation: document.Generation, Spec: spec,
	}
}

// DeleteNodePoolRequest asks for the deletion of the document's incarnation.
func DeleteNodePoolRequest(document *database.NodePoolDocument) *clusterservicev1.DeleteNodePoolRequest {
	return &clusterservicev1.DeleteNodePoolRequest{Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.NodePool.ID}
}

// scopeOf takes the subscription and the resource group from an ARM id.
func scopeOf(id string) (subscription, group string, err error) {
	parts := strings.Split(id, "/")
	if len(parts) < 6 || !strings.EqualFold(parts[1], "subscriptions") || !strings.EqualFold(parts[3], "resourceGroups") {
		return "", "", fmt.Errorf("%q is not the ARM id of a resource in a resource group", id)
	}
	return parts[2], parts[4], nil
}

// canonicalSegments are those of ARM ids that are no names, by lower case.
var canonicalSegments = map[string]string{
	"subscriptions": "subscriptions", "resourcegroups": "resourceGroups", "providers": "providers",
	"microsoft.network": "Microsoft.Network", "virtualnetworks": "virtualNetworks", "subnets": "subnets",
	"networksecuritygroups": "networkSecurityGroups",
	"microsoft.compute":     "Microsoft.Compute", "diskencryptionsets": "diskEncryptionSets",
}

// canonicalID writes the types of an ARM id as Azure does, and leaves the names. ARM takes ids in any casing; HyperShift's
// rules for them do not.
func canonicalID(id string) string {
	parts := strings.Split(id, "/")
	for i, part := range parts {
		// Names stand at the even places, but for the provider's namespace.
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

func visibility(v hub.Visibility) clusterservicev1.Visibility {
	switch v {
	case hub.Public:
		return clusterservicev1.Visibility_VISIBILITY_PUBLIC
	case hub.Private:
		return clusterservicev1.Visibility_VISIBILITY_PRIVATE
	}
	return clusterservicev1.Visibility_VISIBILITY_UNSPECIFIED
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

func kmsKey(e *hub.Etcd) *clusterservicev1.KmsKey {
	customer := e.DataEncryption.CustomerManaged
	if customer == nil || customer.KMS == nil {
		return nil
	}
	return &clusterservicev1.KmsKey{
		VaultName:       customer.KMS.VaultName,
		KeyName:         customer.KMS.ActiveKey.Name,
		KeyVersion:      customer.KMS.ActiveKey.Version,
		VaultVisibility: visibility(customer.KMS.Visibility),
	}
}

// minutes leaves out zero, which means to wait for ever.
func minutes(n int32) *durationpb.Duration {
	if n == 0 {
		return nil
	}
	return durationpb.New(time.Duration(n) * time.Minute)
}

func experiments(tags map[string]string) map[string]string {
	var found map[string]string
	for name, value := range tags {
		if !experiment.Is(name) {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[name] = value
	}
	return found
}

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
