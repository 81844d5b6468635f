// Package find finds clusters by whatever somebody has in hand: the ARM resource id, the name, the uid, the id below ARM, a
// namespace on the management cluster, the API server's host, the subscription or the resource group. Cluster Service is
// asked for the fleet, and Cosmos DB for what has not reached it, at once; both find it by an index, so that a search reads
// what it finds and not the fleet.
package lookup

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// pageSize is how many clusters Cluster Service is asked for at a time.
const pageSize = 500

// MaxResults is how many clusters a search returns at most; who finds more should say more.
const MaxResults = 200

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

// Find returns the clusters that a text means, by resource id; none is an empty list.
func (f *Finder) Find(ctx context.Context, text string) ([]adminv1.Cluster, error) {
	m, err := parse(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	found := map[string]adminv1.Cluster{}
	var documents []*database.Item[database.ClusterDocument]
	var fleetErr, documentsErr error
	var both sync.WaitGroup
	both.Go(func() { fleetErr = f.searchFleet(ctx, m, nil, found) })
	both.Go(func() { documents, documentsErr = f.searchDocuments(ctx, m) })
	both.Wait()
	// What the fleet does not know yet, or no longer, ARM may; and what either knows is wanted most when the other is away.
	for _, item := range documents {
		if _, ok := found[item.Value.UID]; ok || len(found) < MaxResults {
			f.merge(found, item)
		}
	}
	if err := cmp.Or(fleetErr, documentsErr); len(found) == 0 && err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if err := f.searchFleet(ctx, m, deletedPhases, found); err != nil {
			return nil, err
		}
	}
	return sorted(found), nil
}

// deletedPhases are the clusters that Cluster Service remembers for a while. They are meant when no other is.
var deletedPhases = []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED}

// One returns the one cluster that a text means; an error of kind NotFound when there is none, and of kind Conflict when
// there are several.
func (f *Finder) One(ctx context.Context, text string) (adminv1.Cluster, error) {
	found, err := f.Find(ctx, text)
	if err != nil {
		return adminv1.Cluster{}, err
	}
	// A name that is in use again means the cluster that has it now.
	if alive := slices.DeleteFunc(slices.Clone(found), func(c adminv1.Cluster) bool { return c.DeleteTime != nil }); len(found) > 1 && len(alive) == 1 {
		found = alive
	}
	found = newestIncarnation(found)
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

// newestIncarnation leaves of clusters that are all former lives of one resource id the last.
func newestIncarnation(found []adminv1.Cluster) []adminv1.Cluster {
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
		return f.listSubscription(ctx, subscription, token, size)
	}
	response, err := f.fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: int32(size), PageToken: token})
	if err != nil {
		return list, apierror.FromGRPC(err)
	}
	for _, c := range response.GetClusters() {
		list.Items = append(list.Items, f.fromFleet(c))
	}
	list.NextPageToken = response.GetNextPageToken()
	return list, nil
}

// listSubscription lists what ARM knows, with what the fleet says of it.
func (f *Finder) listSubscription(ctx context.Context, subscription, token string, size int) (adminv1.ClusterList, error) {
	list := adminv1.ClusterList{Items: []adminv1.Cluster{}}
	items, next, err := f.db.Clusters().List(ctx, subscription, "", token, size)
	if err != nil {
		return list, err
	}
	known, err := f.inFleet(ctx, items)
	if err != nil {
		return list, err
	}
	for _, item := range items {
		f.merge(known, item)
		list.Items = append(list.Items, known[item.Value.UID])
	}
	list.NextPageToken = next
	return list, nil
}

// inFleet is what the fleet knows of documents, by uid.
func (f *Finder) inFleet(ctx context.Context, items []*database.Item[database.ClusterDocument]) (map[string]adminv1.Cluster, error) {
	known := map[string]adminv1.Cluster{}
	for some := range slices.Chunk(items, pageSize) {
		question := &clusterservicev1.ListClustersRequest{PageSize: pageSize}
		for _, item := range some {
			question.Uids = append(question.Uids, item.Value.UID)
		}
		response, err := f.fleet.ListClusters(ctx, question)
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		for _, c := range response.GetClusters() {
			known[c.GetUid()] = f.fromFleet(c)
		}
	}
	return known, nil
}

