package postgresserver

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// databases are those of a region.
var databases = []Database{
	{Name: "clusterservice", Owner: Role{Name: "clusterservice_owner", Certificate: string(mesh.ClusterServiceMigration)},
		Runtime: Role{Name: "clusterservice", Certificate: string(mesh.ClusterService)}},
	{Name: "maestro", Owner: Role{Name: "maestro_owner", Certificate: string(mesh.MaestroMigration)},
		Runtime: Role{Name: "maestro", Certificate: string(mesh.MaestroServer)}},
}

// secured is a server with TLS, and identities of its authority and of another one.
type secured struct {
	*Server
	t   *testing.T
	dir string
}

// TestAccess shares a server, because its start takes longer than the tests. Each of them has new databases and new identities of clients.
func TestAccess(t *testing.T) {
	s := newSecured(t)
	for name, test := range map[string]func(*testing.T, *secured){
		"ConnectionsAreRefused":         testConnectionsAreRefused,
		"RuntimeRoleCannotChangeTables": testRuntimeRoleCannotChangeTables,
		"ProvisionGivesTablesToOwner":   testProvisionGivesTablesToTheOwner,
		"ReplacedFilesAreReloaded":      testReplacedFilesAreReloaded,
		"TokenIsThePasswordOfASession":  testTokenIsThePasswordOfEachSession,
		"SessionEndsWithCertificate":    testSessionOfPoolEndsWithItsCertificate,
		"LongSessionIsReplaced":         testLongSessionIsReplaced,
		"OldSessionsAreEnded":           testOldSessionsAreEnded,
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.issueClients()
			for _, database := range databases {
				must.Do(t, s.run(t.Context(), "DROP DATABASE IF EXISTS "+database.Name+" WITH (FORCE);"))
			}
			must.Do(t, s.Provision(t.Context()))
			test(t, s)
		})
	}
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, dir: t.TempDir()}
	s.issue("local", mesh.PostgreSQL)
	identity := filepath.Join(s.dir, "local", string(mesh.PostgreSQL))
	server := must.Get(Start(t.Context(), Options{DataDir: dataDir(t), Throwaway: true, Databases: databases, TLS: &TLS{
		CertificateFile: filepath.Join(identity, mesh.CertificateFile), KeyFile: filepath.Join(identity, mesh.KeyFile), CAFile: filepath.Join(identity, mesh.CAFile)}}))(t)
	t.Cleanup(server.Kill)
	s.Server = server
	return s
}

// issueClients replaces the identities of all clients.
func (s *secured) issueClients() {
	s.t.Helper()
	for _, trust := range []string{"local", "foreign"} {
		s.issue(trust, mesh.ClusterService, mesh.ClusterServiceMigration, mesh.MaestroServer, mesh.MaestroMigration, mesh.Frontend)
	}
}

// issue writes identities of peers in a trust domain.
func (s *secured) issue(trust string, peers ...mesh.Peer) {
	s.t.Helper()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(s.dir, trust, "ca"), "local"))(s.t)
	for _, peer := range peers {
		must.Do(s.t, authority.Issue(filepath.Join(s.dir, trust, string(peer)), peer, "127.0.0.1"))
	}
}

// open returns a pool for a role of a database with the identity of a workload of a trust domain.
func (s *secured) open(database, role, trust string, peer mesh.Peer) *pgxpool.Pool {
	s.t.Helper()
	identity := must.Get(mesh.LoadIdentity(filepath.Join(s.dir, trust, string(peer))))(s.t)
	return s.openURL(s.URL(database, Role{Name: role}), postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)})
}

func (s *secured) openURL(url string, authentication postgres.Authentication) *pgxpool.Pool {
	s.t.Helper()
	pool := must.Get(postgres.Open(s.t.Context(), postgres.Options{URL: url, Application: "test", MaxConnections: 2, Authentication: authentication}))(s.t)
	s.t.Cleanup(pool.Close)
	return pool
}

// migrate creates a table as the owner of a database and grants the rights of its service.
func (s *secured) migrate(database, owner, service string, peer mesh.Peer) {
	s.t.Helper()
	pool := s.open(database, owner, "local", peer)
	must.Get(pool.Exec(s.t.Context(), `CREATE TABLE IF NOT EXISTS goose_db_version (id int); CREATE TABLE fleet (name text); CREATE SEQUENCE numbers`))(s.t)
	must.Do(s.t, postgres.Grant(s.t.Context(), pool, service))
}

