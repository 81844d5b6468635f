// Package lookup finds clusters by any identifier: ARM resource ID, name, UID, cluster ID, namespace on a management cluster, host
// of the API server, subscription or resource group. It queries Cluster Service for the fleet and, concurrently, Cosmos DB for
// clusters that have not reached the fleet. Both use indexes, so that a search reads only its results.
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
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// pageSize is the page size of requests to Cluster Service.
const pageSize = 500

// MaxResults is the maximum number of clusters that a search returns.
const MaxResults = 200

// Fleet is the part of Cluster Service's API that lookup uses.
type Fleet interface {
	GetCluster(ctx context.Context, r *clusterservicev1.GetClusterRequest, options ...grpc.CallOption) (*clusterservicev1.Cluster, error)
	ListClusters(ctx context.Context, r *clusterservicev1.ListClustersRequest, options ...grpc.CallOption) (*clusterservicev1.ListClustersResponse, error)
}

// Finder finds clusters.
type Finder struct {
	db    *database.DB
	fleet Fleet
	// environment is part of the names of namespaces on management clusters.
	environment string
}

// New returns a Finder.
func New(db *database.DB, fleet Fleet, environment string) *Finder {
	return &Finder{db: db, fleet: fleet, environment: environment}
}

// Find returns the clusters that match an identifier, ordered by resource ID. It returns an empty list if there are none.
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
	// ARM may have clusters that the fleet does not have yet, or no longer. If one side is unavailable, the other must suffice.
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

// deletedPhases selects deletion records. They match only if no existing cluster does.
var deletedPhases = []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED}

// One returns the cluster that matches an identifier. It returns an error of kind NotFound if there is none, and of kind
// Conflict if there are several.
func (f *Finder) One(ctx context.Context, text string) (adminv1.Cluster, error) {
	found, err := f.Find(ctx, text)
	if err != nil {
		return adminv1.Cluster{}, err
	}
	// A reused name means the cluster that exists.
	if alive := slices.DeleteFunc(slices.Clone(found), func(c adminv1.Cluster) bool { return c.DeleteTime != nil }); len(found) > 1 && len(alive) == 1 {
		found = alive
	}
	found = newestIncarnation(found)
	switch len(found) {
	case 0:
		return adminv1.Cluster{}, apierror.New(apierror.NotFound, "No cluster in this region matches '%s'. Searched: resource ID, name, UID, cluster ID, namespace and API host of existing clusters and of clusters deleted in the last 7 days.", text)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, c := range found[:min(len(found), 5)] {
		ids = append(ids, c.ResourceID)
	}
	return adminv1.Cluster{}, apierror.New(apierror.Conflict, "%d clusters match '%s': %s. Use the resource ID or the UID.", len(found), text, strings.Join(ids, ", "))
}

// newestIncarnation returns the last incarnation if all clusters are deleted incarnations of one resource ID, else all clusters.
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

// ListFleet returns a page of the clusters that Cluster Service lists for a request.
func (f *Finder) ListFleet(ctx context.Context, r *clusterservicev1.ListClustersRequest) (adminv1.ClusterList, error) {
	list := adminv1.ClusterList{Items: []adminv1.Cluster{}}
	response, err := f.fleet.ListClusters(ctx, r)
	if err != nil {
		return list, apierror.FromGRPC(err)
	}
	for _, c := range response.GetClusters() {
		list.Items = append(list.Items, f.FromFleet(c))
	}
	list.NextPageToken = response.GetNextPageToken()
	return list, nil
}

// ListSubscription returns a page of the clusters that ARM has in a subscription, with their state in the fleet.
func (f *Finder) ListSubscription(ctx context.Context, subscription, token string, size int) (adminv1.ClusterList, error) {
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

// inFleet returns the clusters of documents that the fleet has, by UID.
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
			known[c.GetUid()] = f.FromFleet(c)
		}
	}
	return known, nil
}

// searchFleet adds the clusters that Cluster Service finds, in the given phases or, without phases, in all but Deleted.
func (f *Finder) searchFleet(ctx context.Context, m query, phases []clusterservicev1.ClusterPhase, found map[string]adminv1.Cluster) error {
	if m.uid != "" {
		c, err := f.fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: m.uid})
		if err == nil {
			found[c.GetUid()] = f.FromFleet(c)
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
				found[c.GetUid()] = f.FromFleet(c)
			}
			question.PageToken = response.GetNextPageToken()
		}
	}
	return nil
}

// searchDocuments returns the clusters that Cosmos DB finds.
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

// merge adds ARM's state of a cluster to the incarnation that was found.
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
		ProvisioningState: string(d.ProvisioningState), Phase: d.Fleet.Phase, Verdict: d.Fleet.Phase, APIURL: d.Status.APIURL,
	}
	if created := d.Cluster.SystemData; created != nil {
		c.CreateTime = created.CreatedAt
	}
	return c
}

// FromFleet returns a cluster as Cluster Service reports it.
func (f *Finder) FromFleet(c *clusterservicev1.Cluster) adminv1.Cluster {
	status := c.GetStatus()
	report, err := clusterservice.ClusterReport(c)
	if err != nil {
		report.Phase = status.GetPhase().String() // a phase of a newer release is shown as Cluster Service reports it
	}
	key, _ := database.ResourceKey(c.GetResourceId()) // the subscription of an invalid ID is shown as empty
	cluster := adminv1.Cluster{
		UID: c.GetUid(), ResourceID: c.GetResourceId(), Name: c.GetSpec().GetName(), SubscriptionID: key.SubscriptionID,
		Location: c.GetSpec().GetLocation(), Phase: report.Phase, ClusterID: status.GetClusterId(),
		ProvisionShard: status.GetProvisionShard(), APIURL: status.GetApiUrl(), CreateTime: asTime(c.GetCreateTime()), DeleteTime: asTime(c.GetDeleteTime()),
	}
	if cluster.ProvisionShard != "" {
		cluster.Namespace = "ocm-" + f.environment + "-" + cluster.ClusterID
	}
	decided := verdict.OfCluster(time.Now(), c)
	cluster.Verdict = decided.State
	if concern := decided.Concern; concern.Layer != "" {
		cluster.Concern = &adminv1.ClusterConcern{SubjectID: concern.SubjectID, Layer: concern.Layer, State: concern.State, Since: concern.Since}
	}
	if versions := status.GetActiveVersions(); len(versions) > 0 {
		cluster.Version = versions[0]
	}
	return cluster
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