// searchFleet asks Cluster Service: for clusters in some phases, or in all in which there is one.
func (f *Finder) searchFleet(ctx context.Context, m query, phases []clusterservicev1.ClusterPhase, found map[string]adminv1.Cluster) error {
	if m.uid != "" {
		c, err := f.fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: m.uid})
		if err == nil {
			found[c.GetUid()] = f.fromFleet(c)
			return nil
		}
		if err := apierror.FromGRPC(err); apierror.KindOf(err) != apierror.NotFound {
			return err
		}
	}
	for _, question := range m.fleet {
		question.PageSize, question.PageToken, question.Phases = pageSize, "", phases
		for first := true; first || question.PageToken != ""; first = false {
			response, err := f.fleet.ListClusters(ctx, question)
			if err != nil {
				return apierror.FromGRPC(err)
			}
			for _, c := range response.GetClusters() {
				if len(found) == MaxResults {
					return nil
				}
				found[c.GetUid()] = f.fromFleet(c)
			}
			question.PageToken = response.GetNextPageToken()
		}
	}
	return nil
}

// searchDocuments asks Cosmos DB.
func (f *Finder) searchDocuments(ctx context.Context, m query) (found []*database.Item[database.ClusterDocument], err error) {
	if m.uid != "" {
		item, err := f.db.ClusterByUID(ctx, m.uid)
		if err != nil {
			return nil, err
		}
		if item != nil {
			return []*database.Item[database.ClusterDocument]{item}, nil
		}
	}
	switch {
	case m.resourceID != "":
		key, err := database.ResourceKey(m.resourceID)
		if err != nil {
			return nil, err
		}
		item, err := f.db.Clusters().Find(ctx, key)
		if err != nil || item == nil || item.Removed != nil {
			return nil, err
		}
		return []*database.Item[database.ClusterDocument]{item}, nil
	case m.subscription != "":
		found, _, err = f.db.Clusters().List(ctx, m.subscription, m.resourceIDPrefix, "", MaxResults)
	case m.name != "":
		err = f.db.ClustersByName(ctx, m.name, func(item *database.Item[database.ClusterDocument]) error {
			if len(found) < MaxResults {
				found = append(found, item)
			}
			return nil
		})
	}
	return found, err
}

// merge adds what ARM says of a cluster to what is known of the incarnation.
func (f *Finder) merge(found map[string]adminv1.Cluster, item *database.Item[database.ClusterDocument]) {
	c, ok := found[item.Value.UID]
	if !ok {
		c = fromDocument(item)
	}
	c.ProvisioningState = string(item.Value.ProvisioningState)
	found[c.UID] = c
}

func fromDocument(item *database.Item[database.ClusterDocument]) adminv1.Cluster {
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

func (f *Finder) fromFleet(c *clusterservicev1.Cluster) adminv1.Cluster {
	status := c.GetStatus()
	report, err := clusterservice.ClusterReport(c)
	if err != nil {
		report.Phase = status.GetPhase().String() // a phase of a newer release is shown as Cluster Service reports it
	}
	cluster := adminv1.Cluster{
		UID: c.GetUid(), ResourceID: c.GetResourceId(), Name: c.GetSpec().GetName(), SubscriptionID: subscriptionOf(c.GetResourceId()),
		Location: c.GetSpec().GetLocation(), Phase: report.Phase, ClusterID: status.GetClusterId(),
		ProvisionShard: status.GetProvisionShard(), APIURL: status.GetApiUrl(), CreateTime: asTime(c.GetCreateTime()), DeleteTime: asTime(c.GetDeleteTime()),
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

func asTime(t *timestamppb.Timestamp) *time.Time {
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
