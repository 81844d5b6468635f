package app_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestErrors checks the rejected requests of the API with their error details.
func TestErrors(t *testing.T) {
	t.Parallel()
	service := newRegion(t).start(nil)
	ctx := t.Context()
	existing, deleted := applyRequest("existing", 2), applyRequest("deleted", 1)
	for _, request := range []*csv1.ApplyClusterRequest{existing, deleted} {
		must.Get(service.ApplyCluster(ctx, request))(t)
	}
	service.remove(t, deleted.Uid)
	apply := func(change func(*csv1.ApplyClusterRequest)) func() error {
		request := applyRequest("existing", 3)
		change(request)
		return failure(ctx, service.ApplyCluster, request)
	}
	applyPool := func(change func(*csv1.ApplyNodePoolRequest)) func() error {
		request := poolRequest(existing, "np", 1)
		change(request)
		return failure(ctx, service.ApplyNodePool, request)
	}
	checkErrors(t, map[string]errorCase{
		"Several fields": {"all wrong fields are named at once", apply(func(r *csv1.ApplyClusterRequest) {
			r.Uid, r.Spec.Network.PodCidr, r.Spec.Version.Id = "x", "10.0.0.1/8", "4"
		}), codes.InvalidArgument, "uid spec.version.id spec.network.pod_cidr"},
		"Overlap":       {"address ranges are disjoint", apply(func(r *csv1.ApplyClusterRequest) { r.Spec.Network.ServiceCidr = "10.128.0.0/16" }), codes.InvalidArgument, "spec.network.service_cidr"},
		"Unknown minor": {"the catalogue has no such release", apply(func(r *csv1.ApplyClusterRequest) { r.Spec.Version.Id = "4.99" }), codes.InvalidArgument, "spec.version.id"},
		"Create-only":   {"the network is fixed", apply(func(r *csv1.ApplyClusterRequest) { r.Spec.Network.HostPrefix = 24 }), codes.InvalidArgument, "spec.network"},
		"No spec":       {"a spec is required", apply(func(r *csv1.ApplyClusterRequest) { r.Spec = nil }), codes.InvalidArgument, "spec"},
		"Older":         {"an older generation changes nothing and is no mistake", apply(func(r *csv1.ApplyClusterRequest) { r.Generation = 1; r.Spec.Network.HostPrefix = 24 }), codes.OK, ""},
		"Deleted uid":   {"a uid that was deleted never comes back", failure(ctx, service.ApplyCluster, deleted), codes.FailedPrecondition, "UID_DELETED"},
		"Name in use": {"another uid holds the resource id", apply(func(r *csv1.ApplyClusterRequest) {
			r.Uid = uuid.NewString()
			r.ResourceId = strings.ToUpper(r.ResourceId)
		}), codes.FailedPrecondition, "RESOURCE_ID_IN_USE"},
		"Prefix in use":   {"two clusters cannot share their host names", apply(func(r *csv1.ApplyClusterRequest) { *r = *conflicting(ctx, t, service) }), codes.InvalidArgument, "spec.dns.base_domain_prefix"},
		"Unknown":         {"nothing is known of it", failure(ctx, service.GetCluster, &csv1.GetClusterRequest{Uid: uuid.NewString()}), codes.NotFound, "CLUSTER_UNKNOWN"},
		"Unknown pool":    {"nothing is known of it", failure(ctx, service.GetNodePool, &csv1.GetNodePoolRequest{Uid: uuid.NewString()}), codes.NotFound, "NODE_POOL_UNKNOWN"},
		"Early pool":      {"its cluster was not applied yet", applyPool(func(r *csv1.ApplyNodePoolRequest) { r.ClusterUid = uuid.NewString() }), codes.FailedPrecondition, "CLUSTER_UNKNOWN"},
		"Late pool":       {"its cluster is being deleted", applyPool(func(r *csv1.ApplyNodePoolRequest) { r.ClusterUid = deleted.Uid }), codes.FailedPrecondition, "CLUSTER_DELETING"},
		"Pool of no size": {"a size is required", applyPool(func(r *csv1.ApplyNodePoolRequest) { r.Spec.Size = nil }), codes.InvalidArgument, "spec.replicas"},
		"Page":            {"a page has a size", failure(ctx, service.ListClusters, &csv1.ListClustersRequest{PageSize: 501, PageToken: "!"}), codes.InvalidArgument, "page_size page_token"},
		"Shard":           {"there is no such shard", failure(ctx, service.UpdateProvisionShard, &csv1.UpdateProvisionShardRequest{Name: "x", Actor: kim}), codes.NotFound, "PROVISION_SHARD_UNKNOWN"},
		"Future revision": {"the revision is from another database", func() error {
			stream, err := service.Watch(ctx, &csv1.WatchRequest{AfterRevision: 1 << 40})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.OutOfRange, "REVISION_COMPACTED"},
	})
}

// conflicting returns a request for another cluster with the domain prefix of the existing one.
func conflicting(ctx context.Context, t *testing.T, service *instance) *csv1.ApplyClusterRequest {
	t.Helper()
	c := must.Get(service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: applyRequest("existing", 1).Uid}))(t)
	request := applyRequest("conflicting", 1)
	request.Spec.Dns = &csv1.Dns{BaseDomainPrefix: c.GetStatus().GetBaseDomainPrefix()}
	return request
}

