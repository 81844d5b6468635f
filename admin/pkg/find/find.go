// Package find finds clusters by whatever somebody has in hand: the ARM resource id, the name, the uid, the id below ARM, a
// namespace on the management cluster, the API server's host, or the subscription. Cluster Service is asked for the fleet,
// and Cosmos DB for what has not reached it.
package find

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// page is how many clusters Cluster Service is asked for at a time.
const page = 500

// MostFound is how many clusters a search returns at most; who finds more should say more.
const MostFound = 200

// Fleet is the part of Cluster Service's API that is searched.
type Fleet interface {
	GetCluster(ctx context.Context, r *clusterservicev1.GetClusterRequest, options ...grpc.CallOption) (*clusterservicev1.Cluster, error)
	ListClusters(ctx context.Context, r *clusterservicev1.ListClustersRequest, options ...grpc.CallOption) (*clusterservicev1.ListClustersResponse, error)
}

// Finder finds clusters.
type Finder struct {
	db    *database.DB
	fleet Fleet
	// environment is part of namespaces on management clusters.
	environment string
}

// New makes a Finder.
func New(db *database.DB, fleet Fleet, environment string) *Finder {
	return &Finder{db: db, fleet: fleet, environment: environment}
}

var (
	uuidForm = regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	// nameForm is a cluster's name in ARM.
	nameForm = regexp.MustCompile(`^[a-zA-Z][-a-zA-Z0-9]{2,53}$`)
	// clusterIDForm is a cluster's id below ARM, alone or within the name of a namespace or of a work.
	clusterIDForm = regexp.MustCompile(`(?:^|-)([0-9a-v]{32})(?:-|$)`)
)

// Find returns the clusters that a text means, by resource id; none is an empty list.
func (f *Finder) Find(ctx context.Context, text string) ([]adminv1.Cluster, error) {
	text = strings.TrimSpace(text)
	found := map[string]adminv1.Cluster{}
	if strings.HasPrefix(text, "/") {
		return f.byResourceID(ctx, strings.TrimSuffix(text, "/"))
	}
	failed := f.fleetMatches(ctx, text, nil, found)
	// What the fleet does not know yet, or no longer, ARM may; and what either knows is wanted most when the other is away.
	if clusterIDForm.FindString(text) == "" {
		failed = cmp.Or(failed, f.documentMatches(ctx, text, found))
	}
	if len(found) == 0 && failed != nil {
		return nil, failed
	}
	if len(found) == 0 {
		if err := f.fleetMatches(ctx, text, deleted, found); err != nil {
			return nil, err
		}
	}
	return sorted(found), nil
}

// deleted are the clusters that Cluster Service remembers for a while. They are meant when no other is.
var deleted = []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED}

// named finds a cluster by its name alone, where one cluster has it: what is asked for most, and what both stores have an
// index for. It is nil when it takes more to tell.
func (f *Finder) named(ctx context.Context, text string) (*adminv1.Cluster, error) {
	if !nameForm.MatchString(text) || clusterIDForm.MatchString(text) || uuidForm.MatchString(text) {
		return nil, nil
	}
	var items []*database.Item[database.ClusterDocument]
	err := f.db.FindClusters(ctx, text, func(item *database.Item[database.ClusterDocument]) error {
		items = append(items, item)
		return nil
	})
	if err != nil || len(items) != 1 {
		return nil, err
	}
	c, err := f.complete(ctx, items[0])
	if err != nil {
		c = ofDocument(items[0])
	}
	return &c, nil
}

