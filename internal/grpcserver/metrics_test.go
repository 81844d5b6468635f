package grpcserver

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestCodeOf(t *testing.T) {
	for want, err := range map[string]error{
		"OK":               nil,
		"NotFound":         status.Error(codes.NotFound, "missing"),
		"Unknown":          errors.New("no status"),
		"Canceled":         context.Canceled,
		"DeadlineExceeded": context.DeadlineExceeded,
	} {
		if got := codeOf(err); got != want {
			t.Errorf("the code of %v is %s, want %s", err, got, want)
		}
	}
	if got := codeOf(status.Error(codes.Code(4711), "from a proxy")); got != "Unknown" {
		t.Errorf("an unknown code is exported as %s", got)
	}
}

// TestCallsAreCounted checks that refused calls count, and that methods have series before their first call.
func TestCallsAreCounted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	server := grpc.NewServer(m.ServerOptions()...)
	defer server.Stop()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	m.Initialize(server)
	service := grpc_health_v1.Health_ServiceDesc.ServiceName
	if n := testutil.CollectAndCount(m.started); n != 3 {
		t.Errorf("%d methods have series, want Check, List and Watch", n)
	}
	refuse := func(context.Context, any) (any, error) { return nil, status.Error(codes.PermissionDenied, "refused") }
	_, _ = m.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: grpc_health_v1.Health_Check_FullMethodName}, refuse)
	_ = m.stream(nil, nil, &grpc.StreamServerInfo{FullMethod: grpc_health_v1.Health_Watch_FullMethodName, IsServerStream: true},
		func(any, grpc.ServerStream) error { return nil })
	for name, got := range map[string]float64{
		"started unary": testutil.ToFloat64(m.started.WithLabelValues(unaryCall, service, "Check")),
		"refused unary": testutil.ToFloat64(m.handled.WithLabelValues(unaryCall, service, "Check", "PermissionDenied")),
		"ended stream":  testutil.ToFloat64(m.handled.WithLabelValues(serverStream, service, "Watch", "OK")),
	} {
		if got != 1 {
			t.Errorf("%s: %v calls are counted, want 1", name, got)
		}
	}
	if n := testutil.CollectAndCount(m.handling); n != 1 {
		t.Errorf("%d durations are exported, want that of the unary call", n)
	}
}
