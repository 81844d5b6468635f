// Package server is the HTTP API of a store of spans: it receives them with OTLP and responds to queries with JSON. Main is the program
// trace-store.
package server

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

// maxExport bounds the body of an export request, also after decompression.
const maxExport = 16 << 20

// New returns the HTTP API of a store: OTLP/HTTP exports in the binary encoding at /v1/traces, and queries.
func New(store *spans.Store, metrics prometheus.Registerer) http.Handler {
	h := &handler{store: store, received: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trace_store_spans_total",
		Help: "Number of received spans, by result: stored, malformed, or dropped because their trace has too many spans.",
	}, []string{"result"})}
	for _, result := range []string{"stored", "malformed", "dropped"} {
		h.received.WithLabelValues(result)
	}
	metrics.MustRegister(h.received, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trace_store_traces",
		Help: "Number of traces in memory.",
	}, func() float64 { traces, _ := store.Size(); return float64(traces) }))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", h.export)
	mux.HandleFunc("GET /api/traces", h.find)
	mux.HandleFunc("GET /api/traces/{id}", h.read)
	return mux
}

// parameters are the attributes by which traces are found, by the name of the query parameter.
var parameters = map[string]string{"operation": spans.Operation, "correlation": spans.Correlation, "resource": spans.Resource}

type handler struct {
	store    *spans.Store
	received *prometheus.CounterVec
}

// export stores the spans of an OTLP request.
func (h *handler) export(w http.ResponseWriter, r *http.Request) {
	request, err := readExport(r)
	if err != nil {
		http.Error(w, "invalid export request: "+err.Error(), http.StatusBadRequest)
		return
	}
	decoded, malformed := decode(request)
	h.received.WithLabelValues("malformed").Add(float64(malformed))
	for _, span := range decoded {
		result := "stored"
		if !h.store.Add(span) {
			result = "dropped"
		}
		h.received.WithLabelValues(result).Inc()
	}
	// An empty message of the binary encoding is the response of full success.
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

func readExport(r *http.Request) (*collector.ExportTraceServiceRequest, error) {
	if t := r.Header.Get("Content-Type"); t != "application/x-protobuf" {
		return nil, fmt.Errorf("the content type %q is not application/x-protobuf", t)
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unpacked
	}
	data, err := io.ReadAll(io.LimitReader(body, maxExport+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxExport {
		return nil, fmt.Errorf("the body exceeds %d bytes", maxExport)
	}
	var request collector.ExportTraceServiceRequest
	return &request, proto.Unmarshal(data, &request)
}

// find responds with the traces of an operation, a correlation ID or a resource.
func (h *handler) find(w http.ResponseWriter, r *http.Request) {
	attribute, value, err := parameter(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	respond(w, h.store.Find(attribute, value))
}

// parameter returns the attribute and the value of a query.
func parameter(r *http.Request) (attribute, value string, err error) {
	names := slices.Sorted(maps.Keys(parameters))
	query := r.URL.Query()
	for _, name := range names {
		if v := query.Get(name); v != "" && len(query) == 1 {
			return parameters[name], v, nil
		}
	}
	return "", "", errors.New("exactly one of the parameters " + strings.Join(names, ", ") + " is required")
}

// read responds with one trace.
func (h *handler) read(w http.ResponseWriter, r *http.Request) {
	trace := h.store.Trace(r.PathValue("id"))
	if trace == nil {
		http.Error(w, "no such trace", http.StatusNotFound)
		return
	}
	respond(w, []*spans.Trace{trace})
}

func respond(w http.ResponseWriter, traces []*spans.Trace) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(spans.Answer{Traces: traces})
}
