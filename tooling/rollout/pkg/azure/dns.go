package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// delegationTTL is the time in seconds for which resolvers keep the names of the name servers.
const delegationTTL = 3600

// DNSDelegation writes the name servers of a zone into its parent zone.
type DNSDelegation struct{ Connection }

type delegation struct {
	ParentSubscription  string `json:"parentSubscription"`
	ParentResourceGroup string `json:"parentResourceGroup"`
	ParentZone          string `json:"parentZone"`
	Subscription        string `json:"subscription"`
	ResourceGroup       string `json:"resourceGroup"`
	Zone                string `json:"zone"`
}

// Run delegates the zone. Both zones must exist.
func (a DNSDelegation) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	var with delegation
	if err := action.Decode(r, &with); err != nil {
		return nil, err
	}
	name, isChild := strings.CutSuffix(with.Zone, "."+with.ParentZone)
	if !isChild {
		return nil, fmt.Errorf("%s is not within the zone %s", with.Zone, with.ParentZone)
	}
	zones, err := armdns.NewZonesClient(with.Subscription, a.Credential, a.Options)
	if err != nil {
		return nil, err
	}
	records, err := armdns.NewRecordSetsClient(with.ParentSubscription, a.Credential, a.Options)
	if err != nil {
		return nil, err
	}
	zone, err := zones.Get(ctx, with.ResourceGroup, with.Zone, nil)
	if err != nil {
		return nil, classified("reading the zone "+with.Zone, err)
	}
	if zone.Properties == nil || len(zone.Properties.NameServers) == 0 {
		return nil, &action.Error{Class: action.Unavailable, Err: fmt.Errorf("the zone %s has no name servers yet", with.Zone)}
	}
	want := texts(zone.Properties.NameServers)
	found, err := records.Get(ctx, with.ParentResourceGroup, with.ParentZone, name, armdns.RecordTypeNS, nil)
	if err != nil && !isNotFound(err) {
		return nil, classified("reading the delegation of "+with.Zone, err)
	}
	if err == nil && slices.Equal(nameServers(found.RecordSet), want) {
		fmt.Fprintf(r.Log, "%s is delegated to %s already\n", with.Zone, strings.Join(want, ", "))
		return nil, nil
	}
	set := armdns.RecordSet{Properties: &armdns.RecordSetProperties{TTL: to.Ptr[int64](delegationTTL)}}
	for _, server := range want {
		set.Properties.NsRecords = append(set.Properties.NsRecords, &armdns.NsRecord{Nsdname: to.Ptr(server)})
	}
	options := &armdns.RecordSetsClientCreateOrUpdateOptions{IfMatch: found.Etag}
	if isNotFound(err) {
		options = &armdns.RecordSetsClientCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")}
	}
	if _, err := records.CreateOrUpdate(ctx, with.ParentResourceGroup, with.ParentZone, name, armdns.RecordTypeNS, set, options); err != nil {
		return nil, classified("delegating "+with.Zone, err)
	}
	fmt.Fprintf(r.Log, "delegated %s to %s\n", with.Zone, strings.Join(want, ", "))
	return nil, nil
}

// nameServers returns the sorted name servers of a record set.
func nameServers(set armdns.RecordSet) []string {
	var servers []*string
	if set.Properties != nil {
		for _, record := range set.Properties.NsRecords {
			servers = append(servers, record.Nsdname)
		}
	}
	return texts(servers)
}

// texts returns sorted texts without those that are nil.
func texts(pointers []*string) []string {
	var all []string
	for _, p := range pointers {
		if p != nil {
			all = append(all, *p)
		}
	}
	slices.Sort(all)
	return all
}
