// Package entra tests how services log in to PostgreSQL with tokens of Entra ID: with the real credential, the token endpoint of the ARM
// front door and a real server. No PostgreSQL but Azure's can verify these tokens. So each token that the endpoint issues becomes the
// password of the identity's role, and the one before it becomes invalid.
package entra

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

const (
	tenant   = "22222222-2222-2222-2222-222222222222"
	issuer   = "https://workloads.example"
	service  = "fleet"
	owner    = "fleet_owner"
	database = "fleet"
)

// identity is a managed identity with its role in the database.
type identity struct{ client, role string }

var (
	serviceIdentity = identity{"6c5efc0d-69ff-4be8-901a-e15520f7789a", service}
	ownerIdentity   = identity{"0811f964-2838-40dc-b9a8-116b02748e41", owner}
)

// output is the text of logs. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

// String returns the text.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// azure is a PostgreSQL server that accepts tokens, and the endpoint that issues them.
type azure struct {
	t             *testing.T
	server        *postgresserver.Server
	administrator *pgxpool.Pool
	endpoint      *httptest.Server
	caFile        string
	serverCA      string
	// logs are those of the server and of the programs. errors are the texts of all errors.
	logs   output
	errors []string

	mu sync.Mutex
	// issued are all tokens. lifetime replaces the lifetime in responses, in seconds, unless it is 0. refused responds 401.
	issued   []string
	lifetime int
	refused  bool
}

func start(t *testing.T) *azure {
	a := &azure{t: t}
	dir := t.TempDir()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), "local"))(t)
	certificate := filepath.Join(dir, "postgresql")
	must.Do(t, authority.Issue(certificate, mesh.PostgreSQL, "127.0.0.1"))
	a.serverCA = filepath.Join(certificate, mesh.CAFile)
	// The unprivileged user of the server cannot enter the folder of the test.
	data := must.Get(os.MkdirTemp("", "hcpmesh-entra-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	must.Do(t, os.Chmod(data, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a.server = must.Get(postgresserver.Start(ctx, postgresserver.Options{DataDir: filepath.Join(data, "server"), Throwaway: true, Log: &a.logs,
		Databases: []postgresserver.Database{{Name: database, Owner: postgresserver.Role{Name: owner}, Runtime: postgresserver.Role{Name: service}}},
		TLS: &postgresserver.TLS{CertificateFile: filepath.Join(certificate, mesh.CertificateFile), KeyFile: filepath.Join(certificate, mesh.KeyFile),
			CAFile: a.serverCA, Passwords: true}}))(t)
	t.Cleanup(a.server.Kill)
	must.Do(t, a.server.Provision(ctx))
	a.administrator = must.Get(postgres.Open(t.Context(), postgres.Options{URL: a.server.AdministratorURL("postgres"), Application: "test", MaxConnections: 4}))(t)
	t.Cleanup(a.administrator.Close)
	a.startEndpoint(dir)
	return a
}

// startEndpoint starts the front door with both identities, and writes the tokens of their workloads.
func (a *azure) startEndpoint(dir string) {
	t := a.t
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	public := must.Get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
	keyFile := filepath.Join(dir, "workloads.pub")
	a.write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	a.endpoint = httptest.NewUnstartedServer(nil)
	a.endpoint.StartTLS()
	t.Cleanup(a.endpoint.Close)
	a.caFile = filepath.Join(dir, "endpoint.pem")
	a.write(a.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.endpoint.Certificate().Raw}))
	var clients []token.Client
	for _, i := range []identity{serviceIdentity, ownerIdentity} {
		subject := "system:serviceaccount:fleet:" + i.role
		clients = append(clients, token.Client{TenantID: tenant, ClientID: i.client, ObjectID: "object-" + i.role, Name: i.role, Workload: subject})
		assertion := must.Get(jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{Issuer: issuer, Subject: subject,
			Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}).SignedString(key))(t)
		a.write(filepath.Join(dir, i.role), []byte(assertion))
		a.issued = append(a.issued, assertion) // it is a secret, too
	}
	tokens := must.Get(token.NewIssuer(a.endpoint.URL, dir, clients))(t)
	tokens.Workloads = must.Get(token.OpenFederation(issuer, keyFile))(t)
	subscriptions := must.Get(frontdoor.OpenDirectory(filepath.Join(dir, "directory.json")))(t)
	door := must.Get(frontdoor.New(frontdoor.Options{PublicURL: a.endpoint.URL, Location: "westus3", Tokens: tokens, Directory: subscriptions, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(door.Close)
	a.endpoint.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(door, w, r) })
	t.Setenv("AZURE_TENANT_ID", tenant)
	t.Setenv("AZURE_AUTHORITY_HOST", a.endpoint.URL+"/")
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(dir, service))
	t.Setenv("AZURE_CLIENT_ID", serviceIdentity.client)
}

