package validation

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// ClusterChange is a requested change of a cluster.
type ClusterChange struct {
	New *hub.Cluster
	// Old is the stored cluster; nil for a new one.
	Old *hub.Cluster
	// ActiveVersions are the versions that the control plane runs; empty before it runs any.
	ActiveVersions []string
	Subscription   *hub.Subscription
}

// Cluster returns all violations of a change.
func (r *Rules) Cluster(change ClusterChange) []apierror.Violation {
	now := func(report *report) { r.cluster(report, change.New, change.Subscription) }
	if change.Old == nil {
		found := validate(now, nil)
		r.offeredVersion(found, change)
		return found.violations()
	}
	found := validate(now, func(report *report) { r.cluster(report, change.Old, change.Subscription) })
	found.location(change.Old.Location, change.New.Location)
	// A changed value can violate its own rule too. As in the published service, both are reported.
	r.clusterVersionStep(found, change)
	r.offeredVersion(found, change)
	clusterImmutable(immutable{found}, change.Old, change.New)
	return found.violations()
}

// cluster validates a cluster on its own, without the stored one.
func (r *Rules) cluster(report *report, cluster *hub.Cluster, subscription *hub.Subscription) {
	assigned := r.resource(report, &cluster.Resource)
	p := &cluster.Properties
	r.clusterVersion(report, &p.Version, subscription)

	if prefix := p.DNS.BaseDomainPrefix; len(prefix) > 15 {
		report.tooLong("properties.dns.baseDomainPrefix", prefix, 15)
	} else if prefix != "" && !isDNSLabel(prefix) {
		// A new cluster without a prefix gets one, and the change to none is forbidden.
		report.invalid("properties.dns.baseDomainPrefix", prefix,
			"must consist of lower-case letters, digits and '-', start with a letter and end with a letter or digit")
	}
	network(report, &p.Network)
	authorizedCIDRs(report, p.API.AuthorizedCIDRs)
	platform(report, cluster)
	r.operatorIdentities(report, cluster, assigned)
	exactRelease(report, cluster)

	const autoscaling = "properties.autoscaling."
	report.between(autoscaling+"maxNodesTotal", p.Autoscaling.MaxNodesTotal, 0, 500)
	report.requiredBetween(autoscaling+"maxPodGracePeriodSeconds", p.Autoscaling.MaxPodGracePeriodSeconds, 1, -1)
	report.requiredBetween(autoscaling+"maxNodeProvisionTimeSeconds", p.Autoscaling.MaxNodeProvisionTimeSeconds, 1, -1)
	if p.Autoscaling.PodPriorityThreshold == 0 {
		report.required(autoscaling + "podPriorityThreshold")
	}

	dataEncryption(report, &p.Etcd.DataEncryption)
	imageDigestMirrors(report, p.ImageDigestMirrors)
	report.between("properties.nodeDrainTimeoutMinutes", p.NodeDrainTimeoutMinutes, 0, 10080)
}

func requiredText(report *report, field, value string) {
	if value == "" {
		report.required(field)
	}
}

func network(report *report, n *hub.Network) {
	report.requiredBetween("properties.network.hostPrefix", n.HostPrefix, 23, 26)
	ranges := [...]struct {
		field, text string
	}{
		{"properties.network.machineCidr", n.MachineCIDR},
		{"properties.network.serviceCidr", n.ServiceCIDR},
		{"properties.network.podCidr", n.PodCIDR},
	}
	var prefixes [len(ranges)]netip.Prefix
	for i, one := range ranges {
		if one.text == "" {
			report.required(one.field)
			continue
		}
		prefix, message := parseCIDR(one.text)
		if message != "" {
			report.invalid(one.field, one.text, "%s", message)
			continue
		}
		prefixes[i] = prefix
		for j := range i {
			if prefixes[j].IsValid() && prefixes[j].Overlaps(prefix) {
				name := func(field string) string { return strings.TrimPrefix(field, "properties.network.") }
				report.invalid("properties.network", one.text, "%s must not overlap with %s %s", name(one.field), name(ranges[j].field), ranges[j].text)
			}
		}
	}
	// The network operator of a cluster refuses a network without a subnet for a node.
	if pods := prefixes[2]; pods.IsValid() && n.HostPrefix >= 23 && pods.Bits() > int(n.HostPrefix) {
		report.invalid("properties.network.podCidr", n.PodCIDR, "must have room for the subnet of a node, a /%d", n.HostPrefix)
	}
	// The API server requires 8 addresses, and the tenth one is that of the cluster's DNS.
	if services := prefixes[1]; services.IsValid() && services.Bits() > maxServiceBits {
		report.invalid("properties.network.serviceCidr", n.ServiceCIDR, "must be at least a /%d", maxServiceBits)
	}
}

