package portal

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

const (
	testTenant   = "64dc69e4-d083-49fc-9569-ebece1dd1408"
	testAudience = "https://admin.example"
	testPortal   = "d6f3a1f2-6f5b-4b35-9f0e-1c64a1f5c3ab"
	// tokenStart is the beginning of every token: the encoding of {"alg". It is long enough not to occur in random data.
	tokenStart = "eyJhbGci"
)

// harness is a portal with the issuer of local regions, a Cosmos DB emulator, and an API with the responses of the test.
type harness struct {
	t       testing.TB
	url     string
	portal  *Portal
	db      *database.DB
	changes *live.Changes
	fleet   *fakeFleet
	pages   *httptest.Server
	// away makes the portal close connections without a response.
	away     atomic.Bool
	api      *fakeAPI
	log      *bytes.Buffer
	metrics  *prometheus.Registry
	workload string

	mu  sync.Mutex
	now time.Time
}

// testTime is when the tests begin.
var testTime = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// fakeAPI is admin's API with responses by path. It authenticates callers as admin does.
type fakeAPI struct {
	tokens *authn.TokenVerifier

	mu        sync.Mutex
	responses map[string]any
	// refused are the paths that respond with an error.
	refused map[string]int
	// conditions are the authentication contexts that changes of a path require.
	conditions map[string]string
	// requests are those that changed something.
	requests []apiRequest
	reads    []string
	// unbounded are requests without a deadline.
	unbounded []string
}

// streamedContent is a response that is not JSON, and that may end before it is complete.
type streamedContent struct {
	text    string
	aborted bool
}

