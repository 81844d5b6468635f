package postgresserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maintenance is the database to which the superuser connects.
const maintenance = "postgres"

// TLS names the files with which a server authenticates itself and its clients. Start copies them, because the user of the server
// cannot read the originals.
type TLS struct {
	// CertificateFile and KeyFile are the server's own. The certificate must be valid for 127.0.0.1.
	CertificateFile, KeyFile string
	// CAFile is the authority of the server's certificate and of all client certificates.
	CAFile string
	// Passwords replaces the client certificates: every role has a password, as it has a token in Azure Database for PostgreSQL, and the
	// databases decide who may connect.
	Passwords bool
}

// Database is a database with its two roles.
type Database struct {
	Name string
	// Owner owns the database and its tables, and migrates it.
	Owner Role
	// Runtime can connect to the database. The owner grants it rights to the tables.
	Runtime Role
}

// Role is a role of one database. It is not a superuser, and can create neither databases nor roles.
type Role struct {
	Name string
	// Certificate is the common name of the client certificate that authenticates the role on a server with TLS.
	Certificate string
	// Password authenticates the role on a server without TLS.
	Password string
}

// names are the names that need no quotes in SQL and in the files of the server.
var names, commonNames, passwords = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`), regexp.MustCompile(`^[a-z0-9.-]+$`), regexp.MustCompile(`^[A-Za-z0-9]*$`)

func (d *Database) validate() error {
	if !names.MatchString(d.Name) {
		return fmt.Errorf("PostgreSQL: the database name %q is not lower-case letters, digits and underscores", d.Name)
	}
	for _, role := range []Role{d.Owner, d.Runtime} {
		if !names.MatchString(role.Name) || role.Certificate != "" && !commonNames.MatchString(role.Certificate) || !passwords.MatchString(role.Password) {
			return fmt.Errorf("PostgreSQL: the role %q of the database %s has an invalid name, certificate or password", role.Name, d.Name)
		}
	}
	return nil
}

// configureAccess writes the files that decide who may connect, and returns the settings that name them. Without TLS, the data
// directory has a file that accepts all roles with passwords.
func (s *Server) configureAccess(options Options) ([]string, error) {
	if options.TLS == nil {
		return nil, nil
	}
	s.caFile, s.tls = options.TLS.CAFile, options.TLS
	s.accessDir = filepath.Join(options.DataDir, "access")
	dir := s.accessDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := s.copyTLS(); err != nil {
		return nil, err
	}
	files := map[string][]byte{"pg_hba.conf": s.clientRules(), "pg_ident.conf": s.certificateMap()}
	var settings []string
	for name, setting := range map[string]string{"server.crt": "ssl_cert_file", "server.key": "ssl_key_file", "ca.crt": "ssl_ca_file", "pg_hba.conf": "hba_file", "pg_ident.conf": "ident_file"} {
		path := filepath.Join(dir, name)
		if content, ok := files[name]; ok {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return nil, fmt.Errorf("PostgreSQL: %w", err)
			}
		}
		settings = append(settings, "-c", setting+"="+path)
	}
	return append(settings, "-c", "ssl=on", "-c", "ssl_min_protocol_version=TLSv1.3"), s.account.own(dir)
}

// certificates is the name of the map from common names to roles.
const certificates = "certificates"

// clientRules returns the content of pg_hba.conf: every role can connect to its own database only, unless the server accepts passwords.
// PostgreSQL rejects what matches no line, and so each connection without TLS.
func (s *Server) clientRules() []byte {
	var text bytes.Buffer
	if s.tls.Passwords {
		return []byte("hostssl all all 127.0.0.1/32 scram-sha-256\n")
	}
	for _, database := range s.databases {
		fmt.Fprintf(&text, "hostssl %s %s,%s 127.0.0.1/32 cert map=%s\n", database.Name, database.Owner.Name, database.Runtime.Name, certificates)
	}
	fmt.Fprintf(&text, "hostssl all %s 127.0.0.1/32 scram-sha-256\n", superuser)
	return text.Bytes()
}

// certificateMap returns the content of pg_ident.conf: the role of each certificate.
func (s *Server) certificateMap() []byte {
	var text bytes.Buffer
	for _, database := range s.databases {
		for _, role := range []Role{database.Owner, database.Runtime} {
			fmt.Fprintf(&text, "%s %s %s\n", certificates, role.Certificate, role.Name)
		}
	}
	return text.Bytes()
}

// Provision creates the databases of the options with their roles, which can connect to no other database. It changes those that exist to what it would create, and gives
// tables that belong to the superuser, as those of a restored copy can, to the owner of the database.
func (s *Server) Provision(ctx context.Context) error {
	for _, database := range s.databases {
		if err := s.provision(ctx, &database); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) provision(ctx context.Context, database *Database) error {
	var script strings.Builder
	// PostgreSQL lets each role connect to these.
	fmt.Fprintf(&script, "REVOKE ALL ON DATABASE %s, template1 FROM PUBLIC;\n", maintenance)
	for _, role := range []Role{database.Owner, database.Runtime} {
		password := "NULL"
		if role.Password != "" {
			password = "'" + role.Password + "'"
		}
		fmt.Fprintf(&script, "SELECT 'CREATE ROLE %[1]s' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') \\gexec\n"+
			"ALTER ROLE %[1]s LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD %[2]s;\n", role.Name, password)
	}
	fmt.Fprintf(&script, `SELECT 'CREATE DATABASE %[1]s' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '%[1]s') \gexec
