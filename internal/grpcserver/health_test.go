package grpcserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
)

func TestRespondingServers(t *testing.T) {
	for name, register := range map[string]func(grpc.ServiceRegistrar){"health service": RegisterHealth, "no health service": func(grpc.ServiceRegistrar) {}} {
		var connection *grpc.ClientConn
		t.Run(name, func(server *testing.T) {
			connection = grpctest.Dial(t, grpctest.Serve(server, register))
			if err := CheckHealth(t.Context(), connection); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		eventually.Soon(t, "the stopped server is reported", func() error {
			if CheckHealth(t.Context(), connection) == nil {
				return errors.New("it responds")
			}
			return nil
		})
	}
}

// TestHungServer checks a server whose connection is ready and that responds to no request.
func TestHungServer(t *testing.T) {
	release := make(chan struct{})
	connection := grpctest.Dial(t, grpctest.Serve(t, RegisterHealth, grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		<-release
		return handle(ctx, request)
	})))
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
	if err := CheckHealth(ctx, connection); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
