// Package server implements the HTTP API of the ARM resource provider: clusters, node pools, external authentications,
// credentials, operations, preflights and subscriptions.
//
// A request passes the layers (layers.go) and the stages (stages.go) in the order of their lists; then the handler of
// its route responds. A write reads the stored documents, decides, and commits one Cosmos DB batch that is conditioned
// on the ETags that were read. If another writer was faster, it reads and decides again. Only committed changes are
// reported as successful. After the commit the change is queued for Cluster Service. The package never calls a
// management cluster and never logs a body.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/admission"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Dispatcher sends committed changes to Cluster Service. Its methods do not block; they use the trace of ctx. See
// package dispatch.
type Dispatcher interface {
	Cluster(ctx context.Context, document *database.ClusterDocument, deleting bool, correlationID string)
	NodePool(ctx context.Context, document *database.NodePoolDocument, deleting bool, correlationID string)
	ExternalAuth(ctx context.Context, document *database.ExternalAuthDocument, deleting bool, correlationID string)
}

// Config holds the dependencies of a Server.
type Config struct {
	Database   *database.DB
	Dispatcher Dispatcher
	// Credentials reads issued credentials, and Versions the installable versions. They are the only synchronous calls to
	// Cluster Service.
	Credentials CredentialReader
	Versions    VersionReader
	Rules       *validation.Rules
	// Offer is the region's catalogue, which Rules uses and customers may list.
	Offer      *config.Config
	SkipTokens *SkipTokens
	// Sealer encrypts private keys of admin credentials before they are stored.
	Sealer *seal.Keys
	// Authenticator authenticates the sender of requests; nil accepts every peer that the listener accepts.
	Authenticator authn.Authenticator
	// Tracing creates the spans of requests; nil disables tracing.
	Tracing *tracing.Tracing
	// Notifications is the policy for notification URIs of operations.
	Notifications asyncoperation.Policy
	// Location is the Azure region of the provider.
	Location string
	// Health serves /healthz and /readyz.
	Health http.Handler
	// Healthy returns the value of the metric frontend_health without waiting for a dependency; nil means healthy.
	Healthy func() bool
	Log     *slog.Logger
	// Audit receives the audit records of changes in the log; nil means Log.
	Audit *slog.Logger
	// Refused stores the audit record of a request that the Authenticator refused; nil means that it is only logged.
	Refused func(context.Context, audit.Record)
	Metrics prometheus.Registerer
	// ClustersPerSubscription is the quota of subscriptions for which no engineer has set another one.
	ClustersPerSubscription int
	// Limits are the limits of concurrent requests; nil means DefaultLimits.
	Limits *admission.Limits
	// Rate is the limit of the requests of a principal outside of subscriptions; nil means DefaultRate.
	Rate *ratelimit.Limit
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server is the HTTP handler of the API. It is safe for concurrent use.
type Server struct {
	Config
	routes        []*route
	results       map[string]resultWriter
	versions      map[string]*versions.Version
	layers        []layer
	stages        []stage
	versionCache  versionCache
	roleSets      []hub.OperatorIdentityRoleSet
	subscriptions *subscriptionCache
	responseCache *responseCache
	metrics       *metrics
	// authentications and requests limit how many requests are authenticated and handled at the same time.
	authentications *admission.Controller
	requests        *admission.Controller
	// rates limits the rate of requests outside of subscriptions.
	rates *ratelimit.Buckets
}

// New returns a Server.
func New(c Config) *Server {
	s := &Server{
		Config:   c,
		routes:   routes(),
		versions: versions.All(),
		layers:   layers(),
		stages:   stages(),
		roleSets: c.Offer.OperatorIdentityRoleSets(),
		results:  results(),
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Audit == nil {
		s.Audit = s.Log
	}
	if s.Tracing == nil {
		s.Tracing = tracing.Off()
	}
	s.subscriptions = newSubscriptionCache(s.Database, s.Now)
	s.responseCache = newResponseCache()
	if s.Limits == nil {
		limits := DefaultLimits()
		s.Limits = &limits
	}
	s.authentications, s.requests = admission.New(authenticationLimits()), admission.New(*s.Limits)
	if s.Rate == nil {
		rate := DefaultRate()
		s.Rate = &rate
	}
	s.rates = ratelimit.New(*s.Rate, s.Now)
	s.Metrics.MustRegister(loadMetrics(s.requests)...)
	s.metrics = newMetrics(s.Metrics, s.subscriptions, s.Healthy)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.runLayers(r.Context(), &request{http: r, w: &response{ResponseWriter: w, head: r.Method == http.MethodHead}}, s.layers)
}

func (s *Server) runLayers(ctx context.Context, rq *request, layers []layer) {
	if len(layers) > 0 {
		layers[0](s, ctx, rq, func(ctx context.Context) { s.runLayers(ctx, rq, layers[1:]) })
		return
	}
	if err := s.handle(ctx, rq); err != nil {
		s.writeError(rq, err)
	}
	rq.answered = true
}

func (s *Server) handle(ctx context.Context, rq *request) error {
	defer rq.leave()
	for _, stage := range s.stages {
		if err := stage(s, ctx, rq); err != nil {
			return err
		}
	}
	if rejected, err := rejectInvalidName(rq); rejected {
		return err
	}
	return rq.match.route.handle(s, ctx, rq)
}
