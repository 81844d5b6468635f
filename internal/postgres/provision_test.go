package postgres_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// administered is a server with an administrator who has the rights of an Entra administrator in Azure: it can create roles and databases,
// is a member of azure_pg_admin and no superuser.
type administered struct {
	*postgresserver.Server
	superuser *pgxpool.Pool
	log       bytes.Buffer
}

const rolePassword = "passwordofrole"

// TestProvision shares a server, because its start takes longer than the tests. Each of them begins without the roles and databases.
func TestProvision(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "hcpmesh-provision-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // for the user of the server
		t.Fatal(err)
	}
	server := must.Get(postgresserver.Start(t.Context(), postgresserver.Options{DataDir: filepath.Join(dir, "server"), Throwaway: true}))(t)
	t.Cleanup(server.Kill)
	s := &administered{Server: server, superuser: open(t, server.AdministratorURL("postgres"))}
	s.exec(t, "CREATE ROLE azure_pg_admin; CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD '"+rolePassword+"' IN ROLE azure_pg_admin; CREATE ROLE other LOGIN PASSWORD '"+rolePassword+"'")
	for name, test := range map[string]func(*testing.T, *administered){
		"CreatesDatabaseAndRoles":  testProvisionCreates,
		"RepairsWhatDiffers":       testProvisionRepairs,
		"ContinuesAfterInterrupts": testProvisionContinues,
		"RefusesForeignObjects":    testProvisionRefuses,
		"MapsRolesToIdentities":    testProvisionMaps,
		"RunsOnceAtATime":          testProvisionsAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			s.exec(t, "ALTER ROLE administrator RESET ALL")
			s.exec(t, "DROP DATABASE IF EXISTS fleet WITH (FORCE)")
			s.exec(t, "DROP ROLE IF EXISTS fleet_owner, fleet")
			s.log.Reset()
			test(t, s)
		})
	}
}

func (s *administered) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.superuser.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// provision runs the command with the flags of a region.
func (s *administered) provision(ctx context.Context, flags ...func(*postgrescommand.ProvisionOptions)) error {
	o := postgrescommand.ProvisionOptions{Database: postgres.Settings{Authentication: postgres.WithPassword}, Name: "fleet", Owner: "fleet_owner", Runtime: "fleet"}
	for _, set := range flags {
		set(&o)
	}
	file, err := os.CreateTemp("", "url")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.WriteString(s.URL("postgres", postgresserver.Role{Name: "administrator", Password: rolePassword})); err != nil {
		return err
	}
	o.Database.URLFile = file.Name()
	return postgrescommand.Provision(ctx, "test", &o, slog.New(slog.NewTextHandler(&s.log, nil)))
}

// check checks that the owner can migrate the database, the service can use it, and nobody else can connect to it. Then it checks that
// another provisioning changes nothing: its sessions are read-only.
func (s *administered) check(t *testing.T, flags ...func(*postgrescommand.ProvisionOptions)) {
	t.Helper()
	s.exec(t, "ALTER ROLE fleet_owner PASSWORD '"+rolePassword+"'; ALTER ROLE fleet PASSWORD '"+rolePassword+"'")
	role := func(name string) *pgxpool.Pool {
		return open(t, s.URL("fleet", postgresserver.Role{Name: name, Password: rolePassword}))
	}
	file := filepath.Join(t.TempDir(), "url")
	must.Do(t, os.WriteFile(file, []byte(s.URL("fleet", postgresserver.Role{Name: "fleet_owner", Password: rolePassword})), 0o600))
	o := postgrescommand.MigrateOptions{Database: postgres.Settings{URLFile: file, Authentication: postgres.WithPassword}, GrantTo: "fleet"}
	must.Do(t, postgrescommand.Migrate(t.Context(), "test", &o, migrations("0001_a.sql"), quiet))
	service := role("fleet")
	if got := applied(t, service); got != "0001_a.sql" {
		t.Errorf("the table contains %s", got)
	}
	for _, statement := range []string{"CREATE TABLE other (name text)", "CREATE TEMPORARY TABLE other (name text)", "CREATE ROLE more", "CREATE DATABASE more", "SET ROLE fleet_owner"} {
		if _, err := service.Exec(t.Context(), statement); postgres.Code(err) != "42501" {
			t.Errorf("the service: %s: %v", statement, err)
		}
	}
	for _, statement := range []string{"CREATE ROLE more", "CREATE DATABASE more"} {
		if _, err := role("fleet_owner").Exec(t.Context(), statement); postgres.Code(err) != "42501" {
			t.Errorf("the owner: %s: %v", statement, err)
		}
	}
	if err := role("other").Ping(t.Context()); postgres.Code(err) != "42501" {
		t.Errorf("another role connects: %v", err)
	}
	if _, err := role("administrator").Exec(t.Context(), "SELECT FROM applied"); postgres.Code(err) != "42501" {
		t.Errorf("the administrator reads the rows of the service: %v", err)
	}
	s.exec(t, "ALTER ROLE administrator SET default_transaction_read_only = on")
	s.log.Reset()
	if err := s.provision(t.Context(), flags...); err != nil || s.log.Len() > 0 {
		t.Errorf("provisioning again: %v, %s", err, &s.log)
	}
}

