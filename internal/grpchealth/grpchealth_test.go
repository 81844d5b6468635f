package grpchealth

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// serve runs a gRPC server and returns a connection to it.
func serve(t *testing.T, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	connection, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func TestRespondingServers(t *testing.T) {
	with := grpc.NewServer()
	Register(with)
	for name, server := range map[string]*grpc.Server{"health service": with, "no health service": grpc.NewServer()} {
		connection := serve(t, server)
		if err := Check(t.Context(), connection); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		server.Stop()
		eventually.Soon(t, "the stopped server is reported", func() error {
			if Check(t.Context(), connection) == nil {
				return errors.New("it responds")
			}
			return nil
		})
	}
}

// TestHungServer checks a server whose connection is ready and that responds to no request.
func TestHungServer(t *testing.T) {
	release := make(chan struct{})
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		<-release
		return handle(ctx, request)
	}))
	Register(server)
	connection := serve(t, server)
	defer close(release)
	connection.Connect()
	eventually.Soon(t, "the connection is ready", func() error {
		if state := connection.GetState(); state != connectivity.Ready {
			return errors.New(state.String())
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := Check(ctx, connection); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
