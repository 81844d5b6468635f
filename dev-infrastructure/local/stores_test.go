package local

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestStoresAcceptOnlyTheirClients connects to the stores of a region with the identity of each workload.
func TestStoresAcceptOnlyTheirClients(t *testing.T) {
	ctx := testContext(t)
	region := must.Get(Start(ctx, thirdParties(stateDir(t))))(t)
	defer region.Close()
	// Other processes, such as hcpctl, know the folder only.
	if described, err := Describe(region.state.dir); err != nil || described.Etcd != region.Endpoints().Etcd || described.EtcdTLS != region.Endpoints().EtcdTLS {
		t.Errorf("the folder describes etcd as %s %+v, %v", described.Etcd, described.EtcdTLS, err)
	}
	t.Run("PostgreSQL", func(t *testing.T) { testDatabaseClients(t, region) })
	t.Run("roles of PostgreSQL", func(t *testing.T) { testDatabaseRoles(t, region) })
	t.Run("etcd", func(t *testing.T) { testEtcdClients(t, region) })
}

// testEtcdClients connects to etcd, on the port of its clients and on that of its peers, without a certificate, with those of all workloads,
// with those of the administrators of management clusters, and with those of etcd's users.
func testEtcdClients(t *testing.T, region *Region) {
	root := must.Get(region.Endpoints().EtcdTLS.Config())(t)
	read := func(base, path string, certificates ...tls.Certificate) (int, error) {
		config := &tls.Config{RootCAs: root.RootCAs, Certificates: certificates, MinVersion: tls.VersionTLS12}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, http.NoBody))(t)
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	const health, members = "/health", "/members"
	client, peer := region.Endpoints().Etcd, "https://"+region.address(etcdPeerPort)
	if status, err := read(client, health, root.Certificates...); err != nil || status != http.StatusOK {
		t.Errorf("with a certificate of etcd's authority: %d, %v", status, err)
	}
	foreign := map[string][]tls.Certificate{"no certificate": nil}
	for name, dir := range region.Endpoints().Identities {
		certificate := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, mesh.CertificateFile), filepath.Join(dir, mesh.KeyFile)))(t)
		foreign[name] = []tls.Certificate{certificate}
	}
	for _, m := range region.clusters {
		config := must.Get(m.pki.TLS(kubeapi.Admin))(t)
		foreign[m.name+"'s administrator"] = config.Certificates
		testEtcdUser(t, region, m)
	}
	expectRefusal := func(base, path, name string, certificates []tls.Certificate) {
		var alert *net.OpError
		if status, err := read(base, path, certificates...); !errors.As(err, &alert) || alert.Op != "remote error" {
			t.Errorf("%s with %s: %d, %v, want a failed handshake", base, name, status, err)
		}
	}
	for name, certificates := range foreign {
		expectRefusal(client, health, name, certificates)
		expectRefusal(peer, members, name, certificates)
	}
	expectRefusal(peer, members, "root's certificate", root.Certificates)
	plain := strings.Replace(client, "https:", "http:", 1)
	if status, err := read(plain, health); err == nil && status != http.StatusBadRequest {
		t.Errorf("without TLS: %d", status)
	}
	if status, err := read("http://"+region.address(etcdOps), "/v3/kv/range"); err != nil || status != http.StatusNotFound {
		t.Errorf("keys on the port of the metrics: %d, %v", status, err)
	}
}

// testEtcdUser reads the keys of all management clusters with the certificate of one's API server. The values of its Secrets are encrypted.
func testEtcdUser(t *testing.T, region *Region, m *managementCluster) {
	config := must.Get(kubeapi.EtcdFiles(region.etcdAuthorityDir(), region.managementDir(m)).Config())(t)
	server := must.Get(etcdusers.Open(region.Endpoints().Etcd, config))(t)
	defer func() { _ = server.Close() }()
	for _, other := range region.clusters {
		prefix := other.etcdUser().Prefix
		values, err := server.Read(t.Context(), prefix)
		if other == m && (err != nil || len(values) == 0) || other != m && (err == nil || !strings.Contains(err.Error(), "permission denied")) {
			t.Errorf("%s reads the keys of %s: %d keys, %v", m.name, other.name, len(values), err)
		}
		for key, value := range values {
			encrypted := strings.HasPrefix(key, prefix+"/secrets/") || strings.HasPrefix(key, prefix+"/configmaps/")
			if encrypted && !strings.HasPrefix(string(value), "k8s:enc:secretbox:") {
				t.Errorf("%s is not encrypted", key)
			}
		}
	}
	if values, err := server.Read(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%s reads the keys of all API servers: %d keys, %v", m.name, len(values), err)
	}
}

