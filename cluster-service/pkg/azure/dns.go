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
	// factServers is the fact of the zone's step with the zone's name servers, separated by commas.
	factServers = "nameServers"
)

// zone returns the domain of the applications in the cluster.
func (a *attempt) zone() string {
	return a.Region.ClusterDomain(a.cluster.Status.GetBaseDomainPrefix())
}

func (a *attempt) createZone(ctx context.Context) error {
	platform := a.cluster.Spec.GetPlatform()
	zones, err := a.Clients.Zones(platform.GetSubscriptionId())
	if err != nil {
		return err
	}
	found, err := zones.Get(ctx, platform.GetManagedResourceGroup(), a.zone(), nil)
	zone := found.Zone
	if isNotFound(err) {
		var created armdns.ZonesClientCreateOrUpdateResponse
		created, err = zones.CreateOrUpdate(ctx, platform.GetManagedResourceGroup(), a.zone(),
			armdns.Zone{Location: to.Ptr("global"), Tags: map[string]*string{ownerTag: to.Ptr(a.cluster.UID)}}, nil)
		zone = created.Zone
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
	owned := false
	switch uid := owner(found.Tags); {
	case isNotFound(err):
	case err != nil:
		return err
	case uid == "": // the owner of the group is that of the zone
		groups, name, err := a.managedGroup()
		if err != nil {
			return err
		}
		if owned, err = a.groupExists(ctx, groups, name); err != nil {
			return err
		}
	default:
		owned = uid == a.cluster.UID
	}
	if !owned {
		a.done()
		return nil
	}
	response, err := withResponse(ctx, func(ctx context.Context) (*runtime.Poller[armdns.ZonesClientDeleteResponse], error) {
		return zones.BeginDelete(ctx, platform.GetManagedResourceGroup(), a.zone(), nil)
	})
	switch {
	case isNotFound(err):
		a.done()
		return nil
	case err != nil:
		return err
	case isAccepted(response):
		a.await("Azure to delete the DNS zone "+a.zone(), response)
		return nil
	}
	a.done()
	return nil
}

// relative returns a name relative to the region's zone.
func (a *attempt) relative(name string) string {
	return strings.TrimSuffix(name, "."+a.Region.BaseDomain)
}

func (a *attempt) createDelegation(ctx context.Context) error {
	var servers []*armdns.NsRecord
	for s := range strings.SplitSeq(a.servers, ",") {
		servers = append(servers, &armdns.NsRecord{Nsdname: to.Ptr(s)})
	}
	return a.finish(a.putRecord(ctx, a.relative(a.zone()), armdns.RecordTypeNS, &armdns.RecordSetProperties{NsRecords: servers}))
}

func (a *attempt) removeDelegation(ctx context.Context) error {
	return a.finish(a.removeRecords(ctx, a.relative(a.zone()), armdns.RecordTypeNS))
}

func (a *attempt) apiName() string {
	return a.relative(a.Region.APIHost(a.cluster.Status.GetBaseDomainPrefix()))
}

func (a *attempt) createAPIRecord(ctx context.Context) error {
	return a.finish(a.putEndpoint(ctx, a.apiName()))
}

func (a *attempt) removeAPIRecord(ctx context.Context) error {
	return a.finish(a.removeRecords(ctx, a.apiName(), armdns.RecordTypeA, armdns.RecordTypeCNAME))
}

func (a *attempt) serviceNames() (names []string) {
	for _, service := range fleet.Services() {
		names = append(names, a.relative(a.Region.ServiceHost(service, a.cluster.Status.GetBaseDomainPrefix())))
	}
	return names
}

// createServiceRecords points the names of the control plane's services to the endpoint of the API, because one ingress serves
// all of them.
func (a *attempt) createServiceRecords(ctx context.Context) error {
	return a.finish(concurrently(a.serviceNames(), func(name string) error {
		// A HostedCluster may report one of these names as its endpoint. Then the operator of the ingress owns its record.
		if strings.EqualFold(name, a.relative(a.outcome.Input)) {
			return a.removeRecords(ctx, name, armdns.RecordTypeA, armdns.RecordTypeCNAME)
		}
		return a.putEndpoint(ctx, name)
	}))
}

func (a *attempt) removeServiceRecords(ctx context.Context) error {
	return a.finish(concurrently(a.serviceNames(), func(name string) error {
		return a.removeRecords(ctx, name, armdns.RecordTypeA, armdns.RecordTypeCNAME)
	}))
}

// putEndpoint points a name to the HostedCluster's endpoint, which is an IPv4 address or a name.
func (a *attempt) putEndpoint(ctx context.Context, name string) error {
	host := a.outcome.Input
	kind, other := armdns.RecordTypeCNAME, armdns.RecordTypeA
	properties := &armdns.RecordSetProperties{CnameRecord: &armdns.CnameRecord{Cname: to.Ptr(host)}}
	if address, err := netip.ParseAddr(host); err == nil && address.Is4() {
		kind, other = other, kind
		properties = &armdns.RecordSetProperties{ARecords: []*armdns.ARecord{{IPv4Address: to.Ptr(host)}}}
	}
	// DNS allows no other record beside a CNAME, so a record of the other type is removed when the endpoint changes its kind.
	if a.step.Input != "" {
		if err := a.removeRecords(ctx, name, other); err != nil {
			return err
		}
	}
	return a.putRecord(ctx, name, kind, properties)
}

func (a *attempt) records() (RecordSets, error) { return a.Clients.RecordSets(a.Config.SubscriptionID) }

// putRecord writes a record set in the region's zone. Prefixes are unique, so a name belongs to one cluster at a time.
func (a *attempt) putRecord(ctx context.Context, name string, kind armdns.RecordType, properties *armdns.RecordSetProperties) error {
	records, err := a.records()
	if err != nil {
		return err
	}
	properties.TTL, properties.Metadata = to.Ptr[int64](recordTTL), map[string]*string{ownerTag: to.Ptr(a.cluster.UID)}
	_, err = records.CreateOrUpdate(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, armdns.RecordSet{Properties: properties}, nil)
	return err
}

// removeRecords deletes the record sets of a name that this cluster owns.
func (a *attempt) removeRecords(ctx context.Context, name string, kinds ...armdns.RecordType) error {
	records, err := a.records()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		found, err := records.Get(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, nil)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if owner(found.Properties.Metadata) != a.cluster.UID {
			continue
		}
		if _, err := records.Delete(ctx, a.Config.ResourceGroup, a.Region.BaseDomain, name, kind, nil); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}

// nameServers returns the name servers that the zone's step stored, separated by commas.
func nameServers(azure *fleet.Azure) string {
	if s := azure.Step(fleet.AzureDNSZone); s != nil {
		return s.Facts[factServers]
	}
	return ""
}