func testProvisionCreates(t *testing.T, s *administered) {
	must.Do(t, s.provision(t.Context()))
	var encoding, collation, class string
	if err := s.superuser.QueryRow(t.Context(), "SELECT pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database WHERE datname = 'fleet'").Scan(&encoding, &collation, &class); err != nil ||
		encoding+collation+class != "UTF8CC" {
		t.Errorf("encoding %s, collation %s, class %s, %v", encoding, collation, class, err)
	}
	if got := strings.Count(s.log.String(), "created"); got != 3 {
		t.Errorf("logged %s", &s.log)
	}
	s.check(t)
}

// testProvisionRepairs makes the schema public that of Azure, and changes what an administrator could have changed.
func testProvisionRepairs(t *testing.T, s *administered) {
	must.Do(t, s.provision(t.Context()))
	inside := open(t, s.AdministratorURL("fleet"))
	must.Get(inside.Exec(t.Context(), "ALTER SCHEMA public OWNER TO azure_pg_admin; REVOKE ALL ON SCHEMA public FROM pg_database_owner"))(t)
	inside.Close()
	s.exec(t, "ALTER ROLE fleet_owner CREATEDB CREATEROLE; ALTER ROLE fleet NOLOGIN")
	s.exec(t, "GRANT ALL ON DATABASE fleet TO PUBLIC; REVOKE CONNECT ON DATABASE fleet FROM fleet")
	s.log.Reset()
	must.Do(t, s.provision(t.Context()))
	for _, want := range []string{"database role restricted", "schema public granted to the owner"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %q: %s", want, &s.log)
		}
	}
	s.check(t)
}

