// Package server serves the REST API of admin: a table of routes with the role of each, and the authentication, authorization,
// idempotency and audit of all requests. Reads query the layers. A request never changes anything itself: it stores the action
// as an admin operation, which the backend executes.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/openapi"
	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/admin/pkg/dump"
	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/lookup"
	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// requestTimeout limits the duration of a request.
const requestTimeout = 30 * time.Second

// Config holds the dependencies of a Server.
type Config struct {
	Database *database.DB
	Fleet    clusterservicev1.ClusterServiceClient
	Maestro  dump.BundleReader
	// Layers observes the components of the region.
	Layers ComponentReader
	// AskHostedAPI asks the API server at a URL; nil if API servers of hosted clusters are not asked.
	AskHostedAPI func(ctx context.Context, url string) error
	// Rules is the authorization table of the region; nil means mesh.Rules.
	Rules []mesh.Rule
	// Authenticator identifies callers, Access maps them to roles.
	Access        *access.Config
	Authenticator authn.Authenticator
	// Policy states what elevations need, Seals signs their content, and Elevations reports their changes.
	Policy     *elevation.Policy
	Seals      *elevation.Sealer
	Elevations *elevation.Watcher
	// Tickets validates tickets; nil if Policy validates none.
	Tickets ticket.Validator
	// Gateway is the session gateway; nil if the region has none.
	Gateway *Gateway
	// Recordings has the recordings of its commands; nil if admin cannot read them.
	Recordings *Recordings
	// Intents signs what callers ask for.
	Intents *intent.Signer
	// Environment is part of the names of namespaces on management clusters.
	Environment string
	// Audit stores the audit records. Refusals stores those of refused requests, and bounds their number. AuditHistory reads those that
	// were exported.
	Audit        audit.Recorder
	Refusals     RefusalRecorder
	AuditHistory AuditHistory
	// Alerts has the firing alerts and those of timelines; nil if the region has no Prometheus.
	Alerts *alerts.History
	// Silences has the silences; nil if the region has no Alertmanager.
	Silences *alerts.Silences
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	// AuthenticationFailures is the limit of failed authentications of a peer that get the cause; nil means a default.
	AuthenticationFailures *ratelimit.Limit
	// ExplanationBudget is the time in which an explanation comes although a component does not respond; 0 means a default. Tests need more on a
	// busy machine.
	ExplanationBudget time.Duration
	// Now is the clock of this limit; nil means time.Now.
	Now func() time.Time
}

// RefusalRecorder stores the record of a refused request, or counts it. *refusals.Aggregator implements it.
type RefusalRecorder interface {
	Refused(ctx context.Context, r audit.Record)
}

// ComponentReader returns the states of the region's components within a few seconds, even if some do not respond.
type ComponentReader interface {
	Check(ctx context.Context) []adminv1.Component
	// Deadline returns the time in which a component must answer.
	Deadline() time.Duration
}

// Server serves the API.
type Server struct {
	Config
	finder    *lookup.Finder
	collector *dump.Collector
	mux       *http.ServeMux
	rules     *mesh.Authorizer
	requests  *prometheus.CounterVec
	tickets   *prometheus.CounterVec
	// oldestTicketCheck is the time of the oldest last answer about the ticket of an active elevation.
	oldestTicketCheck prometheus.Gauge
	// failures limits the rate of failed authentications.
	failures *ratelimit.Buckets
}