// maxServiceBits is the longest prefix of a network of Services.
const maxServiceBits = 28

func authorizedCIDRs(report *report, cidrs []string) {
	const field = "properties.api.authorizedCidrs"
	if cidrs == nil {
		return
	}
	if len(cidrs) == 0 {
		report.invalid(field, "[]", "must have at least one item; leave it out to allow all addresses")
	}
	if report.tooMany(field, len(cidrs), hub.MaxAuthorizedCIDRs) {
		return
	}
	for i, cidr := range cidrs {
		if cidr == "" {
			report.required(fmt.Sprintf("%s[%d]", field, i))
		} else if _, message := parseCIDR(cidr); message == "" {
			continue
		} else if addr, err := netip.ParseAddr(cidr); err != nil || !addr.Is4() {
			report.invalid(fmt.Sprintf("%s[%d]", field, i), cidr, "%s", message)
		}
	}
}

func platform(report *report, cluster *hub.Cluster) {
	const prefix = "properties.platform."
	p := &cluster.Properties.Platform
	if group := p.ManagedResourceGroup; group == "" {
		report.required(prefix + "managedResourceGroup")
	} else if !isManagedGroupName(group) {
		report.invalid(prefix+"managedResourceGroup", group,
			"must be a valid resource group name of 2 to 90 letters, digits, '_', '-', '.', '(' and ')', not ending with '.'")
	} else if own, err := ParseID(cluster.ID); err == nil && strings.EqualFold(own.ResourceGroup, group) {
		report.invalid(prefix+"managedResourceGroup", group, "must not be the resource group of the cluster")
	}

	subnet, ok := subnetRef(report, prefix+"subnetId", p.SubnetID, cluster.ID, p.ManagedResourceGroup)
	integration, integrationOK := subnetRef(report, prefix+"vnetIntegrationSubnetId", p.VnetIntegrationSubnetID, cluster.ID, p.ManagedResourceGroup)
	if ok && integrationOK {
		field := prefix + "vnetIntegrationSubnetId"
		switch {
		case strings.EqualFold(p.SubnetID, p.VnetIntegrationSubnetID):
			report.invalid(field, p.VnetIntegrationSubnetID, "must not be the subnet of subnetId")
		case !strings.EqualFold(subnet.Parent, integration.Parent):
			report.invalid(field, p.VnetIntegrationSubnetID, "must be in the virtual network of subnetId")
		}
	}
	if _, ok := resourceRef(report, prefix+"networkSecurityGroupId", p.NetworkSecurityGroupID, "Microsoft.Network/networkSecurityGroups",
		cluster.ID, p.ManagedResourceGroup); ok && len(p.NetworkSecurityGroupID) > maxGroupOrNetworkID {
		report.tooLong(prefix+"networkSecurityGroupId", p.NetworkSecurityGroupID, maxGroupOrNetworkID)
	}
}

// maxMirrorBytes bounds the total size of all repositories, because one message to the management cluster contains them.
const maxMirrorBytes = 128 << 10

func imageDigestMirrors(report *report, mirrors []hub.ImageDigestMirror) {
	const field = "properties.imageDigestMirrors"
	if report.tooMany(field, len(mirrors), hub.MaxImageDigestMirrors) {
		return
	}
	size := 0
	for i, mirror := range mirrors {
		size += len(mirror.Source)
		for _, name := range mirror.Mirrors {
			size += len(name)
		}
		source := mirror.Source
		if host, wildcard := strings.CutPrefix(source, "*."); wildcard && isSubdomain(host) && len(source) <= 255 {
			// A wildcard stands for all hosts of a domain. It has neither a port nor a path.
			source = host
		}
		repository(report, func() string { return fmt.Sprintf("%s[%d].source", field, i) }, source)
		switch {
		case mirror.Mirrors == nil:
			report.required(fmt.Sprintf("%s[%d].mirrors", field, i))
		case len(mirror.Mirrors) == 0:
			report.invalid(fmt.Sprintf("%s[%d].mirrors", field, i), "[]", "must have at least one item")
		}
		if len(mirror.Mirrors) > hub.MaxMirrors && report.tooMany(fmt.Sprintf("%s[%d].mirrors", field, i), len(mirror.Mirrors), hub.MaxMirrors) {
			continue
		}
		for j, name := range mirror.Mirrors {
			if report.full() {
				return
			}
			repository(report, func() string { return fmt.Sprintf("%s[%d].mirrors[%d]", field, i, j) }, name)
		}
	}
	if size > maxMirrorBytes {
		report.invalid(field, fmt.Sprintf("%d bytes", size), "all repositories together must have no more than %d bytes", maxMirrorBytes)
	}
}

