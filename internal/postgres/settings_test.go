package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/migratecommand"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(dir, "local")
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.Issue(dir, mesh.ClusterService); err != nil {
		t.Fatal(err)
	}
	identity, err := mesh.LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	const here = "postgres://user:hunter2@127.0.0.1/fleet"
	for reason, c := range map[string]struct {
		url, authentication string
		want                string // part of the error
	}{
		"loopback":                         {here, postgres.WithPassword, ""},
		"a socket":                         {"host=/run/postgresql user=user dbname=fleet", postgres.WithPassword, ""},
		"verified":                         {"postgres://user:hunter2@db.example.com/fleet?sslmode=verify-full", postgres.WithPassword, ""},
		"the default of sslmode":           {"postgres://user:hunter2@db.example.com/fleet", postgres.WithPassword, "the server db.example.com is not on this machine: its URL needs sslmode=verify-full"},
		"no encryption":                    {"postgres://user:hunter2@db.example.com/fleet?sslmode=disable", postgres.WithPassword, "verify-full"},
		"any server":                       {"postgres://user:hunter2@db.example.com/fleet?sslmode=require", postgres.WithPassword, "verify-full"},
		"one of two hosts is elsewhere":    {"postgres://user:hunter2@127.0.0.1,10.0.0.1/fleet?sslmode=prefer", postgres.WithPassword, "10.0.0.1"},
		"no URL":                           {"postgres://user:hunter2@[", postgres.WithPassword, "--database-url-file: "},
		"a certificate":                    {"postgres://user@db.example.com/fleet", postgres.WithCertificate, ""},
		"a certificate and a password":     {here, postgres.WithCertificate, "--database-url-file: the URL contains a password"},
		"an unknown method":                {here, "kerberos", `--database-authentication: "kerberos" is not supported`},
		"a method that is not implemented": {here, postgres.WithEntra, "--database-authentication: entra is not supported yet"},
	} {
		t.Run(reason, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "url")
			if err := os.WriteFile(file, []byte(c.url+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := postgres.Settings{URLFile: file, Authentication: c.authentication}
			err := s.Validate()
			if err == nil {
				var authentication postgres.Authentication
				var got string
				got, authentication, err = s.Read(identity)
				if err == nil && (got != c.url || (authentication.TLS != nil) != (c.authentication == postgres.WithCertificate)) {
					t.Errorf("read %s, TLS %t", got, authentication.TLS != nil)
				}
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error contains the password: %v", err)
			}
		})
	}
	if _, _, err := (&postgres.Settings{URLFile: filepath.Join(dir, "missing"), Authentication: postgres.WithPassword}).Read(identity); err == nil || !strings.Contains(err.Error(), "--database-url-file") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestRuntimeRoleWaitsForTheMigration follows the states of a database that the command migrate prepares for a service.
func TestRuntimeRoleWaitsForTheMigration(t *testing.T) {
	url := databases.Database(t)
	owner, service := open(t, url), open(t, postgrestest.RuntimeURL(t, url))
	first, both := migrations("0001_a.sql"), migrations("0001_a.sql", "0002_b.sql")
	if err := postgres.CheckMigrated(t.Context(), service, first); !postgres.IsOutdated(err) {
		t.Errorf("an empty database: %v", err)
	}
	if err := postgres.Migrate(t.Context(), service, first, quiet); postgres.Code(err) != "42501" || postgres.IsUnavailable(err) {
		t.Errorf("the service migrates: %v", err)
	}
	if err := postgres.Migrate(t.Context(), owner, first, quiet); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Grant(t.Context(), owner, postgrestest.Runtime); err != nil {
		t.Fatal(err)
	}
	if err := postgres.CheckMigrated(t.Context(), service, first); err != nil {
		t.Errorf("a migrated database: %v", err)
	}
	outdated, _ := errors.AsType[*postgres.OutdatedError](postgres.CheckMigrated(t.Context(), service, both))
	if outdated == nil || *outdated != (postgres.OutdatedError{Version: 1, Needed: 2}) {
		t.Errorf("a newer program: %v", outdated)
	}
	if err := postgres.Migrate(t.Context(), owner, both, quiet); err != nil {
		t.Fatal(err)
	}
	if err := postgres.CheckMigrated(t.Context(), service, first); err != nil {
		t.Errorf("an older program: %v", err)
	}
	if got := applied(t, service); got != "0001_a.sql 0002_b.sql" {
		t.Errorf("applied %s", got)
	}
}

// TestCommandMigratesConcurrently runs the command of two replicas at once, as in a rollout.
func TestCommandMigratesConcurrently(t *testing.T) {
	url := databases.Database(t)
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	o := migratecommand.Options{Database: postgres.Settings{URLFile: file, Authentication: postgres.WithPassword}, GrantTo: postgrestest.Runtime}
	var replicas sync.WaitGroup
	for range 3 {
		replicas.Go(func() {
			if err := migratecommand.Run(t.Context(), "test", &o, migrations("0001_a.sql", "0002_b.sql"), quiet); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	service := open(t, postgrestest.RuntimeURL(t, url))
	if _, err := service.Exec(t.Context(), "DELETE FROM applied WHERE name = '0001_a.sql'"); err != nil {
		t.Error(err)
	}
	if got := applied(t, service); got != "0002_b.sql" {
		t.Errorf("the table contains %s", got)
	}
}