// New returns a Server. It registers its metrics.
func New(config Config) *Server {
	s := &Server{
		Config: config, finder: lookup.New(config.Database, config.Fleet, config.Environment), collector: dump.New(config.Database, config.Fleet, config.Maestro),
		mux: http.NewServeMux(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "admin_requests_total", Help: "Requests by route (operationId of the OpenAPI document) and HTTP status.",
		}, []string{"route", "status"}),
		tickets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "admin_ticket_validations_total", Help: "Questions to the ticket validator by outcome: valid, invalid, or failed if it did not answer.",
		}, []string{"outcome"}),
		oldestTicketCheck: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "admin_oldest_ticket_check_seconds", Help: "Time of the oldest last answer about the ticket of an active elevation, as Unix time; 0 if no active elevation has a ticket to check.",
		}),
	}
	for _, outcome := range []string{ticketValid, ticketInvalid, ticketFailed} {
		s.tickets.WithLabelValues(outcome)
	}
	if config.Rules == nil {
		config.Rules = mesh.Rules()
	}
	if config.AuthenticationFailures == nil {
		config.AuthenticationFailures = &ratelimit.Limit{Size: 300, PerSecond: 5}
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	s.ExplanationBudget = cmp.Or(s.ExplanationBudget, explanationBudget)
	s.failures = ratelimit.New(*config.AuthenticationFailures, config.Now)
	s.rules = mesh.NewAuthorizer(mesh.Admin, config.Rules, config.Log)
	config.Metrics.MustRegister(s.requests, s.tickets, s.oldestTicketCheck)
	for _, r := range s.routes() {
		s.mux.Handle(r.pattern(), s.serve(r))
	}
	s.servePublic("GET "+adminv1.Root+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi.Document())
	})
	s.servePublic("GET "+adminv1.IntentKeysPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write(s.Intents.KeySet())
	})
	s.mux.HandleFunc("/", s.noRoute)
	return s
}

// servePublic registers the handler of a pattern that needs no token, if the authorization table allows everybody to use it.
func (s *Server) servePublic(pattern string, handle http.HandlerFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := s.rules.Public(pattern); err != nil {
			s.fail(&request{http: r, w: w, id: uuid.NewString()}, err)
			return
		}
		handle(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// noRoute responds to requests without a route: 405 if the path has other methods, else 404.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	rq := &request{http: r, w: w, id: uuid.NewString()}
	var allowed []string
	for _, route := range s.routes() {
		other := r.Clone(r.Context())
		other.Method = route.Method
		if _, pattern := s.mux.Handler(other); pattern == route.Method+" "+route.Path {
			allowed = append(allowed, route.Method)
		}
	}
	if len(allowed) > 0 {
		methods := strings.Join(allowed, ", ")
		w.Header().Set("Allow", methods) // RFC 9110, section 15.5.6
		s.fail(rq, apierror.New(apierror.MethodNotAllowed, "Method %s is not allowed on this path; allowed methods: %s.", r.Method, methods))
		return
	}
	s.fail(rq, apierror.New(apierror.NotFound, "Unknown path; see %s/openapi.json.", adminv1.Root))
}

// request is the state of one HTTP request.
type request struct {
	http   *http.Request
	w      http.ResponseWriter
	id     string
	route  *Route
	caller authn.Caller
	roles  []adminv1.Role
	// checkClaims returns an error unless the caller's token has the claims that a role requires.
	checkClaims func(role adminv1.Role) error
	// elevation authorizes an action; nil for a read.
	elevation *database.ElevationDocument
	// operation is the ID of the operation and digest identifies the request, if it has an idempotency key; else both are empty.
	operation, digest string
	// audited is what the audit record of the request contains besides the caller. begun is the action whose start was recorded.
	audited auditFields
	begun   audit.Action
	// status is the HTTP status of the response, cause its error. aborted is set if the response is not complete.
	status  int
	cause   error
	aborted bool
}

// serve returns the HTTP handler of a route.
func (s *Server) serve(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(route.Timeout, requestTimeout))
		defer cancel()
		rq := &request{http: r, w: w, id: uuid.NewString(), route: &route}
		w.Header().Set("X-Request-Id", rq.id)
		w.Header().Set("Cache-Control", "no-store")
		defer s.endAfterPanic(ctx, rq)
		answer, err := s.handle(ctx, rq)
		body, isStream := answer.(streamed)
		if isStream {
			defer body.close()
		}
		// The record is durable before the response is sent: nobody gets a result that is not audited.
		if auditErr := s.recordAudit(ctx, rq, err); auditErr != nil {
			err = auditErr
		}
		switch {
		case err != nil:
			s.fail(rq, err)
		case isStream:
			s.stream(ctx, rq, &route, body)
		default:
			s.respond(rq, route.Status, answer)
		}
		s.requests.WithLabelValues(route.Name, strconv.Itoa(rq.status)).Inc()
		s.logAudit(ctx, rq)
		if rq.cause != nil && apierror.KindOf(rq.cause) == apierror.Internal {
			s.Log.ErrorContext(ctx, "request failed", logkey.RequestID, rq.id, logkey.Route, route.Name, logkey.Error, rq.cause)
		}
		if rq.aborted {
			panic(http.ErrAbortHandler)
		}
	})
}