func (a *azure) write(file string, content []byte) {
	a.t.Helper()
	must.Do(a.t, os.WriteFile(file, content, 0o600))
}

// serve forwards a request to the front door. A token that it issues becomes the password of the role.
func (a *azure) serve(door http.Handler, w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/token") {
		door.ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": "unauthorized_client", "error_codes": [700213]}`)
		return
	}
	recorded := httptest.NewRecorder()
	door.ServeHTTP(recorded, r)
	var response map[string]any
	if err := json.Unmarshal(recorded.Body.Bytes(), &response); err != nil || recorded.Code != http.StatusOK {
		a.t.Errorf("the front door responds %d: %v", recorded.Code, response)
		w.WriteHeader(recorded.Code)
		return
	}
	text := response["access_token"].(string)
	a.issued = append(a.issued, text)
	role := service
	if r.PostForm.Get("client_id") == ownerIdentity.client {
		role = owner
	}
	if _, err := a.administrator.Exec(r.Context(), fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", role, text)); err != nil {
		a.t.Errorf("setting the password of %s: %v", role, err)
	}
	if a.lifetime != 0 {
		response["expires_in"] = a.lifetime
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response)
}

// behave sets how the endpoint responds.
func (a *azure) behave(lifetime int, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lifetime, a.refused = lifetime, refused
}

// tokens returns the number of tokens that the endpoint has issued.
func (a *azure) tokens() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.issued) - 2 // the tokens of the workloads
}

// settings are the flags of a program with a role.
func (a *azure) settings(role string) postgres.Settings {
	a.t.Helper()
	u := must.Get(url.Parse(a.server.URL(database, postgresserver.Role{Name: role})))(a.t)
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {a.serverCA}}.Encode()
	s := postgres.Settings{URL: u.String(), Authentication: postgres.WithEntra, Audience: postgres.PublicAudience, TokenCAFile: a.caFile}
	must.Do(a.t, s.Validate())
	return s
}

// failed remembers the text of an error, which must have no token.
func (a *azure) failed(err error) error {
	if err != nil {
		a.errors = append(a.errors, err.Error())
	}
	return err
}

