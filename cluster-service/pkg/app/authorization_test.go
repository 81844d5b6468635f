package app_test

import (
	"context"
	"flag"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
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