func repository(report *report, field func() string, name string) {
	switch {
	case name == "":
		report.required(field())
	case len(name) > 255:
		report.tooLong(field(), name, 255)
	case strings.Contains(name, "://"):
		report.invalid(field(), name, "must not have a scheme")
	case !isRepository(name):
		report.invalid(field(), name, "must be an image repository in lower case, without a tag or digest, as in quay.io/organization/name")
	}
}

// clusterImmutable reports the changes of create-only fields. As in the published service, a change within the network, the
// platform or the image registry is also reported at these objects. A required number or name that is missing is only that.
func clusterImmutable(i immutable, old, now *hub.Cluster) {
	o, n := &old.Properties, &now.Properties
	i.text("properties.dns.baseDomainPrefix", o.DNS.BaseDomainPrefix, n.DNS.BaseDomainPrefix)
	i.within("properties.network", func() {
		i.text("properties.network.networkType", o.Network.NetworkType, n.Network.NetworkType)
		i.text("properties.network.podCidr", o.Network.PodCIDR, n.Network.PodCIDR)
		i.text("properties.network.serviceCidr", o.Network.ServiceCIDR, n.Network.ServiceCIDR)
		i.text("properties.network.machineCidr", o.Network.MachineCIDR, n.Network.MachineCIDR)
		i.value("properties.network.hostPrefix", o.Network.HostPrefix == n.Network.HostPrefix || n.Network.HostPrefix == 0, n.Network.HostPrefix)
	})
	i.text("properties.api.visibility", string(o.API.Visibility), string(n.API.Visibility))
	i.text("properties.ingress.type", string(o.Ingress.Type), string(n.Ingress.Type))
	i.within("properties.clusterImageRegistry", func() {
		i.text("properties.clusterImageRegistry.state", o.ClusterImageRegistry.State, n.ClusterImageRegistry.State)
	})
	i.text("properties.cryptoRestrictions", o.CryptoRestrictions, n.CryptoRestrictions)

	const platform = "properties.platform."
	i.within("properties.platform", func() {
		i.text(platform+"managedResourceGroup", o.Platform.ManagedResourceGroup, n.Platform.ManagedResourceGroup)
		i.text(platform+"outboundType", o.Platform.OutboundType, n.Platform.OutboundType)
		i.id(platform+"subnetId", o.Platform.SubnetID, n.Platform.SubnetID)
		if n.Platform.VnetIntegrationSubnetID != "" {
			i.id(platform+"vnetIntegrationSubnetId", o.Platform.VnetIntegrationSubnetID, n.Platform.VnetIntegrationSubnetID)
		}
		i.id(platform+"networkSecurityGroupId", o.Platform.NetworkSecurityGroupID, n.Platform.NetworkSecurityGroupID)
		i.within(platform+"operatorsAuthentication", func() {
			i.within(platform+"operatorsAuthentication.userAssignedIdentities", func() {
				oldIDs, newIDs := &o.Platform.OperatorsAuthentication.UserAssignedIdentities, &n.Platform.OperatorsAuthentication.UserAssignedIdentities
				i.ids(operatorsField+"controlPlaneOperators", oldIDs.ControlPlaneOperators, newIDs.ControlPlaneOperators)
				i.ids(operatorsField+"dataPlaneOperators", oldIDs.DataPlaneOperators, newIDs.DataPlaneOperators)
				i.id(operatorsField+"serviceManagedIdentity", oldIDs.ServiceManagedIdentity, newIDs.ServiceManagedIdentity)
			})
		})
	})

	const encryption = "properties.etcd.dataEncryption."
	oldEtcd, newEtcd := &o.Etcd.DataEncryption, &n.Etcd.DataEncryption
	i.text(encryption+"keyManagementMode", oldEtcd.KeyManagementMode, newEtcd.KeyManagementMode)
	if oldEtcd.CustomerManaged == nil || newEtcd.CustomerManaged == nil {
		return
	}
	i.text(encryption+"customerManaged.encryptionType", oldEtcd.CustomerManaged.EncryptionType, newEtcd.CustomerManaged.EncryptionType)
	oldKMS, newKMS := oldEtcd.CustomerManaged.KMS, newEtcd.CustomerManaged.KMS
	if oldKMS == nil || newKMS == nil {
		return
	}
	const kms = encryption + "customerManaged.kms."
	i.text(kms+"vaultName", oldKMS.VaultName, newKMS.VaultName)
	i.text(kms+"visibility", string(oldKMS.Visibility), string(newKMS.Visibility))
	i.text(kms+"activeKey.name", oldKMS.ActiveKey.Name, newKMS.ActiveKey.Name)
}
