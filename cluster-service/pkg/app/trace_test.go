package app_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// TestTraceShowsWhereTimeGoes checks that the trace of a creation has the publications and the waits of the cluster, that Maestro receives its
// context, and that what happens after the creation is not in it.
func TestTraceShowsWhereTimeGoes(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	r.traces = tracing.With(provider, provider.Shutdown)
	var starting sync.Map
	starting.Store("now", true)
	r.runManagementClustersWith(func(object maestrotest.Object) {
		if object["kind"] != "HostedCluster" {
			return
		}
		at := "2026-01-01T10:00:07Z"
		if _, now := starting.Load("now"); now {
			at = "2026-01-01T10:00:00Z"
			report(object, map[string][3]string{"Available": {"False", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum"}})
		}
		for _, c := range object["status"].(maestrotest.Object)["conditions"].([]any) {
			c.(maestrotest.Object)["lastTransitionTime"] = at
		}
	})
	service := r.start(nil)
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	request := applyRequest("traced", 1)
	must.Get(service.ApplyCluster(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-b7ad6b7169203331-01"), request))(t)
	service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool {
		return outermost(c.GetStatus().GetProgress(), "control-plane", "EtcdWaitingForQuorum")
	})
	starting.Delete("now")
	r.maestro.Touch()
	service.awaitCluster(t, request.Uid, clusterReady(1))
	// The spans of a commit are recorded after it.
	var available tracetest.SpanStub
	named := func() map[string]int {
		found := map[string]int{}
		for _, s := range spans.GetSpans() {
			if s.SpanContext.TraceID().String() == traceID {
				found[s.Name]++
				if s.Name == "await HostedCluster Available" {
					available = s
				}
				if s.EndTime.Before(s.StartTime) {
					t.Errorf("%s ends before it begins", s.Name)
				}
			}
		}
		return found
	}
	var before map[string]int
	for _, name := range []string{"publish apply", "await control-plane EtcdWaitingForQuorum", "await HostedCluster Available"} {
		eventually.Soon(t, "the trace has the span "+name, func() error {
			if before = named(); before[name] == 0 {
				return fmt.Errorf("it has only %v", before)
			}
			return nil
		})
	}
	if d := available.EndTime.Sub(available.StartTime); d != 7*time.Second || available.EndTime.Hour() != 10 {
		t.Errorf("the control plane became available at %v after %v", available.EndTime, d)
	}
	for key, want := range map[attribute.Key]string{tracing.Condition: "Available", tracing.Consumer: "mgmt-1", tracing.ClusterUID: request.Uid} {
		if !slices.Contains(available.Attributes, key.String(want)) {
			t.Errorf("the span has %v, want %s=%s", available.Attributes, key, want)
		}
	}
	for _, held := range r.maestro.Resources() {
		if !strings.Contains(held.TraceParent, traceID) {
			t.Errorf("Maestro has bundle %s with the trace context %q", held.Name, held.TraceParent)
		}
	}

	// The next change has another trace: the first one must not grow.
	request.Generation, request.Spec.Api.AuthorizedCidrs = 2, []string{"192.0.2.0/24"}
	service.applyUntilReady(t, request)
	if after := named(); after["publish apply"] != before["publish apply"] {
		t.Errorf("the trace had %v and has %v", before, after)
	}
}
