package app_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fleet is a Cluster Service in memory with the contract of its API: writes by UID and generation, tombstones,
// revisions, a resumable watch. Its clusters advance by themselves, one phase at a time.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer

	mu        sync.Mutex
	changed   *sync.Cond
	revision  int64
	compacted int64
	clusters  map[string]*clusterservicev1.Cluster
	pools     map[string]*clusterservicev1.NodePool
	auths     map[string]*clusterservicev1.ExternalAuth
	creds     map[string]*clusterservicev1.BreakGlassCredential
	revokes   map[string]*clusterservicev1.BreakGlassRevocation
	// moving are the UIDs of resources that will advance. log has the UID that changed at each revision from 101 on.
	moving map[string]bool
	log    []string
	// frozen keeps all resources in their phases. broken makes clusters with these names fail. refuse, if not nil, is
	// the response to every call.
	frozen bool
	// history counts how often the fleet was restored to an earlier state, which ends all watches.
	history int
	broken  map[string]bool
	refuse  error
	// refused is the number of calls of ApplyCluster that were refused.
	refused int
	// secrets is set if the secrets of confidential clients exist.
	secrets bool
	// stuck rejects the deletion of clusters permanently, by UID. waiting delays a deletion until its step is forced.
	stuck, waiting map[string]bool
	// held prevents credentials from being issued.
	held bool
	// upgrading has the target versions of clusters by UID, policies the names of the upgrade policies.
	upgrading map[string]string
	policies  map[string]bool
	// recovered has the signing keys that clusters were recreated with, by UID.
	recovered map[string]string
	// actions describes the actions that had an effect. done has their IDs.
	actions []string
	done    map[string]bool
	// calls counts Apply and Delete calls by UID, effects those that changed something and deletions of children with their cluster,
	// deletions the calls that started a deletion.
	calls, effects, deletions map[string]int
	stop                      chan struct{}
	// dial opens another connection.
	dial func(options ...grpc.DialOption) *grpc.ClientConn
}

// firstRevision is the revision of a new fleet.
const firstRevision = 100

func newFleet(t testing.TB) (*fleet, *grpc.ClientConn) {
	t.Helper()
	f := &fleet{
		revision: firstRevision, clusters: map[string]*clusterservicev1.Cluster{}, pools: map[string]*clusterservicev1.NodePool{},
		auths: map[string]*clusterservicev1.ExternalAuth{}, creds: map[string]*clusterservicev1.BreakGlassCredential{}, revokes: map[string]*clusterservicev1.BreakGlassRevocation{},
		waiting: map[string]bool{}, upgrading: map[string]string{}, policies: map[string]bool{}, recovered: map[string]string{}, done: map[string]bool{},
		moving: map[string]bool{}, stuck: map[string]bool{}, broken: map[string]bool{}, calls: map[string]int{}, effects: map[string]int{}, deletions: map[string]int{}, stop: make(chan struct{}),
	}
	f.changed = sync.NewCond(&f.mu)
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	clusterservicev1.RegisterClusterServiceServer(server, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	f.dial = func(options ...grpc.DialOption) *grpc.ClientConn {
		connection := must.Get(grpc.NewClient("passthrough:///fleet", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...))(t)
		return connection
	}
	connection := f.dial()
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		f.move()
	}()
	t.Cleanup(func() {
		_ = connection.Close()
		close(f.stop)
		f.wake()
		server.Stop()
		<-served
		<-moved
	})
	return f, connection
}

// move advances one resource after the other by a phase.
func (f *fleet) move() {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		if !f.frozen {
			for uid := range f.moving {
				before := f.revision
				if c := f.clusters[uid]; c != nil {
					f.moveCluster(c)
				}
				if p := f.pools[uid]; p != nil {
					f.movePool(p)
				}
				f.moveOthers(uid)
				if f.revision == before {
					delete(f.moving, uid)
				}
			}
		}
		f.mu.Unlock()
	}
}

func (f *fleet) moveCluster(c *clusterservicev1.Cluster) {
	s := c.Status
	switch {
	case s.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED, c.DeleteTime != nil && f.waiting[c.Uid]:
		return
	case c.DeleteTime != nil:
		for _, p := range f.pools {
			if p.ClusterUid == c.Uid && p.Status.Phase != clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED {
				f.deleteWithCluster(p.Uid, p.DeleteTime)
				p.Status.Phase, p.DeleteTime = clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED, c.DeleteTime
				p.Revision = f.next(p.Uid)
			}
		}
		f.deleteOthers(c)
		s.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED
	case f.upgrading[c.Uid] != "" && s.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY:
		s.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_UPDATING
	case f.upgrading[c.Uid] != "" && s.ObservedGeneration == c.Generation:
		s.Phase, s.ActiveVersions = clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, []string{f.upgrading[c.Uid]}
		delete(f.upgrading, c.Uid)
	case s.ObservedGeneration == c.Generation || s.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_FAILED:
		return
	case f.broken[c.Spec.Name]:
		s.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_FAILED
		s.Conditions = []*clusterservicev1.Condition{{Type: "Available", Status: "False", Reason: "NoCapacity", Message: "No shard has room."}}
	case s.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_PENDING:
		s.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_INSTALLING
		if s.ProvisionShard == "" {
			s.ProvisionShard = "mgmt-1"
		}
		s.Progress = []*clusterservicev1.LayerProgress{{Layer: "placement", State: "Placed", Since: timestamppb.Now()}}
	default:
		s.Phase, s.ObservedGeneration = clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, c.Generation
		s.ApiUrl = "https://api." + c.Spec.Name
		s.ActiveVersions = []string{c.Spec.GetVersion().GetId()}
		for uid, credential := range f.creds {
			if credential.ClusterUid == c.Uid {
				f.moving[uid] = true
			}
		}
	}
	c.Revision = f.next(c.Uid)
}

