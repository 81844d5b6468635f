package postgres_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	authority := must.Get(mesh.OpenAuthority(dir, "local"))(t)
	must.Do(t, authority.Issue(dir, mesh.ClusterService))
	identity := must.Get(mesh.LoadIdentity(dir))(t)
	workloadIdentity(t)
	const here = "postgres://user:hunter2@127.0.0.1/fleet"
	for reason, c := range map[string]struct {
		url, authentication string
		want                string // part of the error
	}{
		"loopback":                        {here, postgres.WithPassword, ""},
		"a socket":                        {"host=/run/postgresql user=user dbname=fleet", postgres.WithPassword, ""},
		"verified":                        {"postgres://user:hunter2@db.example.com/fleet?sslmode=verify-full", postgres.WithPassword, ""},
		"the default of sslmode":          {"postgres://user:hunter2@db.example.com/fleet", postgres.WithPassword, "the server db.example.com is not on this machine: its URL needs sslmode=verify-full"},
		"no encryption":                   {"postgres://user:hunter2@db.example.com/fleet?sslmode=disable", postgres.WithPassword, "verify-full"},
		"any server":                      {"postgres://user:hunter2@db.example.com/fleet?sslmode=require", postgres.WithPassword, "verify-full"},
		"one of two hosts is elsewhere":   {"postgres://user:hunter2@127.0.0.1,10.0.0.1/fleet?sslmode=prefer", postgres.WithPassword, "10.0.0.1"},
		"no URL":                          {"postgres://user:hunter2@[", postgres.WithPassword, "--database-url-file: "},
		"a certificate":                   {"postgres://user@db.example.com/fleet", postgres.WithCertificate, ""},
		"a certificate and a password":    {here, postgres.WithCertificate, "--database-url-file: the URL contains a password, which --database-authentication=certificate"},
		"a password among keywords":       {"host=127.0.0.1 user=user password = hunter2", postgres.WithCertificate, "--database-url-file: the URL contains a password"},
		"a password among parameters":     {"postgres://user@127.0.0.1/fleet?password=hunter2", postgres.WithCertificate, "--database-url-file: the URL contains a password"},
		"an unknown method":               {here, "kerberos", `--database-authentication: "kerberos" is not supported; supported values are password, certificate and entra`},
		"tokens":                          {"postgres://user@db.example.com/fleet?sslmode=verify-full", postgres.WithEntra, ""},
		"tokens and keywords":             {"host=db.example.com user=user sslmode=verify-full", postgres.WithEntra, ""},
		"tokens and a password":           {"postgres://user:hunter2@db.example.com/fleet?sslmode=verify-full", postgres.WithEntra, "--database-url-file: the URL contains a password, which --database-authentication=entra"},
		"tokens without a role":           {"postgres://db.example.com/fleet?sslmode=verify-full", postgres.WithEntra, "--database-url-file: the URL has no user"},
		"keywords without a role":         {"host=db.example.com sslmode=verify-full", postgres.WithEntra, "--database-url-file: the URL has no user"},
		"tokens for any server":           {"postgres://user@db.example.com/fleet?sslmode=require", postgres.WithEntra, "--database-url-file: the server db.example.com would get a token without encryption or verification"},
		"tokens in clear on this machine": {"postgres://user@127.0.0.1/fleet?sslmode=disable", postgres.WithEntra, "sslmode=verify-full"},
	} {
		t.Run(reason, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "url")
			must.Do(t, os.WriteFile(file, []byte(c.url+"\n"), 0o600))
			s := postgres.Settings{URLFile: file, Authentication: c.authentication, Audience: postgres.PublicAudience}
			err := s.Validate()
			if err == nil {
				var authentication postgres.Authentication
				var got string
				got, authentication, err = s.Read(identity)
				if err == nil && (got != c.url || (authentication.TLS != nil) != (c.authentication == postgres.WithCertificate) ||
					(authentication.Password != nil) != (c.authentication == postgres.WithEntra)) {
					t.Errorf("read %s, TLS %t, password %t", got, authentication.TLS != nil, authentication.Password != nil)
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

// TestCombinationsOfFlags checks what is refused before a file is read.
func TestCombinationsOfFlags(t *testing.T) {
	const verified = "postgres://user@db.example.com/fleet?sslmode=verify-full"
	for reason, c := range map[string]struct {
		flags []string
		want  string // part of the error
	}{
		"nothing":                      {nil, "--database-url is required, or --database-url-file"},
		"two URLs":                     {[]string{"--database-url=" + verified, "--database-url-file=x"}, "--database-url and --database-url-file: set one of them"},
		"a URL":                        {[]string{"--database-url=" + verified}, ""},
		"a file":                       {[]string{"--database-url-file=x"}, ""},
		"a password in the arguments":  {[]string{"--database-url=postgres://user:hunter2@127.0.0.1/fleet"}, "--database-url: the URL contains a password, which other processes could read"},
		"no URL":                       {[]string{"--database-url=postgres://user@["}, "--database-url: no valid URL"},
		"tokens":                       {[]string{"--database-url=" + verified, "--database-authentication=entra"}, ""},
		"tokens of another cloud":      {[]string{"--database-url=" + verified, "--database-authentication=entra", "--database-audience=https://ossrdbms-aad.database.usgovcloudapi.net"}, ""},
		"an audience without a scheme": {[]string{"--database-url=" + verified, "--database-authentication=entra", "--database-audience=ossrdbms-aad.database.windows.net"}, "--database-audience: "},
		"a scope for an audience":      {[]string{"--database-url=" + verified, "--database-authentication=entra", "--database-audience=https://ossrdbms-aad.database.windows.net/"}, "--database-audience: "},
		"authorities without tokens":   {[]string{"--database-url=" + verified, "--database-authentication=certificate", "--database-token-ca-file=x"}, "--database-token-ca-file: --database-authentication=certificate uses no tokens"},
	} {
		t.Run(reason, func(t *testing.T) {
			var s postgres.Settings
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			s.AddFlags(flags)
			must.Do(t, flags.Parse(c.flags))
			err := s.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error contains the password: %v", err)
			}
		})
	}
}

// TestEntraNeedsAWorkloadIdentity checks that a process without the environment of a workload identity is refused at its start.
func TestEntraNeedsAWorkloadIdentity(t *testing.T) {
	for _, name := range []string{"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"} {
		t.Run(name, func(t *testing.T) {
			workloadIdentity(t)
			t.Setenv(name, "")
			s := postgres.Settings{URL: "postgres://user@db.example.com/fleet?sslmode=verify-full", Authentication: postgres.WithEntra, Audience: postgres.PublicAudience}
			if _, _, err := s.Read(nil); err == nil || !strings.Contains(err.Error(), "--database-authentication: entra needs a workload identity, and the environment has no "+name) {
				t.Error(err)
			}
		})
	}
	workloadIdentity(t)
	s := postgres.Settings{URL: "postgres://user@db.example.com/fleet?sslmode=verify-full", Authentication: postgres.WithEntra, Audience: postgres.PublicAudience, TokenCAFile: "missing"}
	if _, _, err := s.Read(nil); err == nil || !strings.Contains(err.Error(), "--database-token-ca-file: ") {
		t.Error(err)
	}
}

// workloadIdentity sets the environment of a workload identity, and returns the file with its token.
func workloadIdentity(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file, []byte("assertion"), 0o600))
	for name, value := range map[string]string{"AZURE_CLIENT_ID": "6c5efc0d-69ff-fbe8-501a-e15520f7789a", "AZURE_TENANT_ID": "ab3adb16-64d8-5cda-a4d8-4b9044b1013e",
		"AZURE_FEDERATED_TOKEN_FILE": file, "AZURE_AUTHORITY_HOST": "https://login.example.com/"} {
		t.Setenv(name, value)
	}
	return file
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
	must.Do(t, postgres.Migrate(t.Context(), owner, first, quiet))
	must.Do(t, postgres.Grant(t.Context(), owner, postgrestest.Runtime))
	if err := postgres.CheckMigrated(t.Context(), service, first); err != nil {
		t.Errorf("a migrated database: %v", err)
	}
	outdated, _ := errors.AsType[*postgres.OutdatedError](postgres.CheckMigrated(t.Context(), service, both))
	if outdated == nil || *outdated != (postgres.OutdatedError{Version: 1, Needed: 2}) {
		t.Errorf("a newer program: %v", outdated)
	}
	must.Do(t, postgres.Migrate(t.Context(), owner, both, quiet))
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
	must.Do(t, os.WriteFile(file, []byte(url), 0o600))
	o := postgrescommand.MigrateOptions{Database: postgres.Settings{URLFile: file, Authentication: postgres.WithPassword}, GrantTo: postgrestest.Runtime}
	var replicas sync.WaitGroup
	for range 3 {
		replicas.Go(func() {
			if err := postgrescommand.Migrate(t.Context(), "test", &o, migrations("0001_a.sql", "0002_b.sql"), quiet); err != nil {
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
