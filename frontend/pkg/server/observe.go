package server

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// metrics are the names that the service's dashboards chart.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	panics    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, subscriptions *subscriptionCache, healthy func(ctx context.Context) bool) *metrics {
	labels := []string{"api_version", "method", "code", "route", "state", "user_agent"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "frontend_http_requests_total", Help: "Answered requests.",
		}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "frontend_http_requests_duration_seconds", Help: "How long requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"api_version", "method", "code", "route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "frontend_http_request_panics_total", Help: "Requests whose handling panicked.",
		}),
	}
	health := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_health", Help: "1 when the frontend can serve, 0 when a dependency keeps it from it.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if healthy != nil && !healthy(ctx) {
			return 0
		}
		return 1
	})
	registry.MustRegister(m.requests, m.durations, m.panics, health, subscriptions)
	return m
}

// recoverPanic answers a request whose handling panicked.
func (s *Server) recoverPanic(rq *request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	s.metrics.panics.Inc()
	s.Log.Error("panic", "request_id", rq.requestID, "correlation_id", rq.correlationID, "route", rq.match.pattern,
		"panic", cause, "stack", string(debug.Stack()))
	s.fail(rq, apierror.New(apierror.Internal, "panic"))
}

// slowRead is how long a successful read may take without being logged.
const slowRead = time.Second

// observe counts the request and writes its one line to the log: successful reads only when asked for everything, since
// there are thousands a second.
func (s *Server) observe(rq *request, started time.Time) {
	took := s.Now().Sub(started)
	status := rq.w.status
	if status == 0 {
		status = http.StatusOK
	}
	version, state := "", ""
	if rq.version != nil {
		version = rq.version.Name
	}
	if rq.subscription != nil {
		state = string(rq.subscription.State)
	}
	code, method := strconv.Itoa(status), knownMethod(rq.http.Method)
	s.metrics.requests.WithLabelValues(version, method, code, rq.match.pattern, state, userAgent(rq.http.UserAgent())).Inc()
	s.metrics.durations.WithLabelValues(version, method, code, rq.match.pattern).Observe(took.Seconds())

	level := slog.LevelInfo
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case !rq.writes() && status < http.StatusBadRequest && took < slowRead:
		level = slog.LevelDebug
	}
	ctx := rq.http.Context()
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("method", rq.http.Method), slog.String("path", rq.http.URL.Path), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.String("request_id", rq.requestID), slog.String("correlation_id", rq.correlationID),
		slog.String("client_request_id", rq.http.Header.Get(headerClientRequestID)),
		slog.String("resource_id", rq.resourceID), slog.String("operation_id", rq.operationID), slog.String("api_version", version),
	}
	if rq.cause != nil {
		attributes = append(attributes, slog.String("error_code", describe(apierror.As(rq.cause)).Code), slog.String("error", rq.cause.Error()))
	}
	s.Log.LogAttrs(ctx, level, "request", attributes...)
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost, http.MethodHead, http.MethodOptions:
		return method
	}
	return "other"
}

// userAgent reduces a User-Agent to one of a short list, so that the metric stays small whoever calls.
func userAgent(text string) string {
	text = strings.ToLower(text)
	for _, known := range [...]struct{ part, name string }{
		{"azurecli", "azure-cli"},
		{"azure-cli", "azure-cli"},
		{"terraform", "terraform"},
		{"azurepowershell", "azure-powershell"},
		{"aso", "azure-service-operator"},
		{"cluster-api-provider-azure", "cluster-api-provider-azure"},
		{"azsdk-go", "azure-sdk-go"},
		{"azsdk-js", "azure-sdk-js"},
		{"azsdk-python", "azure-sdk-python"},
		{"azsdk", "azure-sdk"},
		{"hcpctl", "hcpctl"},
		{"curl", "curl"},
		{"go-http-client", "go"},
	} {
		if strings.HasPrefix(text, known.part) || strings.Contains(text, known.part+"/") || strings.Contains(text, known.part+"-") {
			return known.name
		}
	}
	return "other"
}
