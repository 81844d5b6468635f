package app_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
)

// openWatches is an API whose watches stay open until their client ends them.
type openWatches struct {
	csv1.UnimplementedClusterServiceServer
}

func (openWatches) Watch(_ *csv1.WatchRequest, stream grpc.ServerStreamingServer[csv1.WatchResponse]) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// TestStreamsOfWorkloadAreLimited opens watches as the backend over several connections, until one is refused. A watch that ends
// makes room for another one.
func TestStreamsOfWorkloadAreLimited(t *testing.T) {
	t.Parallel()
	region := meshtest.New(t)
	server := app.NewServer(region.Identity(mesh.ClusterService), openWatches{}, intenttest.New(t).Verifier, service.NewCallAuditor(audittest.New(t, "cluster-service", 0)), slog.New(slog.DiscardHandler), grpcserver.NewMetrics(prometheus.NewRegistry()))
	address := region.Serve(server)
	var clients []csv1.ClusterServiceClient
	for range 4 {
		clients = append(clients, csv1.NewClusterServiceClient(region.Dial(mesh.Backend, mesh.ClusterService, address)))
	}
	// watch returns nil if the server has accepted the watch.
	watch := func(ctx context.Context, client csv1.ClusterServiceClient) error {
		stream, err := client.Watch(ctx, &csv1.WatchRequest{})
		if err != nil {
			return err
		}
		if header, err := stream.Header(); err != nil || header != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	first, end := context.WithCancel(t.Context())
	defer end()
	for i := range mesh.MaxStreams {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		if err := watch(ctx, clients[i%len(clients)]); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	for _, client := range clients {
		if err := watch(t.Context(), client); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "backend") {
			t.Errorf("a watch above the limit: %v", err)
		}
	}
	end()
	eventually.Soon(t, "another watch is accepted after one has ended", func() error { return watch(t.Context(), clients[1]) })

	ctx := metadata.AppendToOutgoingContext(t.Context(), "large", strings.Repeat("x", 100<<10))
	if _, err := clients[0].GetCluster(ctx, &csv1.GetClusterRequest{}); status.Code(err) == codes.Unimplemented || err == nil {
		t.Errorf("a call with 100 KiB of metadata: %v", err)
	}
}
