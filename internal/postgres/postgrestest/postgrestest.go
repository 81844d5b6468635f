// Package postgrestest gives tests a real PostgreSQL: one throwaway server for a test binary, started on first use, and
// a database of its own for every test.
package postgrestest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

// Server is shared by the tests of one test binary. Make it in TestMain with Main.
type Server struct {
	running *postgres.Server
	made    atomic.Int64
}

// Main starts a server, runs the tests with it and stops it again. Call it from TestMain, as in
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &database)) }
func Main(m *testing.M, server **Server) int {
	dir, err := os.MkdirTemp("", "hcpmesh-postgres-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// The unprivileged user must be able to pass through.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	running, err := postgres.Start(context.Background(), postgres.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer running.Kill()
	*server = &Server{running: running}
	return m.Run()
}

// Database makes an empty database for t and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.DatabaseFrom(t, "")
}

// DatabaseFrom makes a database for t as a copy of another one, which nobody may be connected to.
func (s *Server) DatabaseFrom(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.made.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.running.CreateDatabase(ctx, name, template); err != nil {
		t.Fatal(err)
	}
	return s.running.URL(name)
}
