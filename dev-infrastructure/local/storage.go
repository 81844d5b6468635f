package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// The names of the databases, one for each service that has one.
const (
	ClusterServiceDatabase = "clusterservice"
	MaestroDatabase        = "maestro"
)

// serviceDatabase is the database of a service, with the workload that migrates it.
type serviceDatabase struct {
	postgresserver.Database
	// program is the program of the service, which has the command migrate.
	program string
}

// serviceDatabases returns the databases of the region. Each service has a role for its own database, which cannot change tables, and
// another workload migrates the database as its owner.
func serviceDatabases() []serviceDatabase {
	database := func(name, program string, service, migration mesh.Peer) serviceDatabase {
		return serviceDatabase{program: program, Database: postgresserver.Database{Name: name,
			Owner:   postgresserver.Role{Name: name + "_owner", Certificate: string(migration)},
			Runtime: postgresserver.Role{Name: name, Certificate: string(service)}}}
	}
	return []serviceDatabase{
		database(ClusterServiceDatabase, "cluster-service", mesh.ClusterService, mesh.ClusterServiceMigration),
		database(MaestroDatabase, "maestro-server", mesh.MaestroServer, mesh.MaestroMigration),
	}
}

// databaseURLFile returns the file with the URL of a database for its service. It contains no password.
func (r *Region) databaseURLFile(database string) string {
	return r.state.path("secrets", "postgres-"+database+".url")
}

// ownerURLFile returns the file with the URL of a database for its owner. It contains no password.
func (r *Region) ownerURLFile(database string) string {
	return r.state.path("secrets", "postgres-"+database+"-owner.url")
}

// administratorURLFile returns the file with the URL of the PostgreSQL server for its superuser, including the password. No process
// reads it.
func (r *Region) administratorURLFile() string {
	return r.state.path("secrets", "postgres-administrator.url")
}

// databaseFlags returns the flags with which a service connects to its database.
func (r *Region) databaseFlags(database string) []string {
	return []string{"--database-url-file=" + r.databaseURLFile(database), "--database-authentication=" + postgres.WithCertificate, "--migrate=false"}
}

// postgresProcess is a running server and the log of the process.
type postgresProcess struct {
	*postgresserver.Server
	log io.Writer
}

// postgres returns the spec of the PostgreSQL server. Each time the server becomes ready, it creates the databases, their roles and the
// files with their URLs, and migrates the databases.
func (r *Region) postgres() supervisor.Spec {
	// The supervisor calls the other functions after Launch of the same start.
	current := &r.database
	return supervisor.Spec{
		Name:    "postgres",
		Ports:   r.ports("postgres"),
		DataDir: r.state.record.PostgresDir,
		Launch: func(ctx context.Context, log *os.File) (supervisor.Running, error) {
			// PostgreSQL's user must be able to enter the parent folder; the data directory itself is closed to others.
			if err := os.MkdirAll(filepath.Dir(r.state.record.PostgresDir), 0o755); err != nil {
				return nil, err
			}
			var databases []postgresserver.Database
			for _, database := range serviceDatabases() {
				databases = append(databases, database.Database)
			}
			// The server reads the files while it starts.
			r.files.Lock()
			defer r.files.Unlock()
			identity := r.identityDir("postgres")
			server, err := postgresserver.Start(ctx, postgresserver.Options{
				DataDir:   r.state.record.PostgresDir,
				Port:      r.port(postgresPort),
				Throwaway: r.config.Throwaway,
				Log:       log,
				Databases: databases,
				TLS: &postgresserver.TLS{
					CertificateFile: filepath.Join(identity, mesh.CertificateFile),
					KeyFile:         filepath.Join(identity, mesh.KeyFile),
					CAFile:          r.state.path("ca", mesh.CAFile),
				},
			})
			if err != nil {
				return nil, err
			}
			current.Store(&postgresProcess{server, log})
			return server, nil
		},
		Ready:  func(ctx context.Context) error { return current.Load().Ready(ctx) },
		Live:   func(ctx context.Context) error { return current.Load().Live(ctx) },
		Settle: func(ctx context.Context) error { return r.provisionDatabases(ctx, current.Load()) },
		// SIGINT is a fast shutdown: open transactions are rolled back and connections are closed.
		StopSignal: syscall.SIGINT,
		Grace:      20 * time.Second,
	}
}

// provisionTimeout bounds provisionDatabases, for a server that hangs meanwhile.
const provisionTimeout = time.Minute

// provisionDatabases creates what the infrastructure of a region creates in Azure, and migrates the databases of the services that the
// region starts. A developer who runs a service runs its command migrate.
func (r *Region) provisionDatabases(ctx context.Context, server *postgresProcess) error {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	if err := server.Provision(ctx); err != nil {
		return err
	}
	urls := map[string]string{r.administratorURLFile(): server.AdministratorURL("postgres")}
	for _, database := range serviceDatabases() {
		urls[r.databaseURLFile(database.Name)] = server.URL(database.Name, database.Runtime)
		urls[r.ownerURLFile(database.Name)] = server.URL(database.Name, database.Owner)
	}
	for file, url := range urls {
		if err := replaceFile(file, []byte(url+"\n"), 0o600); err != nil {
			return fmt.Errorf("writing the URL of a database: %w", err)
		}
	}
	for _, database := range serviceDatabases() {
		if r.config.without(database.program) {
			continue
		}
		if err := r.migrate(ctx, &database, r.programOf(database.program, database.program), server.log); err != nil {
			return fmt.Errorf("migrating the database %s: %w", database.Name, err)
		}
	}
	return nil
}

// migrate runs the command migrate of a program of a service and appends its output to the log.
func (r *Region) migrate(ctx context.Context, database *serviceDatabase, program string, log io.Writer) error {
	command := exec.Command(program, postgrescommand.MigrateName,
		"--database-url-file="+r.ownerURLFile(database.Name),
		"--database-authentication="+postgres.WithCertificate,
		"--identity-dir="+r.identityDir(database.Owner.Certificate),
		"--grant-to="+database.Runtime.Name,
	)
	command.Env = append(os.Environ(), r.raceEnvironment()...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := spawn.Run(ctx, command)
	_, _ = log.Write(output.Bytes())
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(output.Bytes()), []byte("\n"))
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}