// TestServiceUsesTokens migrates a database and serves from it, while tokens end, the endpoint refuses, and sessions come and go.
func TestServiceUsesTokens(t *testing.T) {
	a := start(t)
	log := slog.New(slog.NewJSONHandler(&a.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Dir(a.caFile)

	t.Setenv("AZURE_CLIENT_ID", ownerIdentity.client)
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(dir, owner))
	o := postgrescommand.MigrateOptions{Database: a.settings(owner), GrantTo: service}
	if err := postgrescommand.Migrate(t.Context(), "cluster-service migrate", &o, store.Migrations(), log); err != nil {
		t.Fatal(a.failed(err))
	}
	if got := a.tokens(); got != 1 {
		t.Errorf("the migration, with several sessions, requested %d tokens", got)
	}

	t.Setenv("AZURE_CLIENT_ID", serviceIdentity.client)
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(dir, service))
	settings := a.settings(service)
	databaseURL, authentication, err := settings.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	fleet := must.Get(store.Open(store.Options{URL: databaseURL, Authentication: authentication, MaxConnections: 4, Log: log}))(t)
	defer fleet.Close()
	if err := fleet.CheckMigrated(t.Context()); err != nil {
		t.Fatal(a.failed(err))
	}

	pool := must.Get(postgres.Open(t.Context(), postgres.Options{URL: databaseURL, Application: "test", MaxConnections: 4, Authentication: authentication}))(t)
	defer pool.Close()
	session := func() (*pgx.Conn, error) {
		session, err := postgres.Connect(t.Context(), pool)
		if err == nil {
			t.Cleanup(func() { _ = session.Close(context.WithoutCancel(t.Context())) })
		}
		return session, a.failed(err)
	}
	old := must.Get(session())(t)
	before := a.tokens()
	for range 5 {
		must.Get(session())(t)
	}
	if got := a.tokens(); got != before {
		t.Errorf("sessions with a valid token requested %d more", got-before)
	}

	// The credential of this process has a token for an hour, so that another credential is needed: tokens of five minutes are at their
	// end at once.
	a.behave(300, false)
	if _, authentication, err = settings.Read(nil); err != nil {
		t.Fatal(err)
	}
	short := must.Get(postgres.Open(t.Context(), postgres.Options{URL: databaseURL, Application: "test", MaxConnections: 4, Authentication: authentication}))(t)
	defer short.Close()
	var work sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		open := must.Get(session())(t)
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := open.Exec(t.Context(), "SELECT 1"); err != nil {
					t.Errorf("a session that is open while its token ends: %v", err)
					return
				}
			}
		})
	}
	before = a.tokens()
	const rotations = 20
	for range rotations {
		short.Reset() // the next statement needs a new session
		if _, err := short.Exec(t.Context(), "SELECT 1"); a.failed(err) != nil {
			t.Errorf("a new session after the end of the token: %v", err)
		}
	}
	if got := a.tokens() - before; got < rotations {
		t.Errorf("%d new sessions requested %d tokens", rotations, got)
	}
	close(stop)
	work.Wait()
	if _, err := session(); postgres.Code(err) != "28P01" {
		t.Errorf("a session with a token that ended: %v", err)
	}

	a.behave(300, true)
	short.Reset()
	_, err = short.Exec(t.Context(), "SELECT 1")
	want := fmt.Sprintf("getting an Entra token of the identity %s for the PostgreSQL role %s from %s/%s/oauth2/v2.0/token: HTTP status 401, unauthorized_client, AADSTS700213",
		serviceIdentity.client, service, a.endpoint.URL, tenant)
	if a.failed(err) == nil || !strings.HasSuffix(err.Error(), want) || !postgres.IsUnavailable(err) {
		t.Errorf("while the endpoint refuses: %v", err)
	}
	var user string
	if err := old.QueryRow(t.Context(), "SELECT current_user").Scan(&user); err != nil || user != service {
		t.Errorf("the first session is of %q: %v", user, err)
	}
	a.behave(300, false)
	if _, err := short.Exec(t.Context(), "SELECT 1"); a.failed(err) != nil {
		t.Errorf("when the endpoint issues tokens again: %v", err)
	}
	a.checkSecrets()
}

// checkSecrets checks that no token is in a log or an error.
func (a *azure) checkSecrets() {
	a.t.Helper()
	logs := a.logs.String()
	if !strings.Contains(logs, "database migrated") || !strings.Contains(logs, "authentication failed") {
		a.t.Errorf("the logs are not those of the migration and of the server:\n%s", logs)
	}
	for _, secret := range a.issued {
		signature := secret[strings.LastIndexByte(secret, '.')+1:]
		if strings.Contains(logs, signature) || strings.Contains(strings.Join(a.errors, "\n"), signature) {
			a.t.Error("a token is in a log or an error")
		}
	}
}
