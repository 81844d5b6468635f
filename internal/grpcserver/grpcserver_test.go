package grpcserver

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// blockingServer is a health server whose Check blocks until it is released. Its Watch never ends by itself.
type blockingServer struct {
	*health.Server
	entered, released chan struct{}
}

func (s *blockingServer) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.entered <- struct{}{}
	<-s.released
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// running is a server with a client that has called Check and Watch.
type running struct {
	*blockingServer
	stop    context.CancelFunc
	served  chan error
	checked chan error
	watch   grpc_health_v1.Health_WatchClient
}

func start(t *testing.T, grace time.Duration) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{blockingServer: &blockingServer{health.NewServer(), make(chan struct{}), make(chan struct{})},
		stop: stop, served: make(chan error, 1), checked: make(chan error, 1)}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer(EndStreams(ctx))
	grpc_health_v1.RegisterHealthServer(server, r)
	go func() { r.served <- Serve(ctx, server, listener, grace) }()
	connection := must.Get(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = connection.Close() })
	client := grpc_health_v1.NewHealthClient(connection)
	r.watch = must.Get(client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}))(t)
	must.Get(r.watch.Recv())(t)
	go func() {
		_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		r.checked <- err
	}()
	<-r.entered
	return r
}

func TestCallsInProgressComplete(t *testing.T) {
	r := start(t, time.Hour)
	r.stop()
	if _, err := r.watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
	close(r.released)
	if err := <-r.checked; err != nil {
		t.Errorf("the call in progress ended with %v", err)
	}
	if err := <-r.served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestCallsEndWithTheGracePeriod(t *testing.T) {
	r := start(t, time.Millisecond)
	r.stop()
	if err := <-r.checked; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in progress ended with %v, want UNAVAILABLE", err)
	}
	close(r.released)
	if err := <-r.served; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}
