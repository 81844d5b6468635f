// Package server is the ARM resource provider: the HTTP API of clusters, node pools, operations and subscriptions.
//
// A request goes through the layers (layers.go) and the stages (stages.go), both listed there in their order, and is
// answered by the handler of its route. A write is read, decided and committed in one Cosmos DB batch, conditioned on what was read, and run
// again when another writer was faster; only what is committed is answered with success. Afterwards the change is handed
// to Cluster Service without waiting. The package never talks to a management cluster, and never logs a body.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/skiptoken"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Dispatcher sends what was committed to Cluster Service, without blocking, in the trace of ctx; see package dispatch.
type Dispatcher interface {
	Cluster(ctx context.Context, document *database.ClusterDocument, deleting bool, correlationID string)
	NodePool(ctx context.Context, document *database.NodePoolDocument, deleting bool, correlationID string)
	ExternalAuth(ctx context.Context, document *database.ExternalAuthDocument, deleting bool, correlationID string)
}

// Config is what a Server needs.
type Config struct {
	Database   *database.DB
	Dispatcher Dispatcher
	// Credentials reads issued credentials; nothing else of Cluster Service is asked for an answer.
	Credentials CredentialReader
	Rules       *validation.Rules
	// Offer is what Rules judge by, and what customers may list.
	Offer      *config.Config
	SkipTokens *skiptoken.Sealer
	// Sealer keeps the private keys that the service makes for admin credentials from the store.
	Sealer *seal.Keys
	// Authenticator decides who is let in; nil lets everybody in that the listener does.
	Authenticator authn.Authenticator
	// Tracing makes the spans of requests; nil makes none.
	Tracing *tracing.Tracing
	// Notifications says where callers may have the ends of their operations told.
	Notifications asyncoperation.Policy
	// Location is the Azure region that the provider serves.
	Location string
	// Health serves /healthz and /readyz.
	Health http.Handler
	// Healthy is asked for the metric frontend_health.
	Healthy func(ctx context.Context) bool
	Log     *slog.Logger
	// Audit takes the record of every request that changes something; nil is Log.
	Audit   *slog.Logger
	Metrics prometheus.Registerer
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Server answers ARM. It is an http.Handler, safe for concurrent use.
type Server struct {
	Config
	routes        []*route
	results       map[string]answer
	versions      map[string]*versions.Version
	layers        []layer
	stages        []stage
	releases      []hub.OpenShiftVersion
	roleSets      []hub.OperatorIdentityRoleSet
	subscriptions *subscriptionCache
	shown         *shownResources
	metrics       *metrics
	inFlight      atomic.Int64
}

// maxInFlight is how many requests are worked on at a time; more are asked to come again. With maxBody it bounds the
// memory that requests can take.
const maxInFlight = 512

// New makes a Server.
func New(c Config) *Server {
	s := &Server{
		Config:   c,
		routes:   routes(),
		versions: versions.All(),
		layers:   layers(),
		stages:   stages(),
		releases: c.Offer.OpenShiftVersions(),
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
	s.shown = newShownResources()
	s.metrics = newMetrics(s.Metrics, s.subscriptions, s.Healthy)
	return s
}

// ServeHTTP answers one request: through the layers, the stages, and the route's handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.enter(r.Context(), &request{http: r, w: &response{ResponseWriter: w}}, s.layers)
}

func (s *Server) enter(ctx context.Context, rq *request, layers []layer) {
	if len(layers) > 0 {
		layers[0](s, ctx, rq, func(ctx context.Context) { s.enter(ctx, rq, layers[1:]) })
		return
	}
	if err := s.answer(ctx, rq); err != nil {
		s.fail(rq, err)
	}
	rq.answered = true
}

func (s *Server) answer(ctx context.Context, rq *request) error {
	defer s.inFlight.Add(-1)
	if s.inFlight.Add(1) > maxInFlight {
		return apierror.New(apierror.Throttled, "The service is busy.").WithRetryAfter(time.Second)
	}
	for _, stage := range s.stages {
		if err := stage(s, ctx, rq); err != nil {
			return err
		}
	}
	return rq.match.route.handle(s, ctx, rq)
}