ALTER DATABASE %[1]s OWNER TO %[2]s;
REVOKE ALL ON DATABASE %[1]s FROM PUBLIC;
GRANT CONNECT ON DATABASE %[1]s TO %[3]s;
\connect %[1]s
SELECT format('ALTER TABLE %%I.%%I OWNER TO %[2]s', schemaname, tablename) FROM pg_tables WHERE schemaname = 'public' AND tableowner = '%[4]s' \gexec
SELECT format('ALTER SEQUENCE %%I.%%I OWNER TO %[2]s', schemaname, sequencename) FROM pg_sequences WHERE schemaname = 'public' AND sequenceowner = '%[4]s' \gexec
`, database.Name, database.Owner.Name, database.Runtime.Name, superuser)
	if err := s.run(ctx, script.String()); err != nil {
		return fmt.Errorf("creating the database %s and its roles: %w", database.Name, err)
	}
	return nil
}

// run executes a script of psql as the superuser. The script is not an argument, because it can contain passwords.
func (s *Server) run(ctx context.Context, script string) error {
	command := s.client(ctx, "psql", "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-d", maintenance)
	command.Stdin = strings.NewReader(script)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, lastLine(output))
	}
	return nil
}

// AdministratorURL returns the connection string of a database for the superuser. It contains the password: do not log it.
func (s *Server) AdministratorURL(database string) string {
	u := s.url(database, url.UserPassword(superuser, s.password))
	if s.caFile != "" {
		u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.caFile}}.Encode()
	}
	return u.String()
}

// URL returns the connection string of a database for a role. It contains the password of the role if it has one: then do not log
// it. On a server with TLS, the client must present the role's certificate.
func (s *Server) URL(database string, role Role) string {
	user := url.User(role.Name)
	if role.Password != "" {
		user = url.UserPassword(role.Name, role.Password)
	}
	u := s.url(database, user)
	return u.String()
}

func (s *Server) url(database string, user *url.Userinfo) url.URL {
	u := url.URL{Scheme: "postgres", User: user, Path: "/" + database, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))}
	if s.caFile == "" {
		u.RawQuery = "sslmode=disable"
	} else {
		u.RawQuery = "sslmode=require"
	}
	return u
}

// CopyDatabase creates a database as a copy of template, owned by a role. No session may be connected to template. It copies the files,
// which include the relation cache that a first connection otherwise builds, and so costs a quarter of the CPU time of a copy through the
// write-ahead log. The two checkpoints of such a copy cost little on a throwaway server, which does not sync.
func (s *Server) CopyDatabase(ctx context.Context, name, template string, owner Role) error {
	if err := s.run(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s STRATEGY FILE_COPY;", name, template, owner.Name)); err != nil {
		return fmt.Errorf("copying the database %s to %s: %w", template, name, err)
	}
	return nil
}
