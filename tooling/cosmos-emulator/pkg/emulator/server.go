// Package emulator implements the REST protocol of Azure Cosmos DB for NoSQL, from authentication and data-plane
// roles to the change feed, on a durable store.
//
// A Server is an http.Handler, so that tests can run it with httptest; the cosmos-emulator command serves
// it on a port. Each request is parsed once, authenticated, authorized, matched with the fault rules, and handled by the method for
// its resource and operation. Features that the emulator does not support are rejected with 400.
package emulator

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// WellKnownKey is the public master key of all Cosmos DB emulators. It protects nothing.
const WellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// Options configure a Server.
type Options struct {
	// DataDir is the folder of the data. It is created if it does not exist.
	DataDir string
	// Key is the master key in base64, which allows everything. It may be empty if there are Tokens.
	Key string
	// Account is provisioned when the data is opened. Its role assignments apply to the callers with Tokens.
	Account account.Account
	// Tokens verifies tokens of Entra ID; nil means that only the master key is accepted. The verifier's tenant is that of the
	// Account.
	Tokens *entra.Verifier
	// Endpoint is the URL of the account for clients; "" means the URL of the request.
	Endpoint string
	// Region is the name of the account's only region; "" means "South Central US", as in other emulators.
	Region string
	// EnableFaults enables fault rules and the endpoints below /_emulator/ for faults and splits.
	EnableFaults bool
	// FaultSeed makes the probabilities of fault rules reproducible.
	FaultSeed uint64
	// Now is the clock; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Server is an open emulator. It is safe for concurrent use.
type Server struct {
	opts Options
	// consistency is the default level of the account.
	consistency account.ConsistencyLevel
	tokens      *tokenCache // nil without Options.Tokens
	macs        sync.Pool   // of hash.Hash: HMAC-SHA256 with the master key
	store       *store.Store
	faults      *faults.Set
	log         *slog.Logger
	now         func() time.Time
	// Observe, if set before serving, is called after each request. The status is 0 if a fault dropped the request.
	Observe func(resourceType, operation string, status int, took time.Duration)
}

var errNoKey = errors.New("a master key or a verifier of tokens is required")

// Open opens the data and returns a Server. Close it after the HTTP server has stopped.
func Open(o Options) (*Server, error) {
	if o.Key == "" && o.Tokens == nil {
		return nil, errNoKey
	}
	key, err := base64.StdEncoding.DecodeString(o.Key)
	if err != nil {
		return nil, fmt.Errorf("the master key is not base64: %w", err)
	}
	if o.Region == "" {
		o.Region = "South Central US"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data folder: %w", err)
	}
	policy, err := o.Account.Policy()
	if err != nil {
		return nil, err
	}
	consistency, err := o.Account.Consistency()
	if err != nil {
		return nil, err
	}
	st, err := store.Open(store.Options{Path: filepath.Join(o.DataDir, "cosmos.db"), Now: o.Now, Logger: o.Logger, LaggingReplica: o.EnableFaults})
	if err != nil {
		return nil, err
	}
	if err := provision(st, &o.Account); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	s := &Server{opts: o, consistency: consistency, store: st, faults: faults.New(faults.CosmosDB, o.FaultSeed), log: o.Logger, now: o.Now}
	if o.Tokens != nil {
		s.tokens = newTokenCache(policy)
	}
	s.macs.New = func() any { return hmac.New(sha256.New, key) }
	return s, nil
}

// Close waits until accepted writes are durable and closes the data.
func (s *Server) Close() error { return s.store.Close() }

// Healthy returns nil if the emulator commits writes, or why not.
func (s *Server) Healthy(ctx context.Context) error { return s.store.Healthy(ctx) }

// Faults returns the fault rules. They have no effect unless EnableFaults is set.
func (s *Server) Faults() *faults.Set { return s.faults }

// Stats returns the counters of the store.
func (s *Server) Stats() store.Stats { return s.store.Stats() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	if s.opts.EnableFaults && isControl(r) {
		s.control(w, r)
		return
	}
	req, err := s.parse(w, r)
	if s.Observe != nil {
		defer func() { s.Observe(req.resourceType, req.operation, req.status, time.Since(started)) }()
	}
	if err == nil {
		err = s.authenticate(req)
	}
	if err == nil {
		err = s.authorize(req)
	}
	if err != nil {
		req.respondError(err)
		return
	}
	var fault *faults.Rule
	if s.opts.EnableFaults {
		if fault = s.faults.Next(req.faultRequest()); fault != nil && !s.injectFault(req, fault) {
			return
		}
	}
	req.stale = fault != nil && fault.StaleRead
	if fault != nil && fault.DropResponse {
		req.w = discardWriter{http.Header{}}
	}
	if err := s.handle(req); err != nil {
		req.respondError(err)
	}
	if fault != nil && fault.DropResponse {
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
}

// injectFault applies a fault before the request is handled. It returns false if it wrote the response.
func (s *Server) injectFault(req *request, f *faults.Rule) bool {
	if f.LatencyMS > 0 {
		if backoff.Sleep(req.r.Context(), f.Latency()) != nil {
			panic(http.ErrAbortHandler)
		}
	}
	if f.DropRequest {
		panic(http.ErrAbortHandler)
	}
	if f.Status == 0 {
		return true
	}
	if f.RetryAfterMS > 0 {
		req.header(headerRetryAfter, fmt.Sprint(f.RetryAfterMS))
	}
	req.respondError(&statusError{status: f.Status, subStatus: f.SubStatus, message: injectedMessage(f.Status)})
	return false
}

// injectedMessage returns the service's message for an injected status.
func injectedMessage(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429"
	case 449:
		return "Conflicting request to resource has been attempted. Retry to avoid conflicts."
	case http.StatusPreconditionFailed:
		return "Operation cannot be performed because one of the specified precondition is not met."
	case http.StatusServiceUnavailable:
		return "Service is currently unavailable."
	}
	return "Injected fault."
}

// unsupportedHeaders lists headers that change the meaning of requests in a way that the emulator does not support.
var unsupportedHeaders = []string{"X-Ms-Documentdb-Pre-Trigger-Include", "X-Ms-Documentdb-Post-Trigger-Include", "X-Ms-Offer-Throughput",
	"X-Ms-Cosmos-Offer-Autopilot-Settings", "X-Ms-Cosmos-Is-Query-Plan-Request", "X-Ms-Cosmos-Populateindexmetrics", "X-Ms-Start-Epk", "X-Ms-End-Epk"}

// handle calls the method for the path, in which resource types and names alternate.
func (s *Server) handle(req *request) error {
	for _, h := range unsupportedHeaders {
		if req.r.Header.Get(h) != "" {
			return badRequest("The header %s is not supported.", h)
		}
	}
	seg := req.segments
	switch {
	case len(seg) == 0:
		return s.account(req)
	case seg[0] != "dbs":
	case len(seg) <= 2:
		return s.databases(req)
	case seg[2] == "colls" && len(seg) <= 4:
		return s.containers(req)
	case seg[2] == "colls" && seg[4] == "docs" && len(seg) <= 6:
		return s.items(req)
	case seg[2] == "colls" && seg[4] == "pkranges" && len(seg) == 5:
		return s.ranges(req)
	}
	return badRequest("The path %q is not supported: the emulator serves databases, containers, items and partition key ranges.", req.r.URL.Path)
}
