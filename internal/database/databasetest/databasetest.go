// Package databasetest gives a test its own Cosmos DB: the emulator in the test's process, with the schema in place and
// faults to switch on, and a connection to it. It is for the tests of every service that uses package database.
package databasetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// Server is a Cosmos DB emulator that lives as long as the test.
type Server struct {
	// Options connect to it.
	Options  database.Options
	emulator *emulator.Server
}

// NewServer starts an emulator without a schema.
func NewServer(t testing.TB) *Server {
	t.Helper()
	e, err := emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, EnableFaults: true})
	if err != nil {
		t.Fatalf("starting the Cosmos DB emulator: %v", err)
	}
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		server.Close()
		if err := e.Close(); err != nil {
			t.Errorf("stopping the Cosmos DB emulator: %v", err)
		}
	})
	return &Server{
		Options: database.Options{
			Endpoint: server.URL, Key: emulator.WellKnownKey, RequestTimeout: 5 * time.Second, RetryBudget: 10 * time.Second,
		},
		emulator: e,
	}
}

// Open makes one more connection, which is closed with the test.
func (s *Server) Open(t testing.TB) *database.DB {
	t.Helper()
	db, err := database.Open(context.Background(), s.Options)
	if err != nil {
		t.Fatalf("opening the database: %v", err)
	}
	t.Cleanup(sync.OnceFunc(db.Close))
	return db
}

// InjectFault makes requests misbehave until the function returned, or the test, ends it.
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

// SplitPartition splits a physical partition of the container Resources in two, as the service does when one grows.
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

// PutDocument writes a document into the container Resources as it is, in the place of one with its id: what another release left there, or
// something that is none of ours.
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

// FaultCount is how often the rules that are in place have fired.
func (s *Server) FaultCount() int {
	total := 0
	for _, rule := range s.emulator.Faults().List() {
		total += rule.Fired
	}
	return total
}

// New starts an emulator with the schema in place and connects to it.
func New(t testing.TB) (*database.DB, *Server) {
	t.Helper()
	server := NewServer(t)
	db := server.Open(t)
	if err := db.EnsureSchema(t.Context()); err != nil {
		t.Fatalf("making the schema: %v", err)
	}
	return db, server
}

// WriteContainer is the container that a request of package database writes to, if that is more than a lease; empty for none. For
// tests that get between a process and its writes.
func WriteContainer(request *http.Request) string {
	switch {
	case request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != "" && strings.Contains(request.URL.Path, "/colls/Resources/"):
		return "Resources"
	case request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/colls/Billing/"):
		return "Billing"
	}
	return ""
}