// deleteWithCluster counts the deletion of a child by the deletion of its cluster, unless a request had begun it before. The backend may
// request the deletion of the child, too: the number of effects must not depend on which of the two is first.
func (f *fleet) deleteWithCluster(uid string, requested *timestamppb.Timestamp) {
	if requested == nil {
		f.effects[uid]++
	}
}

func (f *fleet) movePool(p *clusterservicev1.NodePool) {
	s := p.Status
	switch {
	case s.Phase == clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED:
		return
	case p.DeleteTime != nil:
		s.Phase = clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	case s.ObservedGeneration == p.Generation:
		return
	default:
		s.Phase, s.ObservedGeneration, s.Replicas = clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_READY, p.Generation, p.Spec.GetReplicas()
	}
	p.Revision = f.next(p.Uid)
}

// next returns the revision of a change of the resource with a UID.
func (f *fleet) next(uid string) int64 {
	f.revision++
	f.log = append(f.log, uid)
	f.moving[uid] = true
	f.changed.Broadcast()
	return f.revision
}

func refused(kind apierror.Kind, reason string) error {
	return apierror.ToGRPC(apierror.New(kind, "refused: %s", reason).WithReason(reason), "clusterservice.hcpmesh")
}

func (f *fleet) ApplyCluster(_ context.Context, r *clusterservicev1.ApplyClusterRequest) (*clusterservicev1.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		f.refused++
		return nil, f.refuse
	}
	f.calls[r.Uid]++
	c := f.clusters[r.Uid]
	if c == nil {
		for _, other := range f.clusters {
			if strings.EqualFold(other.ResourceId, r.ResourceId) && other.Status.Phase != clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED {
				return nil, refused(apierror.FailedPrecondition, "RESOURCE_ID_IN_USE")
			}
		}
		c = &clusterservicev1.Cluster{Uid: r.Uid, ResourceId: r.ResourceId, Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_PENDING}}
		f.clusters[r.Uid] = c
		if r.Recovery != nil {
			c.CreateTime, c.Status.ProvisionShard = r.Recovery.CreateTime, r.Recovery.ProvisionShard
			f.recovered[r.Uid] = string(r.Recovery.SigningKey)
		}
	}
	if c.DeleteTime != nil {
		return nil, refused(apierror.FailedPrecondition, "UID_DELETED")
	}
	if r.Generation > c.Generation {
		f.effects[r.Uid]++
		c.Generation, c.Spec = r.Generation, r.Spec
		if c.Status.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY {
			c.Status.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_UPDATING
		}
		c.Revision = f.next(c.Uid)
	}
	return proto.Clone(c).(*clusterservicev1.Cluster), nil
}

func (f *fleet) GetCluster(_ context.Context, r *clusterservicev1.GetClusterRequest) (*clusterservicev1.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clusters[r.Uid]; c != nil {
		return proto.Clone(c).(*clusterservicev1.Cluster), nil
	}
	return nil, refused(apierror.NotFound, "CLUSTER_UNKNOWN")
}

func (f *fleet) DeleteCluster(_ context.Context, r *clusterservicev1.DeleteClusterRequest) (*clusterservicev1.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	if f.stuck[r.Uid] {
		return nil, refused(apierror.Invalid, "STUCK")
	}
	f.calls[r.Uid]++
	c := f.clusters[r.Uid]
	if c == nil {
		c = &clusterservicev1.Cluster{Uid: r.Uid, ResourceId: r.ResourceId, Status: &clusterservicev1.ClusterStatus{}}
		f.clusters[r.Uid] = c
	}
	if c.DeleteTime == nil {
		f.effects[r.Uid]++
		f.deletions[r.Uid]++
		c.DeleteTime, c.Status.Phase = timestamppb.Now(), clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING
		c.Revision = f.next(c.Uid)
	}
	return proto.Clone(c).(*clusterservicev1.Cluster), nil
}

