package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

// newTraceStore returns the URL of a trace store that has the trace of one create with the operation ID op and the correlation ID corr.
func newTraceStore(t *testing.T) string {
	t.Helper()
	at := time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	span := func(id, parent, service, name string, start, duration time.Duration) *spans.Span {
		return &spans.Span{TraceID: "t", SpanID: id, ParentID: parent, Service: service, Name: name, Start: at.Add(start), End: at.Add(start + duration)}
	}
	published := span("4", "3", "cluster-service", "publish work", 30*time.Millisecond, 12*time.Millisecond)
	published.Attributes = map[string]string{"hcpmesh.work": "a-00-namespaces", "hcpmesh.consumer": "mgmt-1"}
	awaited := span("7", "3", "cluster-service", "await control-plane EtcdWaitingForQuorum", 500*time.Millisecond, 6*time.Second)
	awaited.Attributes = map[string]string{"hcpmesh.resource_id": "/subscriptions/s/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"}
	failed := span("5", "1", "backend", "operation Create", 0, 3096*time.Millisecond)
	failed.Failed, failed.Message = true, "InternalServerError"
	answer := spans.Answer{Traces: []*spans.Trace{{ID: "0af7651916cd43dd8448eb211c80319c", Dropped: 2, Spans: []*spans.Span{
		span("1", "", "frontend", "PUT /subscriptions/{subscriptionId}/resourceGroups/{resourceGroup}/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/{cluster}", 0, 4967*time.Microsecond), failed, span("3", "1", "cluster-service", "hcpmesh.clusterservice.v1.ClusterService/ApplyCluster", 6*time.Millisecond, 20*time.Millisecond),
		published, awaited, span("6", "gone", "mgmt-1-maestro-agent", "apply work", time.Second, time.Second),
	}}}}
	poll := &spans.Trace{ID: "poll", Spans: []*spans.Span{{Service: "frontend", Name: "GET status", Start: at, End: at, Attributes: map[string]string{"http.request.method": "GET"}}}}
	answer.Traces = append(answer.Traces, poll)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RequestURI() {
		case "/api/traces?operation=op", "/api/traces?correlation=corr", "/api/traces?resource=%2Fsubscriptions%2Fs", "/api/traces/0af7651916cd43dd8448eb211c80319c":
			if strings.HasPrefix(r.URL.Path, "/api/traces/") {
				_ = json.NewEncoder(w).Encode(spans.Answer{Traces: answer.Traces[:1]})
				return
			}
			_ = json.NewEncoder(w).Encode(answer)
		case "/api/traces/ffffffffffffffffffffffffffffffff":
			http.NotFound(w, r)
		default:
			_ = json.NewEncoder(w).Encode(spans.Answer{})
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func traceCommand(t *testing.T, args ...string) (out, warnings string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	root := New(&stdout, &stderr)
	root.SetArgs(append([]string{"trace"}, args...))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestTraceIsPrintedAsTree checks the tree of spans, and that each identifier finds it.
func TestTraceIsPrintedAsTree(t *testing.T) {
	store := newTraceStore(t)
	for _, identifier := range []string{"op", "corr", "/subscriptions/s", "0af7651916cd43dd8448eb211c80319c"} {
		out, warnings, err := traceCommand(t, identifier, "--store", store)
		if err != nil {
			t.Fatalf("%s: %v", identifier, err)
		}
		want := `trace 0af7651916cd43dd8448eb211c80319c, began 2026-11-24T08:00:00Z
BEGIN DURATION SERVICE SPAN SUBJECT ERROR
+0s 4.97ms frontend PUT …/hcpOpenShiftClusters/{cluster} - -
+0s 3.1s backend ├ operation Create - failed: InternalServerError
+6ms 20ms cluster-service └ ClusterService/ApplyCluster - -
+30ms 12ms cluster-service ├ publish work a-00-namespaces on mgmt-1 -
+500ms 6s cluster-service └ await control-plane EtcdWaitingForQuorum demo -
+1s 1s mgmt-1-maestro-agent apply work - -`
		var got []string
		for line := range strings.Lines(out) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", identifier, diff)
		}
		if !strings.Contains(warnings, "dropped 2 later spans") {
			t.Errorf("the warnings are %q", warnings)
		}
	}
	if out, _, err := traceCommand(t, "op", "--store", store, "--reads"); err != nil || !strings.Contains(out, "GET status") {
		t.Errorf("with reads: %s with %v", out, err)
	}
	out, _, err := traceCommand(t, "op", "--store", store, "-o", "json")
	var answer spans.Answer
	if err != nil || json.NewDecoder(strings.NewReader(out)).Decode(&answer) != nil || len(answer.Traces) != 1 || len(answer.Traces[0].Spans) != 6 {
		t.Errorf("the JSON is %s with %v", out, err)
	}
}

// TestTraceFailures checks the exit codes for an unknown operation and an unreachable store.
func TestTraceFailures(t *testing.T) {
	store := newTraceStore(t)
	for _, identifier := range []string{"other", "ffffffffffffffffffffffffffffffff"} {
		if _, _, err := traceCommand(t, identifier, "--store", store); ExitCode(err) != exitNotFound {
			t.Errorf("%s: %v", identifier, err)
		}
	}
	if _, _, err := traceCommand(t, "op", "--store", "http://"+netfault.ClosedAddress(t)); ExitCode(err) != exitUnavailable {
		t.Errorf("an unreachable store: %v", err)
	}
}

// TestSpanTreeOfCycles checks that spans that name each other as parents do not make the tree endless.
func TestSpanTreeOfCycles(t *testing.T) {
	if lines := spanTree([]*spans.Span{{SpanID: "1", ParentID: "2"}, {SpanID: "2", ParentID: "1"}}); len(lines) > 2 {
		t.Errorf("%d lines", len(lines))
	}
}
