package server

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/armheader"
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

// slowRead is how long a successful read may take without being logged.
const slowRead = time.Second

// observe counts the request and writes its one line to the log: successful reads only when asked for everything, since
// there are thousands a second. Neither holds anything of a body, of a token, or of a query.
func observe(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	started := s.Now()
	defer func() { s.record(ctx, rq, s.Now().Sub(started)) }()
	next(ctx)
}

// outcome is the status that the caller sees, whether it was written yet or a panic is still to be answered.
func (rq *request) outcome() int {
	switch {
	case rq.w.status != 0:
		return rq.w.status
	case rq.answered:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

func (s *Server) record(ctx context.Context, rq *request, took time.Duration) {
	status := rq.outcome()
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
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attributes := append([]slog.Attr{
		slog.String("method", rq.http.Method), slog.String("path", rq.http.URL.Path), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.String("client_request_id", shortened(rq.http.Header.Get(armheader.ClientRequestID))),
	}, rq.identity()...)
	s.Log.LogAttrs(ctx, level, "request", append(attributes, rq.failure()...)...)
}

// identity is what every line about a request has.
func (rq *request) identity() []slog.Attr {
	attributes := []slog.Attr{
		slog.String("request_id", rq.requestID), slog.String("correlation_id", rq.correlationID),
		slog.String("resource_id", rq.resourceID), slog.String("operation_id", rq.operationID), slog.String("api_version", rq.apiVersion()),
	}
	if rq.traceID != "" {
		attributes = append(attributes, slog.String("trace_id", rq.traceID))
	}
	return attributes
}

// failure is what the log is told of why a request failed. What a caller is told about its own request may repeat what it
// sent: of that only the code and the fields are logged, and our own reason.
func (rq *request) failure() []slog.Attr {
	if rq.cause == nil {
		return nil
	}
	e := apierror.As(rq.cause)
	attributes := []slog.Attr{slog.String("error_code", describe(e).Code)}
	if e.Kind.HTTPStatus() >= http.StatusInternalServerError {
		return append(attributes, slog.String("error", rq.cause.Error()))
	}
	if e.Cause != nil {
		attributes = append(attributes, slog.String("error", e.Cause.Error()))
	}
	if len(e.Violations) > 0 {
		fields := make([]string, 0, maxLoggedFields)
		for _, violation := range e.Violations[:min(len(e.Violations), maxLoggedFields)] {
			fields = append(fields, place(violation.Field))
		}
		attributes = append(attributes, slog.Int("violations", len(e.Violations)), slog.Any("fields", fields))
	}
	return attributes
}

// maxLoggedFields is how many wrong fields the log names.
const maxLoggedFields = 10

// place is a field without the names in it that the caller chose: tags[x] is tags[].
func place(field string) string {
	var kept strings.Builder
	depth := 0
	for _, c := range field {
		switch c {
		case '[':
			if depth++; depth == 1 {
				kept.WriteString("[]")
			}
		case ']':
			depth = max(depth-1, 0)
		default:
			if depth == 0 {
				kept.WriteRune(c)
			}
		}
	}
	return shortened(kept.String())
}

// shortened bounds what is taken from a caller into the log.
func shortened(text string) string {
	if len(text) > maxHeader {
		return strings.ToValidUTF8(text[:maxHeader], "") + "…"
	}
	return text
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
		if namesAgent(text, known.part) {
			return known.name
		}
	}
	return "other"
}

// namesAgent reports whether a text begins with part, or has it before a slash or a dash.
func namesAgent(text, part string) bool {
	for from := 0; ; from++ {
		at := strings.Index(text[from:], part)
		if at < 0 {
			return false
		}
		from += at
		if end := from + len(part); from == 0 || end < len(text) && (text[end] == '/' || text[end] == '-') {
			return true
		}
	}
}