// apiRequest is a request that changes something.
type apiRequest struct{ Method, Path, Body, Key, Person string }

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	caller, err := f.tokens.Authenticate(r.Context(), r)
	if err != nil {
		respond(http.StatusUnauthorized, adminv1.Failure{Error: adminv1.FailureDetail{Code: "Unauthenticated", Message: "The request's token is not accepted.", RequestID: "r"}})
		return
	}
	path := strings.TrimPrefix(r.URL.Path, adminv1.Root)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, bounded := r.Context().Deadline(); !bounded {
		f.unbounded = append(f.unbounded, r.Method+" "+path)
	}
	if !slices.Contains(caller.Groups, "readers") {
		respond(http.StatusForbidden, adminv1.Failure{Error: adminv1.FailureDetail{Code: "Forbidden", Message: "The role reader is required.", RequestID: "r"}})
		return
	}
	if status := f.refused[path]; status != 0 {
		respond(status, adminv1.Failure{Error: adminv1.FailureDetail{Code: "Refused", Message: "The request was <refused>.", Target: "reason", RequestID: "r"}})
		return
	}
	if required := f.conditions[path]; r.Method != http.MethodGet && required != "" && !slices.Contains(caller.AuthenticationContexts, required) {
		err := authn.InsufficientClaims("A sign-in with acrs="+required+" is required.", "https://issuer.example/authorize", []authn.MissingClaim{{Name: authn.ClaimAuthenticationContexts, Value: required}})
		w.Header().Set("WWW-Authenticate", authn.Challenge(err))
		respond(http.StatusUnauthorized, adminv1.Failure{Error: adminv1.FailureDetail{Code: "Unauthorized", Message: err.Error(), RequestID: "r"}})
		return
	}
	if r.Method != http.MethodGet {
		body, _ := io.ReadAll(r.Body)
		f.requests = append(f.requests, apiRequest{r.Method, path, string(body), r.Header.Get(adminv1.IdempotencyKey), caller.Name})
		path = r.Method + " " + path
	} else {
		f.reads = append(f.reads, r.URL.RequestURI())
	}
	if path == "/me" {
		respond(http.StatusOK, adminv1.Identity{Name: caller.Name, ObjectID: caller.ObjectID, TenantID: caller.TenantID, Roles: []adminv1.Role{adminv1.Reader, adminv1.Operator}})
		return
	}
	response, known := f.responses[path]
	if !known {
		respond(http.StatusOK, struct{}{})
		return
	}
	if content, ok := response.(streamedContent); ok {
		_, _ = io.WriteString(w, content.text)
		if content.aborted {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if list, ok := response.(adminv1.OperationList); ok && r.URL.Query().Has("state") {
		list.Items = slices.DeleteFunc(slices.Clone(list.Items), func(o adminv1.Operation) bool { return string(o.State) != r.URL.Query().Get("state") })
		response = list
	}
	if list, ok := response.(adminv1.ElevationList); ok && r.URL.Query().Get("active") == "true" {
		list.Items = slices.DeleteFunc(slices.Clone(list.Items), func(e adminv1.Elevation) bool { return !e.Active })
		response = list
	}
	respond(http.StatusOK, response)
}

// newHarness starts a portal and its issuer.
func newHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{t: t, now: testTime, log: &bytes.Buffer{}, metrics: prometheus.NewPedanticRegistry()}
	dir := t.TempDir()
	log := slog.New(slog.NewJSONHandler(h.log, nil))

	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
	public := filepath.Join(dir, "workloads.pub")
	must.Do(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	assertion := must.Get(jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{Issuer: "https://workloads.example", Subject: "sa:admin",
		Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(24 * time.Hour))}).SignedString(key))(t)
	h.workload = filepath.Join(dir, "workload-token")
	must.Do(t, os.WriteFile(h.workload, []byte(assertion), 0o600))

	pages := httptest.NewUnstartedServer(nil)
	pages.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	pages.StartTLS()
	t.Cleanup(pages.Close)
	h.url = pages.URL
	door := httptest.NewUnstartedServer(nil)
	door.StartTLS()
	t.Cleanup(door.Close)
	person := func(name, id, group string) token.Client {
		return token.Client{TenantID: testTenant, ClientID: "hcpctl", ClientSecret: password, ObjectID: id, Name: name, Groups: []string{group}, Audiences: []string{testAudience}}
	}
	issuer := must.Get(token.NewIssuer(door.URL, dir, []token.Client{
		{TenantID: testTenant, ClientID: testPortal, ObjectID: "p", Name: "the SRE portal", Workload: "sa:admin", Audiences: []string{testAudience},
			RedirectURIs: []string{h.url + "/signed-in", h.url + "/signed-out"}},
		person("oncall@example.com", "oncall", "readers"), person("guest@example.com", "guest", "nobody"),
	}, testAudience))(t)
	issuer.Workloads = must.Get(token.OpenFederation("https://workloads.example", public))(t)
	subscriptions := must.Get(frontdoor.OpenDirectory(filepath.Join(dir, "subscriptions.json")))(t)
	arm := must.Get(frontdoor.New(frontdoor.Options{PublicURL: door.URL, Location: "westus3", APIVersions: []string{"v"}, Frontend: "127.0.0.1:1", FrontendTLS: &tls.Config{MinVersion: tls.VersionTLS12},
		Tokens: issuer, Directory: subscriptions, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(arm.Close)
	door.Config.Handler = arm

	issuerURL := door.URL + "/" + testTenant + "/v2.0"
	h.api = &fakeAPI{responses: map[string]any{}, refused: map[string]int{},
		tokens: authn.NewTokenVerifier(authn.TokenOptions{Issuer: issuerURL, Audience: testAudience, ClientIDs: []string{testPortal}, Client: door.Client()})}
	verifier := must.Get(authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: issuerURL, ClientID: testPortal, Client: door.Client()}))(t)
	h.db, _ = databasetest.New(t)
	h.changes = live.NewChanges(live.Options{Database: h.db, Fleet: h.serveFleet(), Now: h.clock, Log: log, Metrics: h.metrics, Feed: fastFeed})
	h.portal = must.Get(New(Options{API: h.api, URL: h.url, Region: "westus3", Log: log, Metrics: h.metrics, Now: h.clock,
		Sessions: &Sessions{Database: h.db, Now: h.clock}, Changes: h.changes,
		Provider: &Provider{Verifier: verifier, Client: door.Client(), ClientID: testPortal, Scope: testAudience + "/.default", AssertionFile: h.workload, RedirectURL: h.url + "/signed-in", Now: h.clock}}))(t)
	h.pages = pages
	pages.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.away.Load() {
			panic(http.ErrAbortHandler)
		}
		h.portal.ServeHTTP(w, r)
	})
	t.Cleanup(h.changes.Hub.Release) // before the servers, which wait for their requests
	return h
}

// fastFeed reads change feeds often.
var fastFeed = database.FeedOptions{BusyInterval: time.Millisecond, IdleInterval: 10 * time.Millisecond}

// fakeFleet is a Cluster Service that sends the changes of a test.
type fakeFleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	changes chan *clusterservicev1.WatchResponse
}

// ListClusters implements clusterservicev1.ClusterServiceServer.
func (f *fakeFleet) ListClusters(context.Context, *clusterservicev1.ListClustersRequest) (*clusterservicev1.ListClustersResponse, error) {
	return &clusterservicev1.ListClustersResponse{Revision: 1}, nil
}

// Watch implements clusterservicev1.ClusterServiceServer.
func (f *fakeFleet) Watch(_ *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case change := <-f.changes:
			if err := stream.Send(change); err != nil {
				return err
			}
		}
	}
}

// serveFleet serves Cluster Service until the test ends.
func (h *harness) serveFleet() clusterservicev1.ClusterServiceClient {
	h.t.Helper()
	h.fleet = &fakeFleet{changes: make(chan *clusterservicev1.WatchResponse)}
	address := grpctest.Serve(h.t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, h.fleet) })
	return clusterservicev1.NewClusterServiceClient(grpctest.Dial(h.t, address))
}

