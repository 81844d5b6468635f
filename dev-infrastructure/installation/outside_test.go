package installation_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// outsideHosts are the names of the services outside of the cluster.
func outsideHosts(t *testing.T, target values.Target) []string {
	t.Helper()
	hosts := append(append(postgresHosts(t, target), releaseHosts(t, target)...), hostIn(t, textOf(t, target, "endpoints", "authority")), hostIn(t, textOf(t, target, "cosmos", "endpoint")))
	mqtt, _, err := net.SplitHostPort(textOf(t, target, "eventGrid", "mqttAddress"))
	if err != nil {
		t.Fatal(err)
	}
	return append(hosts, mqtt)
}

// postgresHosts are the names of the flexible servers.
func postgresHosts(t *testing.T, target values.Target) []string {
	t.Helper()
	var hosts []string
	for _, server := range []string{"maestro", "clusterService"} {
		hosts = append(hosts, textOf(t, target, "postgres", server, "server")+"."+textOf(t, target, "endpoints", "postgresSuffix"))
	}
	return hosts
}

func hostIn(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil || parsed.Hostname() == "" {
		t.Fatalf("%q has no host: %v", address, err)
	}
	return parsed.Hostname()
}

// startBroker serves MQTT on the machine, and in the cluster under the name of the Event Grid namespace. It returns the address on the
// machine.
func (r *region) startBroker() (address string) {
	r.t.Helper()
	host, port, err := net.SplitHostPort(r.text("eventGrid", "mqttAddress"))
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	identity, err := broker.LoadIdentity(r.identity(mesh.EventGridEmulator, host, "127.0.0.1"))
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := broker.Start(listener, broker.Options{TLS: identity.TLS(), Source: r.text("maestro", "sourceId"), MaxSessions: 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = b.Close() })
	r.forward(host, port, b.Addr())
	return b.Addr()
}

