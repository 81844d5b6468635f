package grpctest_test

import (
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

func TestServiceIsServedUntilTestEnds(t *testing.T) {
	var connection *grpc.ClientConn
	t.Run("inner", func(t *testing.T) {
		connection = grpctest.Dial(t, grpctest.Serve(t, func(s grpc.ServiceRegistrar) { healthv1.RegisterHealthServer(s, health.NewServer()) }))
		if _, err := healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{}); err == nil {
		t.Error("the service responds after the end of its test")
	}
}