const (
	notAllowed   = "28000" // invalid_authorization_specification
	noPrivilege  = "42501" // insufficient_privilege
	wrongCatalog = "3D000" // the database does not exist
)

// testConnectionsAreRefused tries what a workload with another certificate, without one and without TLS can do. Each attempt fails
// before a session exists.
func testConnectionsAreRefused(t *testing.T, s *secured) {
	s.migrate("clusterservice", "clusterservice_owner", "clusterservice", mesh.ClusterServiceMigration)
	plain := strings.ReplaceAll(s.URL("clusterservice", Role{Name: "clusterservice"}), "sslmode=require", "sslmode=disable")
	for reason, c := range map[string]struct {
		pool *pgxpool.Pool
		want string // SQLSTATE, or empty if the server does not accept the certificate
	}{
		"Maestro reads Cluster Service's database as itself":          {s.open("clusterservice", "maestro", "local", mesh.MaestroServer), notAllowed},
		"Maestro uses Cluster Service's role":                         {s.open("clusterservice", "clusterservice", "local", mesh.MaestroServer), notAllowed},
		"Maestro uses the role of Cluster Service's owner":            {s.open("clusterservice", "clusterservice_owner", "local", mesh.MaestroServer), notAllowed},
		"Cluster Service uses the role of the owner of its database":  {s.open("clusterservice", "clusterservice_owner", "local", mesh.ClusterService), notAllowed},
		"a workload without a role":                                   {s.open("clusterservice", "clusterservice", "local", mesh.Frontend), notAllowed},
		"a service as the superuser":                                  {s.open("clusterservice", superuser, "local", mesh.ClusterService), "28P01"},
		"a service in the maintenance database":                       {s.open(maintenance, "clusterservice", "local", mesh.ClusterService), notAllowed},
		"a certificate of another authority":                          {s.open("clusterservice", "clusterservice", "foreign", mesh.ClusterService), ""},
		"no certificate":                                              {s.openURL(s.URL("clusterservice", Role{Name: "clusterservice"}), postgres.Authentication{}), notAllowed},
		"no TLS":                                                      {s.openURL(plain, postgres.Authentication{}), notAllowed},
		"no TLS, as the superuser with the password":                  {s.openURL(withoutTLS(s.AdministratorURL("clusterservice")), postgres.Authentication{}), notAllowed},
		"Cluster Service's role in a database that does not exist":    {s.open("other", "clusterservice", "local", mesh.ClusterService), notAllowed},
		"the superuser in a database that does not exist (the check)": {s.openURL(s.AdministratorURL("other"), postgres.Authentication{}), wrongCatalog},
	} {
		t.Run(reason, func(t *testing.T) {
			err := c.pool.Ping(t.Context())
			if err == nil || postgres.Code(err) != c.want {
				t.Errorf("got %v, want SQLSTATE %q", err, c.want)
			}
		})
	}
	for reason, pool := range map[string]*pgxpool.Pool{
		"the service":   s.open("clusterservice", "clusterservice", "local", mesh.ClusterService),
		"the owner":     s.open("clusterservice", "clusterservice_owner", "local", mesh.ClusterServiceMigration),
		"the superuser": s.openURL(s.AdministratorURL("clusterservice"), postgres.Authentication{}),
	} {
		var encrypted bool
		if err := pool.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted); err != nil || !encrypted {
			t.Errorf("%s: encrypted %t, %v", reason, encrypted, err)
		}
	}
}

// withoutTLS returns the URL with the password only.
func withoutTLS(url string) string {
	base, _, _ := strings.Cut(url, "?")
	return base + "?sslmode=disable"
}

