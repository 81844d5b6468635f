package postgres_test

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

var databases *postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &databases)) }

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := must.Get(postgres.Open(t.Context(), postgres.Options{URL: url, Application: "test", MaxConnections: 4}))(t)
	t.Cleanup(pool.Close)
	return pool
}

// migrations returns files, each of which adds a row with its name to a table of the first.
func migrations(names ...string) fstest.MapFS {
	files := fstest.MapFS{}
	for _, name := range names {
		text := "-- +goose Up\n"
		if strings.HasPrefix(name, "0001_") {
			text += "CREATE TABLE applied (name text);\n"
		}
		files[name] = &fstest.MapFile{Data: []byte(text + "INSERT INTO applied VALUES ('" + name + "');\n")}
	}
	return files
}

func applied(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	rows := must.Get(pool.Query(t.Context(), "SELECT name FROM applied"))(t)
	names := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	return strings.Join(names, " ")
}

func TestMigrateAppliesEachMigrationOnce(t *testing.T) {
	pool := open(t, databases.Database(t))
	for _, files := range []fstest.MapFS{
		migrations("0001_a.sql", "0002_b.sql"),
		migrations("0001_a.sql", "0002_b.sql"),
		migrations("0001_a.sql", "0002_b.sql", "0004_d.sql"),
		migrations("0001_a.sql"), // an older release
	} {
		must.Do(t, postgres.Migrate(t.Context(), pool, files, quiet))
	}
	if got := applied(t, pool); got != "0001_a.sql 0002_b.sql 0004_d.sql" {
		t.Errorf("applied %s", got)
	}
}

func TestMigrateRunsOnOneReplicaAtATime(t *testing.T) {
	url := databases.Database(t)
	var replicas sync.WaitGroup
	for range 3 {
		pool := open(t, url)
		replicas.Go(func() {
			if err := postgres.Migrate(t.Context(), pool, migrations("0001_a.sql", "0002_b.sql", "0003_c.sql"), quiet); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	if got := applied(t, open(t, url)); got != "0001_a.sql 0002_b.sql 0003_c.sql" {
		t.Errorf("applied %s", got)
	}
}

func TestMigrateRejects(t *testing.T) {
	first := []string{"0001_a.sql", "0003_c.sql"}
	failing := migrations(first...)
	failing["0004_d.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE other (name text);\nSELECT * FROM missing;\n")}
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string
	}{
		"failing statement":                {failing, "applying migration 0004_d.sql: "},
		"number below one that is applied": {migrations(append(slices.Clone(first), "0002_b.sql")...), "version 2"},
		"two with one number":              {migrations(append(slices.Clone(first), "0003_other.sql")...), "0003_other.sql"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := open(t, databases.Database(t))
			must.Do(t, postgres.Migrate(t.Context(), pool, migrations(first...), quiet))
			err := postgres.Migrate(t.Context(), pool, test.files, quiet)
			if err == nil || !strings.Contains(err.Error(), test.want) || postgres.IsUnavailable(err) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if got := applied(t, pool); got != strings.Join(first, " ") {
				t.Errorf("applied %s", got)
			}
			var other *string
			if err := pool.QueryRow(t.Context(), "SELECT to_regclass('other')::text").Scan(&other); err != nil || other != nil {
				t.Errorf("a failed migration left a table behind: %v", err)
			}
		})
	}
}

func TestMigrateReportsAnUnreachableServer(t *testing.T) {
	pool := open(t, "postgres://user:hunter2@127.0.0.1:1/none?sslmode=disable")
	err := postgres.Migrate(t.Context(), pool, migrations("0001_a.sql"), quiet)
	if !postgres.IsUnavailable(err) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestConstraintNamesTheViolatedIndex(t *testing.T) {
	pool := open(t, databases.Database(t))
	must.Get(pool.Exec(t.Context(), "CREATE TABLE t (n int); CREATE UNIQUE INDEX t_n ON t (n); INSERT INTO t VALUES (1)"))(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO t VALUES (1)")
	if postgres.Code(err) != postgres.UniqueViolation || postgres.Constraint(err) != "t_n" || postgres.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	if err := errors.New("other"); postgres.Code(err) != "" || postgres.Constraint(err) != "" || postgres.IsUnavailable(err) {
		t.Error("an error of another package has a code")
	}
	if err := (&pgconn.PgError{Code: "57P01"}); !postgres.IsUnavailable(err) {
		t.Error("a server that shuts down is available")
	}
}