// One returns the one cluster that a text means; an error of kind NotFound when there is none, and of kind Conflict when
// there are several.
func (f *Finder) One(ctx context.Context, text string) (adminv1.Cluster, error) {
	if one, err := f.named(ctx, strings.TrimSpace(text)); err == nil && one != nil {
		return *one, nil
	}
	found, err := f.Find(ctx, text)
	if err != nil {
		return adminv1.Cluster{}, err
	}
	// A name that is in use again means the cluster that has it now.
	if alive := slices.DeleteFunc(slices.Clone(found), func(c adminv1.Cluster) bool { return c.DeleteTime != nil }); len(found) > 1 && len(alive) == 1 {
		found = alive
	}
	found = newest(found)
	switch len(found) {
	case 0:
		return adminv1.Cluster{}, apierror.New(apierror.NotFound, "No cluster has the resource id, name, uid, cluster id, namespace or API host '%s'.", text)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, c := range found[:min(len(found), 5)] {
		ids = append(ids, c.ResourceID)
	}
	return adminv1.Cluster{}, apierror.New(apierror.Conflict, "%d clusters are meant by '%s', among them %s; say which by its resource id or uid.", len(found), text, strings.Join(ids, ", "))
}

// newest leaves of clusters that are all former lives of one resource id the last.
func newest(found []adminv1.Cluster) []adminv1.Cluster {
	for _, c := range found {
		if c.DeleteTime == nil || c.CreateTime == nil || !strings.EqualFold(c.ResourceID, found[0].ResourceID) {
			return found
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []adminv1.Cluster{slices.MaxFunc(found, func(a, b adminv1.Cluster) int { return a.CreateTime.Compare(*b.CreateTime) })}
}

// List returns a page of the fleet's clusters in order of uid; an empty subscription means all.
func (f *Finder) List(ctx context.Context, subscription, token string, size int) (adminv1.ClusterList, error) {
	list := adminv1.ClusterList{Items: []adminv1.Cluster{}}
	if subscription != "" {
		return f.ofSubscription(ctx, subscription, token, size)
	}
	response, err := f.fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: int32(size), PageToken: token})
	if err != nil {
		return list, apierror.FromGRPC(err)
	}
	for _, c := range response.GetClusters() {
		list.Items = append(list.Items, f.ofFleet(c))
	}
	list.NextPageToken = response.GetNextPageToken()
	return list, nil
}

// ofSubscription lists what ARM knows, with what the fleet says of it.
func (f *Finder) ofSubscription(ctx context.Context, subscription, token string, size int) (adminv1.ClusterList, error) {
	list := adminv1.ClusterList{Items: []adminv1.Cluster{}}
	items, next, err := f.db.Clusters().List(ctx, subscription, "", token, size)
	if err != nil {
		return list, err
	}
	for _, item := range items {
		c, err := f.complete(ctx, item)
		if err != nil {
			return list, err
		}
		list.Items = append(list.Items, c)
	}
	list.NextPageToken = next
	return list, nil
}

func (f *Finder) byResourceID(ctx context.Context, id string) ([]adminv1.Cluster, error) {
	key, err := database.ResourceKey(id)
	if err != nil {
		return nil, apierror.New(apierror.InvalidParameter, "'%s' is not the resource id of a cluster.", id)
	}
	found := map[string]adminv1.Cluster{}
	response, fleetErr := f.fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: page, ResourceId: id})
	for _, c := range response.GetClusters() {
		found[c.GetUid()] = f.ofFleet(c)
	}
	item, err := f.db.Clusters().Find(ctx, key)
	if item != nil && item.Removed == nil {
		f.merge(found, item)
	}
	if len(found) == 0 && fleetErr != nil {
		return nil, apierror.FromGRPC(fleetErr)
	}
	if len(found) == 0 && err != nil {
		return nil, err
	}
	if len(found) == 0 {
		response, err := f.fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: page, ResourceId: id, Phases: deleted})
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		for _, c := range response.GetClusters() {
			found[c.GetUid()] = f.ofFleet(c)
		}
	}
	return sorted(found), nil
}

// fleetMatches adds the clusters of the fleet that a text means: in some phases, or in all in which there is one.
func (f *Finder) fleetMatches(ctx context.Context, text string, phases []clusterservicev1.ClusterPhase, found map[string]adminv1.Cluster) error {
	if uuidForm.MatchString(text) {
		c, err := f.fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: text})
		if err == nil {
			found[c.GetUid()] = f.ofFleet(c)
			return nil
		}
		if err := apierror.FromGRPC(err); apierror.KindOf(err) != apierror.NotFound {
			return err
		}
	}
	for token, first := "", true; first || token != ""; first = false {
		response, err := f.fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: page, PageToken: token, Phases: phases})
		if err != nil {
			return apierror.FromGRPC(err)
		}
		for _, c := range response.GetClusters() {
			if matches(c, text) && len(found) < MostFound {
				found[c.GetUid()] = f.ofFleet(c)
			}
		}
		token = response.GetNextPageToken()
	}
	return nil
}