// testDatabaseClients tries each role of each database with each certificate.
func testDatabaseClients(t *testing.T, region *Region) {
	identities := region.Endpoints().Identities
	for _, database := range serviceDatabases() {
		for file, role := range map[string]string{
			region.databaseURLFile(database.Name): database.Runtime.Certificate, region.ownerURLFile(database.Name): database.Owner.Certificate,
		} {
			text := must.Get(os.ReadFile(file))(t)
			url := strings.TrimSpace(string(text))
			ping := func(authentication postgres.Authentication) error {
				pool := must.Get(postgres.Open(t.Context(), postgres.Options{URL: url, Application: "test", MaxConnections: 1, Authentication: authentication}))(t)
				defer pool.Close()
				return pool.Ping(t.Context())
			}
			const refused = "28000"
			if err := ping(postgres.Authentication{}); postgres.Code(err) != refused {
				t.Errorf("%s without a certificate: %v", url, err)
			}
			for name, dir := range identities {
				identity, err := mesh.LoadIdentity(dir)
				if err != nil {
					t.Fatal(err)
				}
				err = ping(postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)})
				switch allowed := string(identity.ID().Peer) == role; {
				case allowed && err != nil:
					t.Errorf("%s with the identity of %s: %v", url, name, err)
				case !allowed && postgres.Code(err) != refused:
					t.Errorf("%s with the identity of %s: %v, want SQLSTATE %s", url, name, err, refused)
				}
			}
		}
	}
}

// testDatabaseRoles asks the server for all roles with their attributes, for the members of roles, and for the rights of each role to each database. A role of
// a service has no attribute but its login, and connects to its own database only. The owner creates schemas there.
func testDatabaseRoles(t *testing.T, region *Region) {
	url := must.Get(os.ReadFile(region.Endpoints().AdministratorURLFile))(t)
	pool := must.Get(postgres.Open(t.Context(), postgres.Options{URL: strings.TrimSpace(string(url)), Application: "test", MaxConnections: 1}))(t)
	defer pool.Close()
	rows := must.Get(pool.Query(t.Context(), `
		WITH roles AS (SELECT * FROM pg_roles WHERE rolname NOT LIKE 'pg\_%'), databases AS (SELECT datname FROM pg_database WHERE datallowconn)
		SELECT rolname || attribute FROM roles, LATERAL (VALUES (rolcanlogin, ' logs in'), (rolsuper, ' is a superuser'), (rolcreaterole, ' creates roles'), (rolcreatedb, ' creates databases'),
			(rolreplication, ' replicates'), (rolbypassrls, ' bypasses row security')) AS a(has, attribute) WHERE has
		UNION ALL SELECT member::regrole || ' is a member of ' || roleid::regrole FROM pg_auth_members WHERE member IN (SELECT oid FROM roles)
		UNION ALL SELECT rolname || ' has ' || privilege || ' on ' || datname FROM roles, databases, unnest(ARRAY['CONNECT', 'CREATE', 'TEMPORARY']) AS privilege
			WHERE NOT rolsuper AND has_database_privilege(roles.oid, datname, privilege)`))(t)
	got := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	var want []string
	for _, attribute := range []string{"logs in", "is a superuser", "creates roles", "creates databases", "replicates", "bypasses row security"} {
		want = append(want, "hcpmesh "+attribute)
	}
	for _, database := range serviceDatabases() {
		owner, runtime := database.Owner.Name, database.Runtime.Name
		want = append(want, owner+" logs in", runtime+" logs in", runtime+" has CONNECT on "+database.Name)
		for _, privilege := range []string{"CONNECT", "CREATE", "TEMPORARY"} {
			want = append(want, owner+" has "+privilege+" on "+database.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("roles and their rights (-table +server):\n%s", diff)
	}
}
