package app_test

import (
	"context"
	"flag"
	"log/slog"
	"maps"
	"slices"
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

var update = flag.Bool("update", false, "rewrite the golden file of allowed calls")

// credentialsByClass is an API with one credential per class, whose UID is the name of the class. Its other methods return Unimplemented.
type credentialsByClass struct {
	csv1.UnimplementedClusterServiceServer
}

func (credentialsByClass) GetBreakGlassCredential(_ context.Context, r *csv1.GetBreakGlassCredentialRequest) (*csv1.BreakGlassCredential, error) {
	return &csv1.BreakGlassCredential{Spec: &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass(csv1.BreakGlassClass_value[r.GetUid()])}}, nil
}

// TestAllowedCalls calls each method of each service of the server as each workload, without and with the intent of an engineer for
// exactly this call, in both modes of identity. A method without a rule is an error.
func TestAllowedCalls(t *testing.T) {
	t.Parallel()
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) { testAllowedCalls(t, mode) })
	}
}

func testAllowedCalls(t *testing.T, mode meshtest.Mode) {
	region, admin := meshtest.New(t), intenttest.New(t)
	server := app.NewServer(region.Transport(mode, mesh.ClusterService), credentialsByClass{}, admin.Verifier, service.NewCallAuditor(audittest.New(t, "cluster-service", 0)), slog.New(slog.DiscardHandler), grpcserver.NewMetrics(prometheus.NewRegistry()))
	needed := map[string]bool{}
	for _, rule := range mesh.Rules() {
		for _, grant := range rule.Clients {
			needed[rule.Method] = needed[rule.Method] || grant.Condition.Intent
		}
	}
	var calls []meshtest.Call
	for _, call := range meshtest.Calls(t, mesh.ClusterService, slices.Sorted(maps.Keys(server.GetServiceInfo()))...) {
		if call.Method != csv1.ClusterService_GetBreakGlassCredential_FullMethodName {
			calls = append(calls, call)
			if needed[call.Method] {
				call.Variant, call.Intent = "with an intent", admin.Call(t, call.Method, call.Request)
				calls = append(calls, call)
			}
			continue
		}
		for class := range csv1.BreakGlassClass_value {
			calls = append(calls, meshtest.Call{Method: call.Method, Variant: class, Request: &csv1.GetBreakGlassCredentialRequest{Uid: class}})
		}
	}
	calls = append(calls, meshtest.Call{Method: csv1.ClusterService_ApplyCluster_FullMethodName, Variant: "with recovery data",
		Request: &csv1.ApplyClusterRequest{Recovery: &csv1.ClusterRecovery{}}})
	for name, class := range csv1.BreakGlassClass_value {
		calls = append(calls,
			meshtest.Call{Method: csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName, Variant: name,
				Request: &csv1.ApplyBreakGlassCredentialRequest{Spec: &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass(class)}}},
			meshtest.Call{Method: csv1.ClusterService_RevokeBreakGlassCredentials_FullMethodName, Variant: name,
				Request: &csv1.RevokeBreakGlassCredentialsRequest{Class: csv1.BreakGlassClass(class)}})
	}
	meshtest.Golden(t, "testdata/allowed-calls.golden", region.AllowedCalls(mesh.ClusterService, region.Front(mode, mesh.ClusterService, region.Serve(server)), calls), *update)
}

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
