package server

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func id(first byte, length int) []byte {
	b := make([]byte, length)
	b[0] = first
	return b
}

func export(spans ...*otlp.Span) []byte {
	body, _ := proto.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: []*otlp.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{text("service.name", "backend")}}, ScopeSpans: []*otlp.ScopeSpans{{Spans: spans}},
	}}})
	return body
}

func post(h http.Handler, body []byte, header ...string) int {
	r := httptest.NewRequest(http.MethodPost, "/v1/traces", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-protobuf")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func get(t *testing.T, h http.Handler, target string) (int, spans.Answer) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	var answer spans.Answer
	if w.Code == http.StatusOK {
		must.Do(t, json.Unmarshal(w.Body.Bytes(), &answer))
	}
	return w.Code, answer
}

// TestExportedSpansAreFound checks all fields of a span, and that its trace is found by each parameter.
func TestExportedSpansAreFound(t *testing.T) {
	h := New(spans.NewStore(spans.DefaultLimits()), prometheus.NewRegistry())
	body := export(&otlp.Span{
		TraceId: id(1, 16), SpanId: id(2, 8), ParentSpanId: id(3, 8), Name: "send Create", Kind: otlp.Span_SPAN_KIND_CLIENT,
		StartTimeUnixNano: 1e9, EndTimeUnixNano: 3e9, Status: &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: "unavailable"},
		Attributes: []*common.KeyValue{text("hcpmesh.operation_id", "op"), text("hcpmesh.correlation_id", "corr"), text("hcpmesh.resource_id", "/Clusters/A"),
			{Key: "count", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 7}}}},
		Links: []*otlp.Span_Link{{TraceId: id(9, 16)}},
	})
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(body)
	_ = w.Close()
	if code := post(h, packed.Bytes(), "Content-Encoding", "gzip"); code != http.StatusOK {
		t.Fatalf("the export responded %d", code)
	}
	for _, target := range []string{"/api/traces?operation=op", "/api/traces?correlation=CORR", "/api/traces?resource=/clusters/a", "/api/traces/01000000000000000000000000000000"} {
		code, answer := get(t, h, target)
		if code != http.StatusOK || len(answer.Traces) != 1 || len(answer.Traces[0].Spans) != 1 {
			t.Fatalf("%s: %d %+v", target, code, answer)
		}
		got := answer.Traces[0].Spans[0]
		if got.Duration().Seconds() != 2 {
			t.Errorf("%s: the duration is %s", target, got.Duration())
		}
		want := &spans.Span{TraceID: "01000000000000000000000000000000", SpanID: "0200000000000000", ParentID: "0300000000000000", Name: "send Create", Service: "backend",
			Kind: "client", Start: got.Start, End: got.End, Failed: true, Message: "unavailable", Links: []string{"09000000000000000000000000000000"},
			Attributes: map[string]string{"hcpmesh.operation_id": "op", "hcpmesh.correlation_id": "corr", "hcpmesh.resource_id": "/Clusters/A", "count": "7"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
	}
}

// TestInvalidRequests checks that malformed exports and queries are refused, and that malformed spans are counted.
func TestInvalidRequests(t *testing.T) {
	metrics := prometheus.NewRegistry()
	h := New(spans.NewStore(spans.DefaultLimits()), metrics)
	if code := post(h, []byte("garbage\xff")); code != http.StatusBadRequest {
		t.Errorf("garbage: %d", code)
	}
	if code := post(h, []byte("{}"), "Content-Type", "application/json"); code != http.StatusBadRequest {
		t.Errorf("JSON: %d", code)
	}
	if code := post(h, []byte("not gzip"), "Content-Encoding", "gzip"); code != http.StatusBadRequest {
		t.Errorf("no gzip: %d", code)
	}
	if code := post(h, export(&otlp.Span{TraceId: []byte{1}, SpanId: id(1, 8)})); code != http.StatusOK {
		t.Errorf("a malformed span: %d", code)
	}
	want := `# HELP trace_store_spans_total Number of received spans, by result: stored, malformed, or dropped because their trace has too many spans.
# TYPE trace_store_spans_total counter
trace_store_spans_total{result="dropped"} 0
trace_store_spans_total{result="malformed"} 1
trace_store_spans_total{result="stored"} 0
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "trace_store_spans_total"); err != nil {
		t.Error(err)
	}
	for target, want := range map[string]int{
		"/api/traces": http.StatusBadRequest, "/api/traces?operation=": http.StatusBadRequest, "/api/traces?operation=a&resource=b": http.StatusBadRequest,
		"/api/traces?operation=unknown": http.StatusOK, "/api/traces/ffff": http.StatusNotFound,
	} {
		if code, answer := get(t, h, target); code != want || len(answer.Traces) != 0 {
			t.Errorf("%s: %d with %d traces, want %d", target, code, len(answer.Traces), want)
		}
	}
}
