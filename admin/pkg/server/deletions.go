package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

const (
	// maxConcurrentDumps limits how many clusters are read concurrently for the list of deletions.
	maxConcurrentDumps = 16
	// listPage is the page size of requests to Cluster Service.
	listPage = 500
)

// pendingDeletion is a cluster that is being deleted, or that has children in deletion.
type pendingDeletion struct {
	cluster adminv1.Cluster
	// row is the cluster in Cluster Service if Cluster Service is deleting it, else nil.
	row *clusterservicev1.Cluster
}

// listDeletions returns every deletion of the region with the steps of all layers: those with an ARM operation and those in
// Cluster Service.
func (s *Server) listDeletions(ctx context.Context, rq *request) (any, error) {
	stuck, err := rq.flag("stuck")
	if err != nil {
		return nil, err
	}
	list := adminv1.DeletionList{Items: []adminv1.Deletion{}, Unavailable: map[string]string{}}
	all := map[string]*pendingDeletion{}
	armErr, fleetErr := s.pendingInARM(ctx, all), s.pendingInFleet(ctx, all)
	if armErr != nil && fleetErr != nil {
		return nil, fleetErr
	}
	for layer, err := range map[string]error{adminv1.LayerARM: armErr, adminv1.LayerClusterService: fleetErr} {
		if err != nil {
			list.Unavailable[layer] = apierror.As(err).Message
		}
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxConcurrentDumps)
	for _, g := range all {
		group.Go(func() error {
			taken := s.collectPending(ctx, g)
			mu.Lock()
			defer mu.Unlock()
			for layer, why := range taken.Unavailable {
				list.Unavailable[layer] = why
			}
			for _, graph := range deletion.Graphs(taken) {
				if !graph.Done {
					list.Items = append(list.Items, deletionResponse(graph))
				}
			}
			return nil
		})
	}
	_ = group.Wait() // layers that cannot be read are named in the list
	if stuck {
		list.Items = slices.DeleteFunc(list.Items, func(d adminv1.Deletion) bool {
			return !slices.ContainsFunc(d.Deletion.Of.GetSteps(), (*clusterservicev1.DeletionStep).GetStuck)
		})
	}
	slices.SortFunc(list.Items, func(a, b adminv1.Deletion) int {
		return cmp.Or(a.DeleteTime.Compare(b.DeleteTime), strings.Compare(a.ResourceID, b.ResourceID))
	})
	return list, nil
}

// collectPending reads the facts from which the deletions of a cluster are derived.
func (s *Server) collectPending(ctx context.Context, g *pendingDeletion) *adminv1.Dump {
	if g.row == nil {
		return s.collector.CollectWithoutBundles(ctx, g.cluster)
	}
	taken := s.collector.CollectARM(ctx, g.cluster, g.row)
	if taken.ARM != nil && taken.ARM.Cluster == nil {
		// The row was read first: the cluster may be gone by now.
		return s.collector.CollectWithoutBundles(ctx, g.cluster)
	}
	return taken
}

// pendingInARM adds the clusters with an operation that deletes them or one of their children.
func (s *Server) pendingInARM(ctx context.Context, all map[string]*pendingDeletion) error {
	return s.Database.ActiveOperations(ctx, func(item *database.Item[database.OperationDocument]) error {
		o := &item.Value
		id := clusterIDOf(o.ResourceID)
		if o.Request != database.DeleteRequest || id == "" || all[hub.Key(id)] != nil {
			return nil
		}
		cluster := adminv1.Cluster{ResourceID: id, UID: o.UID}
		if !strings.EqualFold(id, o.ResourceID) {
			key, err := database.ResourceKey(id)
			if err != nil {
				return err
			}
			found, err := s.Database.Clusters().Find(ctx, key)
			if err != nil || found == nil || found.Removed != nil {
				return err
			}
			cluster.UID = found.Value.UID
		}
		all[hub.Key(id)] = &pendingDeletion{cluster: cluster}
		return nil
	})
}

// clusterIDOf returns the resource ID of the cluster that a resource is or belongs to; empty for other resources. Names keep
// their casing.
func clusterIDOf(resourceID string) string {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil {
		return ""
	}
	for ; id != nil; id = id.Parent {
		if asciifold.Equal(id.ResourceType.String(), hub.ClusterResourceType) {
			return id.String()
		}
	}
	return ""
}

// pendingInFleet adds the clusters that Cluster Service is deleting, or that have children in deletion. Children that are deleted
// with their cluster are part of its deletion.
func (s *Server) pendingInFleet(ctx context.Context, all map[string]*pendingDeletion) error {
	at := func(id, uid string) *pendingDeletion {
		key := hub.Key(id)
		// Another incarnation of the resource ID is another cluster.
		if all[key] != nil && all[key].cluster.UID != uid {
			key += "#" + uid
		}
		if all[key] == nil {
			all[key] = &pendingDeletion{cluster: adminv1.Cluster{ResourceID: id, UID: uid}}
		}
		return all[key]
	}
	err := clusterservice.EachPage(func(token string) (*clusterservicev1.ListClustersResponse, error) {
		return s.Fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{
			Phases: []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING}, PageSize: listPage, PageToken: token,
		})
	}, func(page *clusterservicev1.ListClustersResponse) error {
		for _, c := range page.GetClusters() {
			at(c.GetResourceId(), c.GetUid()).row = c
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = clusterservice.EachPage(func(token string) (*clusterservicev1.ListNodePoolsResponse, error) {
		return s.Fleet.ListNodePools(ctx, &clusterservicev1.ListNodePoolsRequest{
			Phases: []clusterservicev1.NodePoolPhase{clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETING}, PageSize: listPage, PageToken: token,
		})
	}, func(page *clusterservicev1.ListNodePoolsResponse) error {
		for _, p := range page.GetNodePools() {
			at(clusterIDOf(p.GetResourceId()), p.GetClusterUid())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return clusterservice.EachPage(func(token string) (*clusterservicev1.ListExternalAuthsResponse, error) {
		return s.Fleet.ListExternalAuths(ctx, &clusterservicev1.ListExternalAuthsRequest{
			Phases: []clusterservicev1.ExternalAuthPhase{clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING}, PageSize: listPage, PageToken: token,
		})
	}, func(page *clusterservicev1.ListExternalAuthsResponse) error {
		for _, a := range page.GetExternalAuths() {
			at(clusterIDOf(a.GetResourceId()), a.GetClusterUid())
		}
		return nil
	})
}
