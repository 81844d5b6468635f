// Package emulator answers the REST protocol of Azure Cosmos DB for NoSQL, from the master key's signature to the
// change feed, on top of the durable store. A Server is an http.Handler, so a test of any module can run one in its
// own process behind httptest; the cosmos-emulator command serves the same Server on a port. Each request is parsed
// once into a request value, authenticated, offered to the fault rules and then handled by the method for its
// resource and verb. What the emulator does not do it refuses with 400 and says so; it never guesses.
package emulator

import (
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

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// WellKnownKey is the master key every Cosmos DB emulator has; it protects nothing.
const WellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// Gateway is which of the service's two gateways is imitated where they differ: in how they read ids out of URLs.
type Gateway string

const (
	// ComputeGateway takes every id that can be written into a URL. It is the default.
	ComputeGateway Gateway = "compute"
	// RoutingGateway normalises URLs before it checks signatures, so that ids which end in a space or contain
	// '/', '\', '#' or percent escapes can be created but not addressed, and control characters are refused.
	RoutingGateway Gateway = "routing"
)

// Options configure a server.
type Options struct {
	// DataDir holds the data; it is created when absent.
	DataDir string
	// Key is the master key in base64.
	Key string
	// Endpoint is the account's URL as clients see it; when empty, that under which a request came.
	Endpoint string
	// Region is the name of the account's only region; "South Central US" when empty, as emulators have it.
	Region  string
	Gateway Gateway
	// ServeCrossPartition runs ORDER BY, aggregates, DISTINCT, GROUP BY, TOP and OFFSET over all partitions in the
	// gateway. The service's gateway refuses them and leaves the merge to the client, and so does the default.
	ServeCrossPartition bool
	// EnableFaults opens the control endpoint /_emulator/ (faults and splits) and lets its rules fire.
	EnableFaults bool
	// FaultSeed makes the probabilities of fault rules repeatable.
	FaultSeed uint64
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger *slog.Logger
}

// Server is an open emulator.
type Server struct {
	opts   Options
	macs   sync.Pool // of hash.Hash: the key's HMAC-SHA256, of which each signature needs one
	store  *store.Store
	faults *faults.Set
	log    *slog.Logger
	now    func() time.Time
	// Observe, when set before serving, is told of every request. The status is 0 when a fault lost the request.
	Observe func(resourceType, operation string, status int, took time.Duration)
}

var errNoKey = errors.New("a master key is needed: give a key or choose the well-known one")

// Open opens the data and returns a server that is ready to serve. Close it after the HTTP server has stopped.
func Open(o Options) (*Server, error) {
	if o.Key == "" {
		return nil, errNoKey
	}
	key, err := base64.StdEncoding.DecodeString(o.Key)
	if err != nil {
		return nil, fmt.Errorf("the master key is not base64: %w", err)
	}
	switch o.Gateway {
	case "":
		o.Gateway = ComputeGateway
	case ComputeGateway, RoutingGateway:
	default:
		return nil, fmt.Errorf("gateway %q is neither %q nor %q", o.Gateway, ComputeGateway, RoutingGateway)
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
		return nil, fmt.Errorf("create the data folder: %w", err)
	}
	st, err := store.Open(store.Options{Path: filepath.Join(o.DataDir, "cosmos.db"), Now: o.Now, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, store: st, faults: faults.New(faults.CosmosDB, o.FaultSeed), log: o.Logger, now: o.Now}
	s.macs.New = func() any { return hmac.New(sha256.New, key) }
	return s, nil
}

// Close makes everything durable that was accepted and releases the data.
func (s *Server) Close() error { return s.store.Close() }

// Healthy returns why the server can no longer write, or nil.
func (s *Server) Healthy() error { return s.store.Healthy() }

// Faults are the server's fault rules; they only fire when EnableFaults is set.
func (s *Server) Faults() *faults.Set { return s.faults }

// Stats are the store's counters.
func (s *Server) Stats() store.Stats { return s.store.Stats() }

// ServeHTTP answers one request.
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
	if fault != nil && fault.DropResponse {
		req.w = discardWriter{http.Header{}}
	}
	if err := s.handle(req); err != nil {
		req.respondError(err)
	}
	if fault != nil && fault.DropResponse {
		panic(http.ErrAbortHandler) // the connection ends without a byte of the answer
	}
}

// injectFault carries out what a fault does before the request; it says whether the request is to be handled.
func (s *Server) injectFault(req *request, f *faults.Rule) bool {
	if f.LatencyMS > 0 {
		t := time.NewTimer(f.Latency())
		defer t.Stop()
		select {
		case <-t.C:
		case <-req.r.Context().Done():
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

// handle dispatches on the path: names alternate with resource types.
func (s *Server) handle(req *request) error {
	seg := req.segments
	switch {
	case len(seg) == 0:
		return s.account(req)
	case seg[0] == "offers" && len(seg) <= 2:
		return s.offers(req)
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
	return badRequest("The emulator has no resource at %q: it serves databases, containers, items, partition key ranges and offers.", req.r.URL.Path)
}