// TestDeletionOfUnknownLeavesTombstone deletes resources that were never applied.
func TestDeletionOfUnknownLeavesTombstone(t *testing.T) {
	t.Parallel()
	service := newRegion(t).start(nil)
	request := applyRequest("c", 1)
	pool := poolRequest(request, "np", 1)
	c, err := service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: request.Uid, ResourceId: request.ResourceId})
	if err != nil || !clusterDeleted(c) {
		t.Fatalf("%v, %v", c, err)
	}
	p, err := service.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: pool.Uid, ClusterUid: pool.ClusterUid, ResourceId: pool.ResourceId})
	if err != nil || p.GetStatus().GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED {
		t.Fatalf("%v, %v", p, err)
	}
	if _, err := service.ApplyCluster(t.Context(), request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("late apply: %v", err)
	}
	again := applyRequest("c", 1)
	again.Uid = uuid.NewString()
	if _, err := service.ApplyCluster(t.Context(), again); err != nil {
		t.Errorf("same name with another UID: %v", err)
	}
}

// TestReplicas runs two Cluster Services on one database. Each serves half of the requests, and half of the clusters are
// deleted while they are created.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const clusters = 24
	r := newRegion(t)
	r.play()
	replicas := []*instance{r.start(nil), r.start(nil)}
	var group sync.WaitGroup
	for i := range clusters {
		group.Go(func() {
			request := applyRequest(fmt.Sprintf("c%d", i), 1)
			pool := poolRequest(request, "np", 1)
			ctx := context.Background()
			if _, err := replicas[i%2].ApplyCluster(ctx, request); err != nil {
				t.Error(err)
				return
			}
			if _, err := replicas[(i/2)%2].ApplyNodePool(ctx, pool); err != nil {
				t.Error(err)
				return
			}
			// Some clusters are deleted during their creation: at once, when they are placed, or when they have some of their works.
			if i%4 != 0 {
				replicas[(i/3)%2].awaitCluster(t, request.Uid, clusterReady(1))
			} else if stage := i / 4 % 3; stage > 0 {
				placed := replicas[(i/3)%2].awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return c.GetStatus().GetClusterId() != "" })
				awaitCondition(t, "the first works of the cluster", func() bool {
					return stage == 1 || slices.ContainsFunc(slices.Collect(maps.Values(r.maestro.Resources())), func(held maestrotest.Resource) bool {
						return strings.HasPrefix(held.Name, placed.GetStatus().GetClusterId())
					})
				})
			}
			if i%2 == 0 {
				if _, err := replicas[(i/4)%2].DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: request.Uid}); err != nil {
					t.Error(err)
				}
				replicas[i%2].awaitCluster(t, request.Uid, clusterDeleted)
			}
		})
	}
	group.Wait()
	if held := r.maestro.Resources(); len(held) != clusters/2*3 {
		t.Errorf("Maestro holds %d bundles, want %d", len(held), clusters/2*3)
	}
	// The pages of a list contain every cluster.
	seen, token := map[string]bool{}, ""
	for {
		page := must.Get(replicas[0].ListClusters(t.Context(), &csv1.ListClustersRequest{PageSize: 5, PageToken: token}))(t)
		for _, c := range page.GetClusters() {
			seen[c.GetUid()] = true
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(seen) != clusters/2 {
		t.Errorf("listed %d clusters, want %d", len(seen), clusters/2)
	}
}

// TestWatchResumes ends a watch in the middle and resumes it at another replica.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	replicas := []*instance{r.start(nil), r.start(nil)}
	after, seen := int64(0), 0
	for i := range 6 {
		must.Get(replicas[(i+1)%2].ApplyCluster(t.Context(), applyRequest(fmt.Sprintf("c%d", i), 1)))(t)
		ctx, cancel := eventually.Context(t)
		stream := must.Get(replicas[i%2].Watch(ctx, &csv1.WatchRequest{AfterRevision: after}))(t)
		for found := false; !found; {
			response := must.Get(stream.Recv())(t)
			if response.GetRevision() < after {
				t.Errorf("revision %d after %d", response.GetRevision(), after)
			}
			after = response.GetRevision()
			if c := response.GetCluster(); c.GetSpec().GetName() == fmt.Sprintf("c%d", i) {
				found, seen = true, seen+1
			}
		}
		cancel()
	}
	if seen != 6 {
		t.Errorf("saw %d clusters", seen)
	}
}
