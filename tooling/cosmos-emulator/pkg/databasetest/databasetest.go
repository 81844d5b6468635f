// Package databasetest gives a test its own Cosmos DB: the emulator in the process of the test, with the schema of package
// database and a connection. A test can inject faults into the emulator's responses.
package databasetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// Server is a Cosmos DB emulator that stops when the test ends.
type Server struct {
	// Options connect to the emulator.
	Options  database.Options
	emulator *emulator.Server
	charge   *charge
	// ahead is how far the clock of the emulator is ahead.
	ahead *atomic.Int64
}

// Advance advances the clock of the emulator, for the expiry of documents. It rejects requests if its clock is 15 minutes ahead.
func (s *Server) Advance(by time.Duration) { s.ahead.Add(int64(by)) }

// charge is the sum of the request units of responses. It is safe for concurrent use.
type charge struct {
	mu    sync.Mutex
	units float64
}

// Charge returns the request units of all responses since the last call. The emulator charges a query by the documents that it parses.
func (s *Server) Charge() float64 {
	s.charge.mu.Lock()
	defer s.charge.mu.Unlock()
	defer func() { s.charge.units = 0 }()
	return s.charge.units
}

// metered is a response of the emulator. Its request units are added before the client has any part of it.
type metered struct {
	http.ResponseWriter
	charge *charge
}

// WriteHeader implements http.ResponseWriter.
func (m metered) WriteHeader(status int) {
	if units, err := strconv.ParseFloat(m.Header().Get("x-ms-request-charge"), 64); err == nil {
		m.charge.mu.Lock()
		m.charge.units += units
		m.charge.mu.Unlock()
	}
	m.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the response for http.ResponseController.
func (m metered) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// NewServer starts an emulator without databases.
func NewServer(t testing.TB) *Server {
	t.Helper()
	return newServer(t, emulator.Options{Key: emulator.WellKnownKey, EnableFaults: true})
}

func newServer(t testing.TB, options emulator.Options) *Server {
	t.Helper()
	s := &Server{charge: &charge{}, ahead: &atomic.Int64{}}
	options.DataDir = t.TempDir()
	options.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	e, err := emulator.Open(options)
	if err != nil {
		t.Fatalf("starting the Cosmos DB emulator: %v", err)
	}
	s.emulator = e
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.ServeHTTP(metered{w, s.charge}, r) }))
	t.Cleanup(func() {
		server.Close()
		if err := e.Close(); err != nil {
			t.Errorf("stopping the Cosmos DB emulator: %v", err)
		}
	})
	s.Options = database.Options{Endpoint: server.URL, Key: options.Key, RequestTimeout: time.Minute, RetryBudget: time.Minute}
	return s
}

// Account returns an account of the emulator with the containers of package database, and the rights of each service for a principal
// with the service's name.
func Account(t testing.TB) account.Account {
	t.Helper()
	a := account.Account{Name: "test", ConsistencyLevel: account.ConsistencyLevel(database.ConsistencyLevel), Databases: []account.Database{{Name: database.DatabaseName}}}
	for _, properties := range database.Containers() {
		text, err := json.Marshal(properties)
		if err != nil {
			t.Fatal(err)
		}
		a.Databases[0].Containers = append(a.Databases[0].Containers, text)
	}
	for _, role := range database.Roles() {
		for i, grant := range role.Grants {
			id := fmt.Sprintf("%s-%d", role.Service, i)
			a.RoleDefinitions = append(a.RoleDefinitions, account.RoleDefinition{ID: id, RoleName: id, AssignableScopes: []string{grant.Scope()}, DataActions: grant.DataActions})
			a.RoleAssignments = append(a.RoleAssignments, account.RoleAssignment{RoleDefinitionID: id, PrincipalID: role.Service, Scope: grant.Scope()})
		}
	}
	return a
}

// NewTokenServer starts an emulator with the containers of package database and without a key. Tokens of the issuer for the
// principals frontend, backend and admin have the rights of these services. Options have no credential.
func NewTokenServer(t testing.TB) (*Server, *entratest.Issuer) {
	t.Helper()
	issuer, err := entratest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	return newServer(t, emulator.Options{Account: Account(t), EnableFaults: true,
		Tokens: &entra.Verifier{Authority: issuer.Authority(), Tenant: entratest.Tenant, Client: http.DefaultClient}}), issuer
}

// Open returns a new connection, which is closed when the test ends.
func (s *Server) Open(t testing.TB) *database.DB {
	t.Helper()
	db, err := database.Open(context.Background(), s.Options)
	if err != nil {
		t.Fatalf("opening the database: %v", err)
	}
	t.Cleanup(sync.OnceFunc(db.Close))
	return db
}

// InjectFault adds a fault rule. The rule is removed by remove, or when the test ends.
func (s *Server) InjectFault(t testing.TB, rule faults.Rule) (remove func()) {
	t.Helper()
	id, err := s.emulator.Faults().Add(rule)
	if err != nil {
		t.Fatalf("injecting a fault: %v", err)
	}
	remove = func() { s.emulator.Faults().Remove(id) }
	t.Cleanup(remove)
	return remove
}

// SplitPartition splits a physical partition of the container Resources in two, as Cosmos DB does when a partition grows.
func (s *Server) SplitPartition(t testing.TB, partition string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Options.Endpoint+"/_emulator/split?db=hcp&container=Resources&range="+partition, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("splitting partition %s: %v", partition, err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatalf("splitting partition %s: %s", partition, response.Status)
	}
}

// PutDocument upserts a document as it is into the container Resources. Tests use it for documents of other releases and for
// documents that hcpmesh did not write.
func (s *Server) PutDocument(t testing.TB, partition, document string) {
	t.Helper()
	credential, err := azcosmos.NewKeyCredential(s.Options.Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(s.Options.Endpoint, credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	container, err := client.NewContainer("hcp", "Resources")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := container.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString(partition), []byte(document), nil); err != nil {
		t.Fatalf("writing a document: %v", err)
	}
}

// FaultCount returns how often the current fault rules have fired, in total.
func (s *Server) FaultCount() int {
	total := 0
	for _, rule := range s.emulator.Faults().List() {
		total += rule.Fired
	}
	return total
}

// New starts an emulator, connects to it and creates the schema.
func New(t testing.TB) (*database.DB, *Server) {
	t.Helper()
	server := NewServer(t)
	db := server.Open(t)
	if err := db.EnsureSchema(t.Context()); err != nil {
		t.Fatalf("creating the schema: %v", err)
	}
	return db, server
}

// WriteContainer returns the container that a request of package database writes to, or an empty string for reads and for
// writes of leases. Crash sweeps use it to find the requests to interrupt.
func WriteContainer(request *http.Request) string {
	switch {
	case request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != "" && strings.Contains(request.URL.Path, "/colls/Resources/"):
		return "Resources"
	case request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != "" && strings.Contains(request.URL.Path, "/colls/Admin/"):
		return "Admin"
	case request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/colls/Billing/"):
		return "Billing"
	case request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != "" && strings.Contains(request.URL.Path, "/colls/EgressLinks/"):
		return "EgressLinks"
	}
	return ""
}