func (s *Server) handle(ctx context.Context, rq *request) (any, error) {
	caller, err := s.Authenticator.Authenticate(ctx, rq.http)
	if err != nil {
		return nil, authn.LimitFailure(s.failures, rq.http.RemoteAddr, err)
	}
	rq.caller, rq.roles = caller, s.Access.Roles(caller)
	rq.checkClaims = func(role adminv1.Role) error { return s.Access.CheckClaims(caller, role) }
	required, err := s.rules.Engineer(rq.route.pattern())
	if err != nil {
		return nil, err
	}
	if len(rq.roles) == 0 || !access.Includes(rq.roles[len(rq.roles)-1], adminv1.Role(required.Role)) {
		return nil, s.Access.Refusal(caller, adminv1.Role(required.Role))
	}
	if rq.route.WithoutClaims == "" {
		if err := rq.checkClaims(adminv1.Role(required.Role)); err != nil {
			return nil, err
		}
	}
	if err := rq.rejectUnknownParameters(); err != nil {
		return nil, err
	}
	if required.Elevated || rq.route.Mutates {
		if rq.elevation, err = s.elevationFor(ctx, rq, adminv1.ClassOf(rq.route.Name)); err != nil {
			return nil, err
		}
	}
	if ctx, err = s.beginAudit(ctx, rq); err != nil {
		return nil, err
	}
	if rq.route.Mutates {
		if err := rq.readIdempotencyKey(); err != nil {
			return nil, err
		}
		if before, err := s.previousOperation(ctx, rq); before != nil || err != nil {
			return before, err
		}
		if rq.route.Request == nil {
			if err := rq.noBody(); err != nil {
				return nil, err
			}
		}
	}
	return rq.route.handle(ctx, rq)
}

// respond sends a body as JSON.
func (s *Server) respond(rq *request, status int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		s.fail(rq, err)
		return
	}
	rq.status = status
	rq.w.Header().Set("Content-Type", "application/json")
	rq.w.WriteHeader(status)
	_, _ = rq.w.Write(append(content, '\n'))
}

// fail sends an error.
func (s *Server) fail(rq *request, err error) {
	rq.cause = err
	e := apierror.As(err)
	if e.Kind == apierror.Internal && errors.Is(err, context.DeadlineExceeded) {
		e = apierror.New(apierror.Unavailable, "The request took too long.").WithCause(err)
	}
	detail := adminv1.FailureDetail{Code: e.Kind.ARMCode(), Message: e.Message, Target: e.Target, RequestID: rq.id}
	if e.Kind == apierror.Internal {
		detail.Message = "Internal server error."
	}
	if len(e.Violations) > 1 {
		detail.Message, detail.Target = "Several fields are invalid.", ""
		for _, v := range e.Violations {
			detail.Details = append(detail.Details, adminv1.FailureDetail{Code: detail.Code, Message: v.Message, Target: v.Field})
		}
	}
	if challenge := authn.Challenge(err); challenge != "" {
		rq.w.Header().Set("WWW-Authenticate", challenge)
	}
	apierror.SetRetryAfter(rq.w.Header(), e.RetryAfter)
	content, _ := json.Marshal(adminv1.Failure{Error: detail}) // strings
	rq.status = e.Kind.HTTPStatus()
	rq.w.Header().Set("Content-Type", "application/json")
	rq.w.WriteHeader(rq.status)
	_, _ = rq.w.Write(append(content, '\n'))
}
