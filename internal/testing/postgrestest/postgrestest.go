// Package postgrestest provides tests with a real PostgreSQL: one throwaway server per test binary and one database per
// test.
package postgrestest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
)

// Server is shared by the tests of one test binary. Create it in TestMain with Main.
type Server struct {
	running *postgresserver.Server
	created atomic.Int64
}

// Main starts a server, runs the tests and stops the server. Call it from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &database)) }
func Main(m *testing.M, server **Server) int {
	dir, err := os.MkdirTemp("", "hcpmesh-postgres-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// The unprivileged user needs search permission.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	running, err := postgresserver.Start(context.Background(), postgresserver.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer running.Kill()
	*server = &Server{running: running}
	return m.Run()
}

// Database creates an empty database for t and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.DatabaseFrom(t, "")
}

// DatabaseFrom creates a database for t as a copy of template and returns its URL. No session may be connected to template.
func (s *Server) DatabaseFrom(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.created.Add(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.running.CreateDatabase(ctx, name, template); err != nil {
		t.Fatal(err)
	}
	return s.running.URL(name)
}
