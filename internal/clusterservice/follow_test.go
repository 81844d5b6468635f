package clusterservice

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
)

// watches is a Cluster Service that ends its watches in a fixed order.
type watches struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu    sync.Mutex
	after []int64
	ended chan struct{}
}

func (w *watches) Watch(request *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	w.mu.Lock()
	w.after = append(w.after, request.GetAfterRevision())
	number := len(w.after)
	w.mu.Unlock()
	cluster := func(revision int64) error {
		return stream.Send(&clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: fmt.Sprint("c", revision)}}})
	}
	bookmark := func(revision int64) error {
		return stream.Send(&clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_Bookmark{}})
	}
	switch number {
	case 1: // breaks before it has caught up
		_ = cluster(4)
	case 2:
		_, _ = cluster(4), bookmark(5)
	case 3:
		_ = cluster(6)
	case 4:
		return apierror.ToGRPC(apierror.New(apierror.FailedPrecondition, "The changes are not stored any more.").WithReason(ReasonRevisionCompacted), "test")
	case 5:
		_, _ = cluster(8), bookmark(9)
	default:
		close(w.ended)
		<-stream.Context().Done()
	}
	return nil
}

// events records what a handler receives.
type events []string

func (e *events) Changed(r *clusterservicev1.WatchResponse) { *e = append(*e, r.GetCluster().GetUid()) }
func (e *events) Restarted()                                { *e = append(*e, "restarted") }
func (e *events) CaughtUp()                                 { *e = append(*e, "caught up") }

// serve serves a Cluster Service until the test ends.
func serve(t *testing.T, service clusterservicev1.ClusterServiceServer) *grpc.ClientConn {
	t.Helper()
	return grpctest.Dial(t, grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, service) }))
}

// TestFollowerResumesAndRestarts breaks watches: one that has caught up resumes, and others start again.
func TestFollowerResumesAndRestarts(t *testing.T) {
	service := &watches{ended: make(chan struct{})}
	var got events
	follower := NewFollower(clusterservicev1.NewClusterServiceClient(serve(t, service)), &got, slog.New(slog.DiscardHandler))
	if follower.Ready(t.Context()) == nil || follower.Stale().IsZero() {
		t.Error("a watch that has not begun is ready")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(ctx) }()
	<-service.ended
	stop()
	<-done
	if want := (events{"restarted", "c4", "restarted", "c4", "caught up", "c6", "restarted", "c8", "caught up"}); !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
	if want := []int64{0, 0, 5, 6, 0, 9}; !slices.Equal(service.after, want) {
		t.Errorf("watched after %v, want %v", service.after, want)
	}
}

// changes is a Cluster Service at revision 7 that has lost its history once.
type changes struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu    sync.Mutex
	after []int64
	ended chan struct{}
}

func (c *changes) ListClusters(_ context.Context, request *clusterservicev1.ListClustersRequest) (*clusterservicev1.ListClustersResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if request.GetPageSize() != 1 {
		return nil, apierror.ToGRPC(apierror.New(apierror.Invalid, "The page is too large."), "test")
	}
	return &clusterservicev1.ListClustersResponse{Revision: 7 + 10*int64(len(c.after))}, nil
}

func (c *changes) Watch(request *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	c.mu.Lock()
	c.after = append(c.after, request.GetAfterRevision())
	number := len(c.after)
	c.mu.Unlock()
	switch number {
	case 1:
		_ = stream.Send(&clusterservicev1.WatchResponse{Revision: 8, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: "c8"}}})
	case 2:
		return apierror.ToGRPC(apierror.New(apierror.FailedPrecondition, "The changes are not stored any more.").WithReason(ReasonRevisionCompacted), "test")
	default:
		close(c.ended)
		<-stream.Context().Done()
	}
	return nil
}

// TestChangeFollowerBeginsAtTheCurrentRevision follows changes without reading all resources, also after the history was lost.
func TestChangeFollowerBeginsAtTheCurrentRevision(t *testing.T) {
	service := &changes{ended: make(chan struct{})}
	var got events
	follower := NewChangeFollower(clusterservicev1.NewClusterServiceClient(serve(t, service)), &got, time.Now, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); follower.Run(ctx) }()
	<-service.ended
	stop()
	<-done
	if want := (events{"restarted", "c8", "restarted"}); !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
	if want := []int64{7, 8, 27}; !slices.Equal(service.after, want) {
		t.Errorf("watched after %v, want %v", service.after, want)
	}
}
