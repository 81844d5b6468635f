package grpcserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// RegisterHealth makes a server respond to CheckHealth as long as it responds at all.
func RegisterHealth(server grpc.ServiceRegistrar) {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
}

// CheckHealth sends a request of gRPC's health service and returns nil if the server responds. A ready connection proves nothing, because the
// connection to a hung server stays open. A server without the service responds with Unimplemented, as the published Maestro does. The caller
// sets the deadline in the context.
func CheckHealth(ctx context.Context, connection grpc.ClientConnInterface) error {
	response, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch status.Code(err) {
	case codes.OK:
		if state := response.GetStatus(); state != grpc_health_v1.HealthCheckResponse_SERVING {
			return fmt.Errorf("the server reports the state %s", state)
		}
		return nil
	case codes.Unimplemented:
		return nil
	case codes.Unavailable:
		return errors.New("the server cannot be reached")
	case codes.DeadlineExceeded:
		return fmt.Errorf("the server does not respond: %w", context.DeadlineExceeded)
	}
	return fmt.Errorf("the server rejects the request: %s", status.Code(err))
}