// startDatabases serves PostgreSQL under the names of the flexible servers. It authenticates the certificates of the services and of their
// migrations.
func (r *region) startDatabases() {
	r.t.Helper()
	hosts := postgresHosts(r.t, r.target)
	identity := r.identity(mesh.PostgreSQL, append(hosts, "127.0.0.1")...)
	// The user of PostgreSQL must be able to enter the folder.
	data, err := os.MkdirTemp("", "hcpmesh-postgres-")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(data) })
	if err := os.Chmod(data, 0o755); err != nil {
		r.t.Fatal(err)
	}
	databases := []postgresserver.Database{{
		Name:    r.text("postgres", "maestro", "database"),
		Owner:   postgresserver.Role{Name: r.text("maestro", "server", "databaseOwnerRole"), Certificate: string(mesh.MaestroMigration)},
		Runtime: postgresserver.Role{Name: r.text("maestro", "server", "databaseRole"), Certificate: string(mesh.MaestroServer)},
	}, {
		Name:    r.text("postgres", "clusterService", "database"),
		Owner:   postgresserver.Role{Name: r.text("clusterService", "databaseOwnerRole"), Certificate: string(mesh.ClusterServiceMigration)},
		Runtime: postgresserver.Role{Name: r.text("clusterService", "databaseRole"), Certificate: string(mesh.ClusterService)},
	}}
	server, err := postgresserver.Start(r.ctx, postgresserver.Options{
		DataDir: filepath.Join(data, "server"), Throwaway: true, Databases: databases,
		TLS: &postgresserver.TLS{CertificateFile: filepath.Join(identity, mesh.CertificateFile), KeyFile: filepath.Join(identity, mesh.KeyFile), CAFile: filepath.Join(identity, mesh.CAFile)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(server.Kill)
	if err := server.Provision(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	location, err := url.Parse(server.URL(databases[0].Name, databases[0].Runtime))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, host := range hosts {
		r.forward(host, "5432", location.Host)
	}
}

// forward forwards a port of a host to an address on loopback.
func (r *region) forward(host, port, address string) {
	r.t.Helper()
	err := r.cluster.ForwardHost(r.ctx, host, port, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// serveHTTPS serves the port of HTTPS of a host with the certificate of a peer. It returns its address on loopback.
func (r *region) serveHTTPS(host string, peer mesh.Peer, handler http.Handler) (address string) {
	r.t.Helper()
	address = r.listenHTTPS(host, peer, handler)
	r.forward(host, "443", address)
	return address
}

// listenHTTPS serves HTTPS with the certificate of a peer for a host, on loopback only, and returns the address.
func (r *region) listenHTTPS(host string, peer mesh.Peer, handler http.Handler) (address string) {
	r.t.Helper()
	identity := installation.IdentityFiles(r.identity(peer, host))
	certificate, err := tls.LoadX509KeyPair(identity["tls.crt"], identity["tls.key"])
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		r.t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	r.t.Cleanup(func() {
		// It waits for the requests in progress, which use what is closed next.
		if err := server.Shutdown(context.Background()); err != nil {
			r.t.Error(err)
		}
		<-served
	})
	return listener.Addr().String()
}

// httpClient returns a client that trusts the region's authority. It connects to an address for all names.
func (r *region) httpClient(address string) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.authority.CertificatePEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// storeAudience is the audience of tokens for the Cosmos DB account.
func (r *region) storeAudience() string {
	return "https://" + hostIn(r.t, r.text("cosmos", "endpoint"))
}

// startEntra issues tokens under the name of Entra ID: to the workloads with a chart, in exchange for tokens of their service accounts, and
// to ARM and engineers. It returns its address on loopback, and creates the files of the secrets.
func (r *region) startEntra() (address string) {
	r.t.Helper()
	var clients []token.Client
	for _, w := range workload.All() {
		if w.Management {
			continue
		}
		identity := r.text(append(slices.Clone(w.Key), "managedIdentity")...)
		clients = append(clients, token.Client{TenantID: r.text("tenantId"), ClientID: r.target.ClientIDs[identity], ObjectID: r.target.ObjectIDs[identity],
			Name: identity, Workload: fmt.Sprintf("system:serviceaccount:%s:%s", w.Peer, w.Peer)})
	}
	add := func(secretFile, audience string, client token.Client) {
		client.TenantID, client.ClientSecret, client.ObjectID, client.Audiences = r.text("tenantId"), rand.Text(), installation.ObjectID(client.Name), []string{audience}
		if err := os.WriteFile(secretFile, []byte(client.ClientSecret), 0o600); err != nil {
			r.t.Fatal(err)
		}
		clients = append(clients, client)
	}
	forFrontend, forAdmin := r.text("frontend", "authentication", "audience"), r.text("admin", "authentication", "audience")
	add(r.armSecretFile(), forFrontend, token.Client{ClientID: r.armClientID(), Name: "Azure Resource Manager"})
	for _, role := range []string{"reader", "operator"} {
		group := fmt.Sprint(r.target.Configuration.Get("admin", "groups", role).Items[0].Value)
		add(r.engineerSecretFile(role), forAdmin, token.Client{ClientID: r.engineerClientID(), Name: role, Groups: []string{group}})
	}
	issuer, err := token.NewIssuer(r.text("endpoints", "authority"), filepath.Join(r.dir, "entra"), clients, r.storeAudience(), forFrontend, forAdmin)
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := r.cluster.TokenKey()
	if err != nil {
		r.t.Fatal(err)
	}
	keyFile := filepath.Join(r.dir, "entra", "workload-issuer.pub")
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if issuer.Workloads, err = token.OpenFederation(kubernetes.TokenIssuer, keyFile); err != nil {
		r.t.Fatal(err)
	}
	subscriptions, err := directory.Open(filepath.Join(r.dir, "entra", "subscriptions.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	// Nobody calls ARM here, whose emulator issues the tokens.
	door, err := frontdoor.New(frontdoor.Options{PublicURL: r.text("endpoints", "authority"), Location: r.text("region"), APIVersions: []string{armAPIVersion},
		Frontend: "frontend.frontend.svc:8443", Tokens: issuer, Directory: subscriptions, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(door.Close)
	return r.serveHTTPS(hostIn(r.t, r.text("endpoints", "authority")), mesh.ARMFrontDoor, door)
}

// armClientID returns the client ID of ARM, and armSecretFile the file of its secret.
func (r *region) armClientID() string {
	return fmt.Sprint(r.target.Configuration.Get("frontend", "authentication", "clientIds").Items[0].Value)
}

func (r *region) armSecretFile() string { return filepath.Join(r.dir, "arm-secret") }

// engineerClientID returns the client ID of the program with which engineers call admin, and engineerSecretFile the file with the secret of
// the engineer with a role.
func (r *region) engineerClientID() string {
	return fmt.Sprint(r.target.Configuration.Get("admin", "authentication", "clientIds").Items[0].Value)
}

func (r *region) engineerSecretFile(role string) string {
	return filepath.Join(r.dir, "engineer-"+role)
}

// startCosmos serves the Cosmos DB account under its name, with the containers and the roles of the services that the infrastructure of a
// region creates.
func (r *region) startCosmos(authority string) {
	r.t.Helper()
	content := account.Account{Name: r.text("cosmos", "account"), Tenant: r.text("tenantId")}
	store := account.Database{Name: database.DatabaseName}
	for _, container := range database.Containers() {
		properties, err := json.Marshal(container)
		if err != nil {
			r.t.Fatal(err)
		}
		store.Containers = append(store.Containers, properties)
	}
	content.Databases = []account.Database{store}
	for _, role := range database.Roles() {
		for _, grant := range role.Grants {
			id := role.Service + grant.Scope()
			content.RoleDefinitions = append(content.RoleDefinitions, rbac.RoleDefinition{ID: id, RoleName: id, AssignableScopes: []string{grant.Scope()}, DataActions: grant.DataActions})
			content.RoleAssignments = append(content.RoleAssignments, rbac.RoleAssignment{RoleDefinitionID: id, Scope: grant.Scope(),
				PrincipalID: r.target.ObjectIDs[r.text(role.Service, "managedIdentity")]})
		}
	}
	cosmos, err := emulator.Open(emulator.Options{
		DataDir: filepath.Join(r.dir, "cosmos"), Account: content, Endpoint: r.text("cosmos", "endpoint"), Region: r.text("region"), Logger: slog.New(slog.DiscardHandler),
		Tokens: &entra.Verifier{Authority: r.text("endpoints", "authority"), Tenant: content.Tenant, Client: r.httpClient(authority)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := cosmos.Close(); err != nil {
			r.t.Error(err)
		}
	})
	host := strings.TrimPrefix(r.storeAudience(), "https://")
	r.serveHTTPS(host, mesh.CosmosEmulator, cosmos)
}