// testProvisionContinues starts from what an interrupted provisioning leaves.
func testProvisionContinues(t *testing.T, s *administered) {
	for reason, statements := range map[string][]string{
		"one role":                           {"CREATE ROLE fleet_owner LOGIN"},
		"a member of the owner":              {"CREATE ROLE fleet_owner LOGIN", "CREATE ROLE fleet LOGIN", "GRANT fleet_owner TO CURRENT_USER"},
		"a database to which all connect":    {"CREATE ROLE fleet_owner LOGIN", "CREATE ROLE fleet LOGIN", "GRANT fleet_owner TO CURRENT_USER", "CREATE DATABASE fleet OWNER fleet_owner TEMPLATE template0"},
		"everything, and a remaining member": {"provision", "GRANT fleet_owner TO CURRENT_USER"},
	} {
		t.Run(reason, func(t *testing.T) {
			s.exec(t, "ALTER ROLE administrator RESET ALL")
			s.exec(t, "DROP DATABASE IF EXISTS fleet WITH (FORCE)")
			s.exec(t, "DROP ROLE IF EXISTS fleet_owner, fleet")
			administrator := open(t, s.URL("postgres", postgresserver.Role{Name: "administrator", Password: rolePassword}))
			for _, statement := range statements {
				var err error
				if statement == "provision" {
					err = s.provision(t.Context())
				} else {
					_, err = administrator.Exec(t.Context(), statement)
				}
				if err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			must.Do(t, s.provision(t.Context()))
			s.check(t)
		})
	}
}

func testProvisionRefuses(t *testing.T, s *administered) {
	for reason, c := range map[string]struct{ statement, want string }{
		"a superuser":                 {"CREATE ROLE fleet_owner LOGIN SUPERUSER", "provisioning the role fleet_owner: it exists and is a superuser"},
		"an administrator":            {"CREATE ROLE fleet LOGIN IN ROLE azure_pg_admin", "provisioning the role fleet: it exists and is a member of another role"},
		"a database of somebody else": {"CREATE DATABASE fleet OWNER other", "provisioning the database fleet: it exists and belongs to the role other, not to fleet_owner"},
	} {
		t.Run(reason, func(t *testing.T) {
			s.exec(t, "DROP DATABASE IF EXISTS fleet")
			s.exec(t, "DROP ROLE IF EXISTS fleet_owner, fleet")
			s.exec(t, c.statement)
			if err := s.provision(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	// The last case, which differs from run to run, has left its objects.
	s.exec(t, "DROP DATABASE IF EXISTS fleet")
	s.exec(t, "DROP ROLE IF EXISTS fleet_owner, fleet")
	own := func(o *postgrescommand.ProvisionOptions) { o.Runtime = "administrator" }
	if err := s.provision(t.Context(), own); err == nil || !strings.Contains(err.Error(), "provisioning the role administrator: it is the role of the administrator") {
		t.Error(err)
	}
}

const (
	ownerObject   = "0811f964-2838-40dc-b9a8-116b02748e41"
	runtimeObject = "6c5efc0d-69ff-4be8-901a-e15520f7789a"
)

// testProvisionMaps checks the security labels as far as a server without Azure's module can: it refuses the statement. Labels that a
// superuser writes into the catalogue stand for those of an earlier call.
func testProvisionMaps(t *testing.T, s *administered) {
	identities := func(o *postgrescommand.ProvisionOptions) {
		o.OwnerObjectID, o.RuntimeObject = ownerObject, runtimeObject
	}
	if err := s.provision(t.Context(), identities); postgres.Code(err) != "22023" || !strings.Contains(err.Error(), "provisioning the role fleet_owner: the server accepts no identities of Entra ID") {
		t.Errorf("without the module: %v", err)
	}
	must.Do(t, s.provision(t.Context()))
	catalogue := open(t, s.AdministratorURL("postgres"))
	for role, object := range map[string]string{"fleet_owner": ownerObject, "fleet": runtimeObject} {
		statement := fmt.Sprintf(`SET allow_system_table_mods = on; INSERT INTO pg_shseclabel SELECT oid, 'pg_authid'::regclass, 'pgaadauth', 'aadauth,oid=%s,type=service'
			FROM pg_authid WHERE rolname = '%s'`, object, role)
		must.Get(catalogue.Exec(t.Context(), statement))(t)
	}
	s.check(t, identities)
	s.exec(t, "ALTER ROLE administrator RESET ALL")
	another := func(o *postgrescommand.ProvisionOptions) {
		o.OwnerObjectID, o.RuntimeObject = ownerObject, "11111111-1111-1111-1111-111111111111"
	}
	if err := s.provision(t.Context(), another); postgres.Code(err) != "22023" || !strings.Contains(err.Error(), "provisioning the role fleet: ") {
		t.Errorf("another identity: %v", err)
	}
	// Labels of the catalogue would stay when the roles are removed.
	if _, err := catalogue.Exec(t.Context(), "SET allow_system_table_mods = on; DELETE FROM pg_shseclabel"); err != nil {
		t.Error(err)
	}
}

func testProvisionsAtOnce(t *testing.T, s *administered) {
	var jobs sync.WaitGroup
	errs := make(chan error, 4)
	for range cap(errs) {
		jobs.Go(func() {
			one := &administered{Server: s.Server}
			errs <- one.provision(context.WithoutCancel(t.Context()))
		})
	}
	jobs.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	s.check(t)
}

// TestProvisionOptions checks what the command refuses before it connects.
func TestProvisionOptions(t *testing.T) {
	const administrator = "--database-url=postgres://administrator@db.example.com/postgres?sslmode=verify-full"
	identities := []string{"--owner-object-id=" + ownerObject, "--runtime-object-id=" + runtimeObject}
	names := []string{"--database-name=fleet", "--owner=fleet_owner", "--runtime=fleet"}
	for reason, c := range map[string]struct {
		flags []string
		want  string // part of the error
	}{
		"tokens":                        {identities, ""},
		"tokens without identities":     {nil, `--owner-object-id: "" is not the object ID of an identity`},
		"one identity":                  {identities[:1], `--runtime-object-id: "" is not`},
		"a client ID in braces":         {append(identities[:1:1], "--runtime-object-id={"+runtimeObject+"}"), "--runtime-object-id: "},
		"a label in an object ID":       {append(identities[:1:1], "--runtime-object-id="+runtimeObject+",admin"), "--runtime-object-id: "},
		"the identity of the owner":     {append(identities[:1:1], "--runtime-object-id="+ownerObject), "--runtime-object-id: the program must not log in as the owner"},
		"the role of the owner":         {append(identities, "--runtime=fleet_owner"), "--runtime: the program must not own its database"},
		"a role that needs quotes":      {append(identities, "--runtime=fleet;"), "--runtime: "},
		"no database":                   {append(identities, "--database-name="), "--database-name: "},
		"a certificate":                 {append(identities, "--database-authentication=certificate"), "--database-authentication: the command provision does not support certificate"},
		"an administrator in two flags": {append(identities, "--database-url-file=x"), "--database-url and --database-url-file: set one of them"},
	} {
		t.Run(reason, func(t *testing.T) {
			var o postgrescommand.ProvisionOptions
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			o.AddFlags(flags)
			must.Do(t, flags.Parse(append(append([]string{administrator, "--database-authentication=entra"}, names...), c.flags...)))
			err := o.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
