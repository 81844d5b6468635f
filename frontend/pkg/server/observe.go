package server

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// metrics holds the metrics that the service's dashboards use.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	panics    prometheus.Counter
	// known has the series of all labels that occurred. The search in the vectors costs several times more.
	known memo[labels, series]
	// agents has the names of User-Agent headers.
	agents memo[string, string]
	// waits observes how long requests wait for a seat, and refused counts those that get none, or are too frequent.
	waits   prometheus.Histogram
	refused *prometheus.CounterVec
}

// labels are the labels of a request's series.
type labels struct {
	version, method string
	status          int
	route           string
	state           string
	userAgent       string
}

// series are the series of requests with the same labels.
type series struct {
	requests  prometheus.Counter
	durations prometheus.Observer
}

// seriesOf returns the series of labels.
func (m *metrics) seriesOf(l labels) series {
	return m.known.get(l, func() series {
		code := strconv.Itoa(l.status)
		return series{m.requests.WithLabelValues(l.version, l.method, code, l.route, l.state, l.userAgent), m.durations.WithLabelValues(l.version, l.method, code, l.route)}
	})
}

// agentOf returns the name of a User-Agent header. Long headers are not remembered, because clients choose them.
func (m *metrics) agentOf(header string) string {
	if len(header) > maxHeader {
		return userAgent(header)
	}
	return m.agents.get(header, func() string { return userAgent(header) })
}

func newMetrics(registry prometheus.Registerer, subscriptions *subscriptionCache, healthy func() bool) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "frontend_http_requests_total", Help: "Number of completed requests.",
		}, []string{"api_version", "method", "code", "route", "state", "user_agent"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "frontend_http_requests_duration_seconds", Help: "Duration of requests in seconds.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"api_version", "method", "code", "route"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "frontend_http_request_panics_total", Help: "Number of requests whose handling panicked.",
		}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "frontend_request_wait_seconds", Help: "Time that requests wait for a seat in seconds.",
			Buckets: []float64{.001, .01, .1, .5, 1, 5},
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "frontend_requests_refused_total", Help: "Number of requests that were refused, by cause: too many concurrent requests of the subscription or of all, or too many requests of a client outside of subscriptions in a time.",
		}, []string{"reason"}),
	}
	health := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_health", Help: "Readiness of the frontend: 1 if all dependencies are ready, otherwise 0.",
	}, func() float64 {
		if healthy != nil && !healthy() {
			return 0
		}
		return 1
	})
	registry.MustRegister(m.requests, m.durations, m.panics, m.waits, m.refused, health, subscriptions)
	return m
}

// slowRead is the duration from which successful reads are logged at level info.
const slowRead = time.Second

// observe records the metrics of a request and logs it. Successful reads are logged at level debug only, because there
// are thousands per second. Neither contains anything of a body, a token or a query.
func observe(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	started := s.Now()
	defer func() { s.record(ctx, rq, s.Now().Sub(started)) }()
	next(ctx)
}

// responseStatus returns the status that the caller receives, including that of a panic that is not handled yet.
func (rq *request) responseStatus() int {
	switch {
	case rq.w.status != 0:
		return rq.w.status
	case rq.answered:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

func (s *Server) record(ctx context.Context, rq *request, took time.Duration) {
	status := rq.responseStatus()
	version, state := "", ""
	if rq.version != nil {
		version = rq.version.Name
	}
	if rq.subscription != nil {
		state = string(rq.subscription.State)
	}
	of := s.metrics.seriesOf(labels{version, knownMethod(rq.http.Method), status, rq.match.pattern, state, s.metrics.agentOf(rq.http.UserAgent())})
	of.requests.Inc()
	of.durations.Observe(took.Seconds())

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
		slog.String(logkey.Client, mesh.ClientName(ctx)), slog.String(logkey.Method, rq.http.Method), slog.String(logkey.Path, rq.http.URL.Path), slog.Int(logkey.Status, status),
		slog.String(logkey.Duration, took.Round(time.Microsecond).String()),
		slog.String(logkey.ClientRequestID, truncated(rq.http.Header.Get(armheader.ClientRequestID))),
	}, rq.identity()...)
	s.Log.LogAttrs(ctx, level, "request", append(attributes, rq.failure()...)...)
}

// identity returns the attributes of every log record about a request.
func (rq *request) identity() []slog.Attr {
	attributes := []slog.Attr{
		slog.String(logkey.RequestID, rq.requestID), slog.String(logkey.CorrelationID, rq.correlationID),
		slog.String(logkey.ResourceID, rq.resourceID), slog.String(logkey.OperationID, rq.operationID), slog.String(logkey.APIVersion, rq.apiVersion()),
	}
	if rq.span.IsValid() {
		attributes = append(attributes, slog.String(logkey.TraceID, rq.span.TraceID().String()))
	}
	return attributes
}

// failure returns the attributes that describe why a request failed. Messages for the caller may repeat parts of the
// request and are not logged: the record contains the code, the fields and the internal cause.
func (rq *request) failure() []slog.Attr {
	if rq.cause == nil {
		return nil
	}
	e := apierror.As(rq.cause)
	attributes := []slog.Attr{slog.String(logkey.ErrorCode, describe(e).Code)}
	if e.Kind.HTTPStatus() >= http.StatusInternalServerError {
		return append(attributes, slog.String(logkey.Error, rq.cause.Error()))
	}
	if e.Cause != nil {
		attributes = append(attributes, slog.String(logkey.Error, e.Cause.Error()))
	}
	if len(e.Violations) > 0 {
		fields := make([]string, 0, maxLoggedFields)
		for _, violation := range e.Violations[:min(len(e.Violations), maxLoggedFields)] {
			fields = append(fields, withoutKeys(violation.Field))
		}
		attributes = append(attributes, slog.Int(logkey.Violations, len(e.Violations)), slog.Any(logkey.Fields, fields))
	}
	return attributes
}

// maxLoggedFields is the most fields that a log record names.
const maxLoggedFields = 10

// withoutKeys returns the path of a field without the keys that the caller chose: tags[x] becomes tags[].
func withoutKeys(field string) string {
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
	return truncated(kept.String())
}

// truncated limits a value of the caller in the log.
func truncated(text string) string {
	if len(text) > maxHeader {
		return strings.ToValidUTF8(text[:maxHeader], "") + "…"
	}
	return text
}

// knownMethods are the methods that metrics and spans name. otherMethod stands for all others.
var knownMethods = []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost, http.MethodHead, http.MethodOptions}

const otherMethod = "other"

func knownMethod(method string) string {
	if slices.Contains(knownMethods, method) {
		return method
	}
	return otherMethod
}

// userAgent maps a User-Agent header to one of a short list, which bounds the number of time series.
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
		if containsAgent(text, known.part) {
			return known.name
		}
	}
	return "other"
}

// containsAgent reports whether text starts with part, or contains it followed by a slash or a hyphen.
func containsAgent(text, part string) bool {
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
