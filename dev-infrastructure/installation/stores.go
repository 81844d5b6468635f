package installation

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// maxSessions bounds the sessions of a client of the broker.
const maxSessions = 10

// StartBroker serves MQTT on loopback, and in the cluster under the name of the Event Grid namespace. It returns the address on loopback.
func (s *Outside) StartBroker(ctx context.Context) (address string, err error) {
	r := s.settings()
	host, port := r.mqtt()
	source := r.text("maestro", "sourceId")
	if r.err != nil {
		return "", r.err
	}
	dir, err := s.Identity(mesh.EventGridEmulator, host, "127.0.0.1")
	if err != nil {
		return "", err
	}
	identity, err := broker.LoadIdentity(dir)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b, err := broker.Start(listener, broker.Options{TLS: identity.TLS(), Source: source, MaxSessions: maxSessions, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	s.onClose(func() error {
		_ = b.Close()
		return nil
	})
	return b.Addr(), s.Forward(ctx, host, port, b.Addr())
}

// ForwardBroker serves the MQTT broker of another cluster under the name of the Event Grid namespace.
func (s *Outside) ForwardBroker(ctx context.Context, address string) error {
	r := s.settings()
	host, port := r.mqtt()
	if r.err != nil {
		return r.err
	}
	return s.Forward(ctx, host, port, address)
}

// databaseRecord is the file with the path of PostgreSQL's data, and databasePattern the form of its name.
const databaseRecord, databasePattern = "postgres-data", "hcpmesh-postgres-"

// RemoveData removes a folder of Outside, with the data that they left if their process was killed.
func RemoveData(dir string) error {
	data, err := DatabaseDir(dir)
	if err != nil {
		return err
	}
	var removed error
	if data != "" {
		removed = os.RemoveAll(data)
	}
	return errors.Join(removed, os.RemoveAll(dir))
}

// DatabaseDir returns the folder with PostgreSQL's data of a folder of Outside, or "" if there is none.
func DatabaseDir(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, databaseRecord))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if !strings.HasPrefix(string(data), filepath.Join(os.TempDir(), databasePattern)) {
		return "", nil
	}
	return string(data), nil
}

// StartDatabases serves PostgreSQL under the names of the flexible servers. It authenticates the certificates of the services and of their
// migrations. The data is temporary.
func (s *Outside) StartDatabases(ctx context.Context) error {
	r := s.settings()
	hosts := r.postgres()
	databases := []postgresserver.Database{{
		Name:    r.text("postgres", "maestro", "database"),
		Owner:   postgresserver.Role{Name: r.text("maestro", "server", "databaseOwnerRole"), Certificate: string(mesh.MaestroMigration)},
		Runtime: postgresserver.Role{Name: r.text("maestro", "server", "databaseRole"), Certificate: string(mesh.MaestroServer)},
	}, {
		Name:    r.text("postgres", "clusterService", "database"),
		Owner:   postgresserver.Role{Name: r.text("clusterService", "databaseOwnerRole"), Certificate: string(mesh.ClusterServiceMigration)},
		Runtime: postgresserver.Role{Name: r.text("clusterService", "databaseRole"), Certificate: string(mesh.ClusterService)},
	}}
	if r.err != nil {
		return r.err
	}
	identity, err := s.Identity(mesh.PostgreSQL, append(hosts, "127.0.0.1")...)
	if err != nil {
		return err
	}
	// The user of PostgreSQL must be able to enter the folder.
	data, err := os.MkdirTemp("", databasePattern)
	if err != nil {
		return err
	}
	s.onClose(func() error { return os.RemoveAll(data) })
	if err := errors.Join(os.Chmod(data, 0o755), os.WriteFile(filepath.Join(s.Dir, databaseRecord), []byte(data), 0o600)); err != nil {
		return err
	}
	server, err := postgresserver.Start(ctx, postgresserver.Options{
		DataDir: filepath.Join(data, "server"), Throwaway: true, Databases: databases,
		TLS: &postgresserver.TLS{CertificateFile: filepath.Join(identity, mesh.CertificateFile), KeyFile: filepath.Join(identity, mesh.KeyFile), CAFile: filepath.Join(identity, mesh.CAFile)},
	})
	if err != nil {
		return err
	}
	s.onClose(func() error {
		server.Kill()
		return nil
	})
	if err := server.Provision(ctx); err != nil {
		return err
	}
	location, err := url.Parse(server.URL(databases[0].Name, databases[0].Runtime))
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if err := s.Forward(ctx, host, "5432", location.Host); err != nil {
			return err
		}
	}
	return nil
}

// StartCosmos serves the Cosmos DB account under its name, with the containers and the roles of the services that the infrastructure of a
// region creates. The object IDs of the services are those of the target.
func (s *Outside) StartCosmos(ctx context.Context, e *Entra) error {
	r := s.settings()
	content, err := r.cosmosAccount()
	if err != nil {
		return err
	}
	o := emulator.Options{DataDir: filepath.Join(s.Dir, "cosmos"), Account: content, Endpoint: r.text("cosmos", "endpoint"), Region: r.text("region"), Logger: slog.New(slog.DiscardHandler),
		Tokens: &entra.Verifier{Authority: r.text("endpoints", "authority"), Tenant: content.Tenant, Client: s.HTTPClient(e.Address)}}
	host := strings.TrimPrefix(r.storeAudience(), "https://")
	if r.err != nil {
		return r.err
	}
	cosmos, err := emulator.Open(o)
	if err != nil {
		return err
	}
	s.onClose(cosmos.Close)
	_, err = s.serveHTTPS(ctx, mesh.CosmosEmulator, cosmos, host)
	return err
}

// cosmosAccount returns the account with its containers, and with the roles of the programs that have a chart. No other program runs in a cluster.
func (r *settings) cosmosAccount() (account.Account, error) {
	content := account.Account{Name: r.text("cosmos", "account"), ConsistencyLevel: account.ConsistencyLevel(database.ConsistencyLevel), Tenant: r.text("tenantId")}
	store := account.Database{Name: database.DatabaseName}
	for _, container := range database.Containers() {
		properties, err := json.Marshal(container)
		if err != nil {
			return account.Account{}, err
		}
		store.Containers = append(store.Containers, properties)
	}
	content.Databases = []account.Database{store}
	for _, role := range database.Roles() {
		w, ok := workload.Find(mesh.Peer(role.Service))
		if !ok || !values.Applies(w, r.target) {
			continue
		}
		principal := r.target.ObjectIDs[r.text(append(slices.Clone(w.Key), "managedIdentity")...)]
		for _, grant := range role.Grants {
			id := role.Service + grant.Scope()
			content.RoleDefinitions = append(content.RoleDefinitions, account.RoleDefinition{ID: id, RoleName: id, AssignableScopes: []string{grant.Scope()}, DataActions: grant.DataActions})
			content.RoleAssignments = append(content.RoleAssignments, account.RoleAssignment{RoleDefinitionID: id, Scope: grant.Scope(), PrincipalID: principal})
		}
	}
	return content, r.err
}

// storeAudience returns the audience of tokens for the Cosmos DB account.
func (r *settings) storeAudience() string { return "https://" + r.host("cosmos", "endpoint") }