// followChanges reads the change feeds and watches Cluster Service until the test ends.
func (h *harness) followChanges() {
	ctx, stop := context.WithCancel(context.Background())
	var feeds sync.WaitGroup
	feed := fastFeed
	feed.Read = h.changes.NoteAdminRead
	feeds.Go(func() { h.changes.Run(ctx) })
	feeds.Go(func() { _ = h.db.TailAdmin(ctx, time.Now().Add(-time.Minute), feed, h.changes.TakeAdmin) })
	h.t.Cleanup(func() { stop(); feeds.Wait() })
	// The watch sends this after it has begun, which is a change of everything.
	h.fleet.changes <- &clusterservicev1.WatchResponse{Revision: 2, Event: &clusterservicev1.WatchResponse_Bookmark{}}
}

// setOperation stores an admin operation, and makes it the response of the API.
func (h *harness) setOperation(operation adminv1.Operation) {
	h.t.Helper()
	h.api.mu.Lock()
	h.api.responses["/operations/"+operation.ID] = operation
	h.api.mu.Unlock()
	ctx, key := context.Background(), database.AdminOperationKey(operation.ID)
	stored := must.Get(h.db.AdminOperations().Find(ctx, key))(h.t)
	document := database.AdminOperationDocument{OperationID: operation.ID, State: database.AdminOperationState(operation.State), Attempts: operation.Attempts,
		Target: database.AdminTarget{ClusterUID: operation.Target.ClusterUID}}
	batch := h.db.NewBatch(key.SubscriptionID)
	if stored == nil {
		database.Create(batch, h.db.AdminOperations(), key, document)
	} else {
		stored.Value = document
		database.Replace(batch, stored)
	}
	must.Do(h.t, batch.Commit(ctx))
}

func (h *harness) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// pass moves the clock of the portal.
func (h *harness) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// browser is a client with cookies that follows no redirection.
type browser struct {
	h      *harness
	client *http.Client
}

// reply is a response that was read.
type reply struct {
	*http.Response
	body string
}

// newFilledHarness starts a portal whose admin has objects of all kinds.
func newFilledHarness(t testing.TB) *harness {
	t.Helper()
	h := newHarness(t)
	h.api.fill(hostile)
	return h
}

// signedIn returns a browser in which a person has signed in.
func (h *harness) signedIn(name, path string) *browser {
	h.t.Helper()
	b := h.newBrowser()
	b.signIn(name, path)
	return b
}

// newBrowser returns a browser without cookies.
func (h *harness) newBrowser() *browser {
	h.t.Helper()
	jar := must.Get(cookiejar.New(nil))(h.t)
	server := httptest.NewTLSServer(nil) // all servers of a test have the same certificate
	server.Close()
	transport := server.Client().Transport.(*http.Transport).Clone()
	h.t.Cleanup(transport.CloseIdleConnections)
	return &browser{h: h, client: &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// do sends a request. A form has the origin of the portal.
func (b *browser) do(method, target string, form url.Values, header http.Header) reply {
	b.h.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = b.h.url + target
	}
	request := must.Get(http.NewRequestWithContext(context.Background(), method, target, strings.NewReader(form.Encode())))(b.h.t)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", b.h.url)
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response := must.Get(b.client.Do(request))(b.h.t)
	defer func() { _ = response.Body.Close() }()
	body := must.Get(io.ReadAll(response.Body))(b.h.t)
	return reply{response, string(body)}
}

func (b *browser) get(target string) reply { return b.do(http.MethodGet, target, nil, nil) }

func (b *browser) post(target string, form url.Values) reply {
	return b.do(http.MethodPost, target, form, nil)
}

// location returns the URL to which a response leads.
func (r reply) location() string { return r.Header.Get("Location") }

// password is that of all people.
const password = "password"

var personButton = regexp.MustCompile(`<button name="([^"]+)" value="([^"]+)">([^<]+)</button>`)

// choose signs a person in on the page of the issuer, and returns its response.
func (b *browser) choose(page reply, name string) reply {
	b.h.t.Helper()
	for _, match := range personButton.FindAllStringSubmatch(page.body, -1) {
		if match[3] == name {
			return b.post(page.Request.URL.String(), url.Values{match[1]: {match[2]}, "hcpmesh_password": {password}})
		}
	}
	b.h.t.Fatalf("the issuer does not offer %s: %s", name, page.body)
	return reply{}
}

// signIn signs a person in who asked for a path, and returns the page to which that leads.
func (b *browser) signIn(name, path string) reply {
	b.h.t.Helper()
	back := b.choose(b.get(b.get(b.get(path).location()).location()), name).location()
	return b.get(back)
}
