package clusterservice

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
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

// TestFollowerResumesAndRestarts breaks watches: one that has caught up resumes, and others start again.
func TestFollowerResumesAndRestarts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &watches{ended: make(chan struct{})}
	server := grpc.NewServer()
	clusterservicev1.RegisterClusterServiceServer(server, service)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	connection, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	var got events
	follower := NewFollower(clusterservicev1.NewClusterServiceClient(connection), &got, slog.New(slog.DiscardHandler))
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