func (f *fleet) ApplyNodePool(_ context.Context, r *clusterservicev1.ApplyNodePoolRequest) (*clusterservicev1.NodePool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.calls[r.Uid]++
	c := f.clusters[r.ClusterUid]
	if c == nil {
		return nil, refused(apierror.FailedPrecondition, "CLUSTER_UNKNOWN")
	}
	p := f.pools[r.Uid]
	if p != nil && p.DeleteTime != nil {
		return nil, refused(apierror.FailedPrecondition, "UID_DELETED")
	}
	if c.DeleteTime != nil {
		return nil, refused(apierror.FailedPrecondition, "CLUSTER_DELETING")
	}
	if p == nil {
		p = &clusterservicev1.NodePool{Uid: r.Uid, ClusterUid: r.ClusterUid, ResourceId: r.ResourceId, Status: &clusterservicev1.NodePoolStatus{Phase: clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_PENDING}}
		f.pools[r.Uid] = p
	}
	if r.Generation > p.Generation {
		f.effects[r.Uid]++
		p.Generation, p.Spec, p.Revision = r.Generation, r.Spec, f.next(p.Uid)
	}
	return proto.Clone(p).(*clusterservicev1.NodePool), nil
}

func (f *fleet) GetNodePool(_ context.Context, r *clusterservicev1.GetNodePoolRequest) (*clusterservicev1.NodePool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pools[r.Uid]; p != nil {
		return proto.Clone(p).(*clusterservicev1.NodePool), nil
	}
	return nil, refused(apierror.NotFound, "NODE_POOL_UNKNOWN")
}

func (f *fleet) DeleteNodePool(_ context.Context, r *clusterservicev1.DeleteNodePoolRequest) (*clusterservicev1.NodePool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.calls[r.Uid]++
	p := f.pools[r.Uid]
	if p == nil {
		p = &clusterservicev1.NodePool{Uid: r.Uid, ClusterUid: r.ClusterUid, ResourceId: r.ResourceId, Status: &clusterservicev1.NodePoolStatus{}}
		f.pools[r.Uid] = p
	}
	if p.DeleteTime == nil {
		f.effects[r.Uid]++
		p.DeleteTime, p.Status.Phase, p.Revision = timestamppb.Now(), clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETING, f.next(p.Uid)
	}
	return proto.Clone(p).(*clusterservicev1.NodePool), nil
}

func (f *fleet) ListClusters(_ context.Context, r *clusterservicev1.ListClustersRequest) (*clusterservicev1.ListClustersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &clusterservicev1.ListClustersResponse{Revision: f.revision}
	for _, c := range f.clusters {
		if slices.Contains(r.Phases, c.Status.Phase) {
			response.Clusters = append(response.Clusters, proto.Clone(c).(*clusterservicev1.Cluster))
		}
	}
	return response, nil
}

func (f *fleet) ListNodePools(_ context.Context, r *clusterservicev1.ListNodePoolsRequest) (*clusterservicev1.ListNodePoolsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response := &clusterservicev1.ListNodePoolsResponse{Revision: f.revision}
	for _, p := range f.pools {
		if slices.Contains(r.Phases, p.Status.Phase) {
			response.NodePools = append(response.NodePools, proto.Clone(p).(*clusterservicev1.NodePool))
		}
	}
	return response, nil
}

// compact removes all changes so far.
func (f *fleet) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compacted = f.revision
}

func (f *fleet) Watch(r *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	defer context.AfterFunc(stream.Context(), f.wake)()
	after := r.AfterRevision
	f.mu.Lock()
	history := f.history
	compacted := after > 0 && after < f.compacted || after > f.revision
	f.mu.Unlock()
	if compacted {
		return refused(apierror.OutOfRange, "REVISION_COMPACTED")
	}
	for {
		messages, err := f.changesAfter(stream.Context(), after, history)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
			after = m.Revision
		}
	}
}

// wake notifies the watches. It holds the lock, so that the notification cannot arrive between their check and their
// wait.
func (f *fleet) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed.Broadcast()
}

func (f *fleet) changesAfter(ctx context.Context, after int64, history int) ([]*clusterservicev1.WatchResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.revision <= after && ctx.Err() == nil && f.history == history {
		select {
		case <-f.stop:
			return nil, status.Error(codes.Unavailable, "stopping")
		default:
		}
		f.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if f.history != history {
		return nil, refused(apierror.OutOfRange, "REVISION_COMPACTED")
	}
	var messages []*clusterservicev1.WatchResponse
	for i := max(0, int(after-firstRevision)); i < len(f.log); i++ {
		revision := firstRevision + int64(i) + 1
		messages = append(messages, f.othersAt(f.log[i], revision)...)
		// A resource that has changed again since appears only with its last change.
		if c := f.clusters[f.log[i]]; c != nil && c.Revision == revision {
			messages = append(messages, &clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: proto.Clone(c).(*clusterservicev1.Cluster)}})
		}
		if p := f.pools[f.log[i]]; p != nil && p.Revision == revision {
			messages = append(messages, &clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_NodePool{NodePool: proto.Clone(p).(*clusterservicev1.NodePool)}})
		}
	}
	return append(messages, &clusterservicev1.WatchResponse{Revision: f.revision, Event: &clusterservicev1.WatchResponse_Bookmark{Bookmark: &clusterservicev1.Bookmark{}}}), nil
}