// matches reports whether a text means a cluster. It is pure.
func matches(c *clusterservicev1.Cluster, text string) bool {
	status := c.GetStatus()
	if id := clusterIDForm.FindStringSubmatch(strings.ToLower(text)); id != nil {
		return id[1] == status.GetClusterId()
	}
	for _, name := range []string{c.GetSpec().GetName(), c.GetUid(), subscriptionOf(c.GetResourceId()), status.GetBaseDomainPrefix(),
		strings.TrimSuffix(status.GetBaseDomain(), ".")} {
		if name != "" && strings.EqualFold(name, text) {
			return true
		}
	}
	return sameHost(status.GetApiUrl(), text)
}

// sameHost compares an API server's URL with a text that is a URL, a host with a port, or a host.
func sameHost(apiURL, text string) bool {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" {
		return false
	}
	if asked, err := url.Parse(text); err == nil && asked.Host != "" {
		text = asked.Host
	}
	if strings.EqualFold(u.Host, text) {
		return true
	}
	// An address without a port may be that of many.
	return strings.EqualFold(u.Hostname(), text) && net.ParseIP(text) == nil
}

func (f *Finder) documentMatches(ctx context.Context, text string, found map[string]adminv1.Cluster) error {
	add := func(item *database.Item[database.ClusterDocument]) error {
		if len(found) < MostFound || found[item.Value.UID].UID != "" {
			f.merge(found, item)
		}
		return nil
	}
	if uuidForm.MatchString(text) {
		if err := f.db.Clusters().All(ctx, text, "", add); err != nil {
			return err
		}
	}
	return f.db.FindClusters(ctx, text, add)
}

// merge adds what ARM says of a cluster to what is known of the incarnation.
func (f *Finder) merge(found map[string]adminv1.Cluster, item *database.Item[database.ClusterDocument]) {
	c, ok := found[item.Value.UID]
	if !ok {
		c = ofDocument(item)
	}
	c.ProvisioningState = string(item.Value.ProvisioningState)
	found[c.UID] = c
}

func (f *Finder) complete(ctx context.Context, item *database.Item[database.ClusterDocument]) (adminv1.Cluster, error) {
	known, err := f.fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: item.Value.UID})
	c := ofDocument(item)
	if err == nil {
		c = f.ofFleet(known)
		c.ProvisioningState = string(item.Value.ProvisioningState)
		return c, nil
	}
	if err := apierror.FromGRPC(err); apierror.KindOf(err) != apierror.NotFound {
		return c, err
	}
	return c, nil
}

func ofDocument(item *database.Item[database.ClusterDocument]) adminv1.Cluster {
	d := &item.Value
	c := adminv1.Cluster{
		UID: d.UID, ResourceID: item.Key.ResourceID, Name: d.Cluster.Name, SubscriptionID: item.Key.SubscriptionID, Location: d.Cluster.Location,
		ProvisioningState: string(d.ProvisioningState), Phase: d.Fleet.Phase, APIURL: d.Status.APIURL,
	}
	if created := d.Cluster.SystemData; created != nil {
		c.CreateTime = created.CreatedAt
	}
	return c
}

func (f *Finder) ofFleet(c *clusterservicev1.Cluster) adminv1.Cluster {
	status := c.GetStatus()
	cluster := adminv1.Cluster{
		UID: c.GetUid(), ResourceID: c.GetResourceId(), Name: c.GetSpec().GetName(), SubscriptionID: subscriptionOf(c.GetResourceId()),
		Location: c.GetSpec().GetLocation(), Phase: clusterservice.ClusterReport(c).Phase, ClusterID: status.GetClusterId(),
		ProvisionShard: status.GetProvisionShard(), APIURL: status.GetApiUrl(), CreateTime: moment(c.GetCreateTime()), DeleteTime: moment(c.GetDeleteTime()),
	}
	if cluster.ProvisionShard != "" {
		cluster.Namespace = "ocm-" + f.environment + "-" + cluster.ClusterID
	}
	if versions := status.GetActiveVersions(); len(versions) > 0 {
		cluster.Version = versions[0]
	}
	return cluster
}

func subscriptionOf(resourceID string) string {
	if parts := strings.SplitN(resourceID, "/", 4); len(parts) > 2 {
		return strings.ToLower(parts[2])
	}
	return ""
}

func moment(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	at := t.AsTime()
	return &at
}

func sorted(found map[string]adminv1.Cluster) []adminv1.Cluster {
	list := make([]adminv1.Cluster, 0, len(found))
	for _, c := range found {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b adminv1.Cluster) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.ResourceID), strings.ToLower(b.ResourceID)), cmp.Compare(a.UID, b.UID))
	})
	return list
}