// testRuntimeRoleCannotChangeTables checks what a service can do with the role that it has in a region.
func testRuntimeRoleCannotChangeTables(t *testing.T, s *secured) {
	s.migrate("clusterservice", "clusterservice_owner", "clusterservice", mesh.ClusterServiceMigration)
	s.migrate("maestro", "maestro_owner", "maestro", mesh.MaestroMigration)
	service := s.open("clusterservice", "clusterservice", "local", mesh.ClusterService)
	for _, statement := range []string{
		"INSERT INTO fleet VALUES ('a')", "UPDATE fleet SET name = 'b'", "SELECT * FROM fleet FOR UPDATE", "DELETE FROM fleet",
		"SELECT nextval('numbers')", "SELECT * FROM goose_db_version", "SELECT pg_notify('channel', 'text')", "SELECT pg_advisory_lock(1)",
	} {
		if _, err := service.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{
		"CREATE TABLE other (name text)", "DROP TABLE fleet", "ALTER TABLE fleet ADD COLUMN other text", "TRUNCATE fleet", "CREATE INDEX ON fleet (name)",
		"DROP SEQUENCE numbers", "INSERT INTO goose_db_version VALUES (1)", "CREATE SCHEMA other", "CREATE TEMPORARY TABLE other (name text)", "CREATE EXTENSION dblink",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE DATABASE other", "DROP DATABASE maestro", "ALTER DATABASE clusterservice SET work_mem = '1MB'",
		"CREATE ROLE other", "ALTER ROLE maestro PASSWORD 'x'", "SET ROLE clusterservice_owner", "GRANT SELECT ON fleet TO PUBLIC", "COPY fleet TO '/tmp/x'",
		"SELECT pg_read_file('/etc/passwd')", "SELECT rolpassword FROM pg_authid", "ALTER SYSTEM SET work_mem = '1MB'",
	} {
		_, err := service.Exec(t.Context(), statement)
		code := postgres.Code(err)
		// PostgreSQL grants with a warning what the role may not grant: then nothing may have changed.
		if strings.HasPrefix(statement, "GRANT") && code == "" {
			var granted bool
			query := "SELECT has_table_privilege('maestro', 'fleet', 'SELECT')"
			if err := service.QueryRow(t.Context(), query).Scan(&granted); err != nil || granted {
				t.Errorf("%s: granted %t, %v", statement, granted, err)
			}
			continue
		}
		if code != noPrivilege {
			t.Errorf("%s: %v, want SQLSTATE %s", statement, err, noPrivilege)
		}
	}
}

// testProvisionGivesTablesToTheOwner has a database of the superuser, as regions had before there were roles, and as a restored copy
// can be.
func testProvisionGivesTablesToTheOwner(t *testing.T, s *secured) {
	administrator := s.openURL(s.AdministratorURL("clusterservice"), postgres.Authentication{})
	must.Get(administrator.Exec(t.Context(), `CREATE TABLE fleet (id serial, name text); CREATE SEQUENCE numbers; CREATE TABLE goose_db_version (id int);
		ALTER DATABASE clusterservice OWNER TO `+superuser))(t)
	must.Do(t, s.Provision(t.Context()))
	owner := s.open("clusterservice", "clusterservice_owner", "local", mesh.ClusterServiceMigration)
	if _, err := owner.Exec(t.Context(), "ALTER TABLE fleet ADD COLUMN more text; ALTER SEQUENCE numbers RESTART; CREATE TABLE other (name text)"); err != nil {
		t.Error(err)
	}
	must.Do(t, postgres.Grant(t.Context(), owner, "clusterservice"))
	service := s.open("clusterservice", "clusterservice", "local", mesh.ClusterService)
	if _, err := service.Exec(t.Context(), "INSERT INTO fleet (name) VALUES ('a')"); err != nil {
		t.Error(err)
	}
}

// testTokenIsThePasswordOfEachSession changes a password between two sessions, as a token that expires does.
func testTokenIsThePasswordOfEachSession(t *testing.T, s *secured) {
	administrator := s.openURL(s.AdministratorURL(maintenance), postgres.Authentication{})
	set := func(password string) {
		t.Helper()
		must.Get(administrator.Exec(t.Context(), "ALTER ROLE "+superuser+" PASSWORD '"+password+"'"))(t)
	}
	token := "first"
	set(token)
	url := strings.Replace(s.AdministratorURL("maestro"), s.password+"@", "none@", 1)
	pool := s.openURL(url, postgres.Authentication{Password: func(context.Context) (string, error) { return token, nil }})
	connect := func() error {
		session, err := postgres.Connect(t.Context(), pool)
		if err != nil {
			return err
		}
		return session.Close(t.Context())
	}
	must.Do(t, pool.Ping(t.Context()))
	defer set(s.password)
	set("second")
	if err := connect(); postgres.Code(err) != "28P01" {
		t.Errorf("a session with the old token: %v", err)
	}
	token = "second"
	if err := connect(); err != nil {
		t.Errorf("a session with the new token: %v", err)
	}
	var name string
	if err := pool.QueryRow(t.Context(), "SELECT current_user").Scan(&name); err != nil || name != superuser {
		t.Errorf("the open session: %q, %v", name, err)
	}
	pool.Reset()
	if err := pgx.BeginFunc(t.Context(), pool, func(pgx.Tx) error { return nil }); err != nil {
		t.Errorf("a new session of the pool: %v", err)
	}
}
