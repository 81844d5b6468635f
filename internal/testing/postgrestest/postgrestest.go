// Package postgrestest provides tests with a real PostgreSQL: one throwaway server per test binary and one database per
// test. Tests connect as the owner of the database, or as a role that may only read and change rows. Neither is a superuser.
package postgrestest

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// owner owns the databases of tests. runtime has the rights that the owner grants it. The passwords are no secrets: the server listens
// on loopback, and its data is that of a test.
var owner, runtime = postgresserver.Role{Name: "owner", Password: "passwordofowner"}, postgresserver.Role{Name: Runtime, Password: "passwordofservice"}

// Runtime is the name of the role of RuntimeURL, for postgres.Grant.
const Runtime = "runtime"

// maxConnections is enough for the tests that run in parallel on a machine with many CPUs.
const maxConnections = 1000

// FewConnections bounds the pool of a service in a test to the least that services accept. A new connection uses more CPU time than the
// queries of most tests, because PostgreSQL starts a process, whose caches are empty.
const FewConnections = 2

// Server is shared by the tests of one test binary. Create it in TestMain with Main.
type Server struct {
	running *postgresserver.Server
	created atomic.Int64
	// migrate creates the template of Migrated.
	migrate    sync.Once
	migrateErr error
}

// migrated is the name of the template of Migrated.
const migrated = "migrated"

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
	ctx := context.Background()
	// Provision creates the roles with this database. No test connects to it.
	empty := postgresserver.Database{Name: "empty", Owner: owner, Runtime: runtime}
	running, err := postgresserver.Start(ctx, postgresserver.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true, MaxConnections: maxConnections,
		Databases: []postgresserver.Database{empty}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer running.Kill()
	if err := running.Provision(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = &Server{running: running}
	return m.Run()
}

// Database creates an empty database for t and returns its URL for the owner.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.DatabaseFrom(t, "template1")
}

// Migrated creates a database for t with the schema of migrations and with the rights of the role Runtime, and returns its URL for the
// owner. It copies a template, which the first call for a server migrates: a copy takes a third of the time. All calls for a server have
// the same migrations.
func (s *Server) Migrated(t testing.TB, migrations fs.FS) string {
	t.Helper()
	s.migrate.Do(func() {
		ctx, cancel := eventually.Context(t)
		defer cancel()
		s.migrateErr = s.createMigrated(ctx, migrations)
	})
	if s.migrateErr != nil {
		t.Fatal(s.migrateErr)
	}
	return s.DatabaseFrom(t, migrated)
}

func (s *Server) createMigrated(ctx context.Context, migrations fs.FS) error {
	if err := s.running.CopyDatabase(ctx, migrated, "template1", owner); err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, postgres.Options{URL: s.running.URL(migrated, owner), Application: "test", MaxConnections: 2})
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool, migrations, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	return postgres.Grant(ctx, pool, Runtime)
}

// DatabaseFrom creates a database for t as a copy of template and returns its URL for the owner. No session may be connected to
// template.
func (s *Server) DatabaseFrom(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.created.Add(1))
	ctx, cancel := eventually.Context(t)
	defer cancel()
	if err := s.running.CopyDatabase(ctx, name, template, owner); err != nil {
		t.Fatal(err)
	}
	return s.running.URL(name, owner)
}

// RuntimeURL returns the URL of a database for the role Runtime, which has no rights until the owner grants them with
// postgres.Grant.
func RuntimeURL(t testing.TB, ownerURL string) string {
	t.Helper()
	u, err := url.Parse(ownerURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(runtime.Name, runtime.Password)
	return u.String()
}
