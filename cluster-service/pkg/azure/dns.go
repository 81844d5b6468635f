package azure

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

const (
	recordTTL = 300
	// factServers holds the zone's name servers, with commas.
	factServers = "nameServers"
)

// zone is the domain of what runs in the cluster.
func (a *attempt) zone() string {
	return a.Region.ClusterDomain(a.cluster.Status.GetBaseDomainPrefix())
}

func (a *attempt) makeZone(ctx context.Context) error {
	platform := a.cluster.Spec.GetPlatform()
	zones, err := a.Clients.Zones(platform.GetSubscriptionId())
	if err != nil {
		return err
	}
	found, err := zones.Get(ctx, platform.GetManagedResourceGroup(), a.zone(), nil)
	zone := found.Zone
	if gone(err) {
		var made armdns.ZonesClientCreateOrUpdateResponse
		made, err = zones.CreateOrUpdate(ctx, platform.GetManagedResourceGroup(), a.zone(),
			armdns.Zone{Location: to.Ptr("global"), Tags: map[string]*string{ownerTag: to.Ptr(a.cluster.UID)}}, nil)
		zone = made.Zone
	}
	if err != nil {
		return err
	}
	var servers []string
	if zone.Properties != nil {
		for _, s := range zone.Properties.NameServers {
			servers = append(servers, *s)
		}
	}
	if len(servers) == 0 {
		return fmt.Errorf("the zone %s has no name servers", a.zone())
	}
	a.outcome.Facts = map[string]string{factServers: strings.Join(servers, ",")}
	a.done()
	return nil
}

func (a *attempt) removeZone(ctx context.Context) error {
	platform := a.cluster.Spec.GetPlatform()
	zones, err := a.Clients.Zones(platform.GetSubscriptionId())
	if err != nil {
		return err
	}
	found, err := zones.Get(ctx, platform.GetManagedResourceGroup(), a.zone(), nil)
	if gone(err) || err == nil && (found.Tags[ownerTag] == nil || *found.Tags[ownerTag] != a.cluster.UID) {
		a.done()
		return nil
	}
	if err != nil {
		return err
	}
	response, err := captured(ctx, func(ctx context.Context) (*runtime.Poller[armdns.ZonesClientDeleteResponse], error) {
		return zones.BeginDelete(ctx, platform.GetManagedResourceGroup(), a.zone(), nil)
	})
	switch {
	case gone(err):
		a.done()
		return nil
	case err != nil:
		return err
	case underWay(response):
		a.await("Azure to delete the DNS zone "+a.zone(), response)
		return nil
	}
	a.done()
	return nil
}

// relative is a name in the region's zone.
func (a *attempt) relative(name string) string {
	return strings.TrimSuffix(name, "."+a.Region.BaseDomain)
}

func (a *attempt) makeDelegation(ctx context.Context) error {
	var servers []*armdns.NsRecord
	for s := range strings.SplitSeq(a.servers, ",") {
		servers = append(servers, &armdns.NsRecord{Nsdname: to.Ptr(s)})
	}
	return a.putRecord(ctx, a.relative(a.zone()), armdns.RecordTypeNS, &armdns.RecordSetProperties{NsRecords: servers})
}

func (a *attempt) removeDelegation(ctx context.Context) error {
	return a.removeRecords(ctx, a.relative(a.zone()), armdns.RecordTypeNS)
}

func (a *attempt) apiName() string {
	return a.relative(a.Region.APIHost(a.cluster.Status.GetBaseDomainPrefix()))
}

func (a *attempt) makeAPIRecord(ctx context.Context) error { return a.point(ctx, a.apiName()) }

func (a *attempt) removeAPIRecord(ctx context.Context) error {
	return a.removeRecords(ctx, a.apiName(), armdns.RecordTypeA, armdns.RecordTypeCNAME)
}

func (a *attempt) serviceNames() (names []string) {
	for _, service := range fleet.Services() {
		names = append(names, a.relative(a.Region.ServiceHost(service, a.cluster.Status.GetBaseDomainPrefix())))
	}
	return names
}

// makeServiceRecords has the names of the control plane's services lead where the API's does: one ingress is in front of all.
func (a *attempt) makeServiceRecords(ctx context.Context) error {
	for _, name := range a.serviceNames() {
		try := a.point
		// A HostedCluster may report one of these names as its endpoint: whoever runs the ingress made its record then.
		if strings.EqualFold(name, a.relative(a.outcome.Input)) {
			try = func(ctx context.Context, name string) error {
				return a.removeRecords(ctx, name, armdns.RecordTypeA, armdns.RecordTypeCNAME)
			}
		}
		if err := try(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) removeServiceRecords(ctx context.Context) error {
	for _, name := range a.serviceNames() {
		if err := a.removeRecords(ctx, name, armdns.RecordTypeA, armdns.RecordTypeCNAME); err != nil {
			return err
		}
	}
	return nil
}

// point has a name lead to the HostedCluster's endpoint: an address, or a name.
func (a *attempt) point(ctx context.Context, name string) error {
	host := a.outcome.Input
	kind, other := armdns.RecordTypeCNAME, armdns.RecordTypeA
	properties := &armdns.RecordSetProperties{CnameRecord: &armdns.CnameRecord{Cname: to.Ptr(host)}}
	if address, err := netip.ParseAddr(host); err == nil && address.Is4() {
		kind, other = other, kind
		properties = &armdns.RecordSetProperties{ARecords: []*armdns.ARecord{{IPv4Address: to.Ptr(host)}}}
	}
	// A canonical name stands alone: an endpoint that was an address may have become a name, and the other way round.
	if a.step.Input != "" {
		if err := a.removeRecords(ctx, name, other); err != nil {
			return err
		}
	}
	return a.putRecord(ctx, name, kind, properties)
}

func (a *attempt) records() (RecordSets, error) { return a.Clients.RecordSets(a.Config.SubscriptionID) }

// putRecord writes a record set in the region's zone. A name there is one cluster's at a time, by its prefix.
func (a *attempt) putRecord(ctx context.Context, name string, kind armdns.RecordType, properties *armdns.RecordSetProperties) error {
	records, err := a.records()
	if err != nil {
		return err
	}
	properties.TTL, properties.Metadata = to.Ptr[int64](recordTTL), map[string]*string{ownerTag: to.Ptr(a.cluster.UID)}
	_, err = records.CreateOrUpdate(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, armdns.RecordSet{Properties: properties}, nil)
	if err == nil {
		a.done()
	}
	return err
}

// removeRecords removes the record sets of a name that are this cluster's.
func (a *attempt) removeRecords(ctx context.Context, name string, kinds ...armdns.RecordType) error {
	records, err := a.records()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		found, err := records.Get(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, nil)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if owner := found.Properties.Metadata[ownerTag]; owner == nil || *owner != a.cluster.UID {
			continue
		}
		if _, err := records.Delete(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, nil); err != nil && !gone(err) {
			return err
		}
	}
	a.done()
	return nil
}

// serversOf are the name servers that the zone's step learnt.
func serversOf(azure *fleet.Azure) string {
	if s := azure.Step(fleet.AzureDNSZone); s != nil {
		return s.Facts[factServers]
	}
	return ""
}
