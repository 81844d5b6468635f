package app

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/certificaterequest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		runChild(text)
	}
	code := m.Run()
	hosted.Close()
	os.Exit(leaktest.Check(code))
}

const (
	clusterUID = "c0000000-0000-4000-8000-00000000000c"
	resourceID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/alpha"
)

// fleet is a Cluster Service with a history that watches receive.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu      sync.Mutex
	history []*clusterservicev1.WatchResponse
	changed chan struct{}
}

func (f *fleet) add(response *clusterservicev1.WatchResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	response.Revision = int64(len(f.history) + 1)
	f.history = append(f.history, response)
	close(f.changed)
	f.changed = make(chan struct{})
}

// Watch sends the whole history and then each change.
func (f *fleet) Watch(request *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	next := int(request.GetAfterRevision())
	for {
		f.mu.Lock()
		history, changed := f.history, f.changed
		f.mu.Unlock()
		for ; next < len(history); next++ {
			if err := stream.Send(history[next]); err != nil {
				return err
			}
		}
		if err := stream.Send(&clusterservicev1.WatchResponse{Revision: int64(next), Event: &clusterservicev1.WatchResponse_Bookmark{}}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

// engineers authenticates callers: the token is the object ID of the engineer.
type engineers struct{}

func (engineers) Authenticate(_ context.Context, r *http.Request) (authn.Caller, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return authn.Caller{}, &authn.ChallengeError{Response: apierror.New(apierror.Unauthenticated, "The request carries no token."), Challenge: "Bearer"}
	}
	return authn.Caller{TenantID: "tenant", ObjectID: name, Name: name + "@example.com", AppID: "hcpctl"}, nil
}

func (engineers) Ready(context.Context) error { return nil }

// region is a gateway with what it needs: Cosmos DB, Cluster Service and an API server that requires certificates of its signer.
type region struct {
	t       testing.TB
	db      *database.DB
	cosmos  *databasetest.Server
	fleet   *fleet
	target  string
	sealing *seal.PublicKeys
	opening *seal.PrivateKeys
	trail   *audittest.Trail
	signer  *x509.Certificate
	key     *ecdsa.PrivateKey
	api     *httptest.Server
	log     *logtest.Log
	// clock is that of gateways. It stands unless the test advances it: no session expires, and no read of the database becomes old, on a slow machine.
	clock clocktest.Clock
	// endpoint is the URL of the API server, and authorities verify it: those of api, unless the test has a real one.
	endpoint, authorities string
	// recordingKeys seals recordings, and reading opens them. recordingSigner signs them, and recordingSigners verifies that. recorded is the folder of
	// their sink.
	recordingKeys    *seal.PublicKeys
	reading          *seal.PrivateKeys
	recordingSigner  *audit.SigningKey
	recordingSigners audit.Keys
	recorded         string
	// recordings changes the options of the store of recordings; nil changes nothing.
	recordings func(*recorder.Options)
	// listen wraps the listener of gateways; nil means plain HTTP.
	listen func(net.Listener) net.Listener
	// change changes the parts of gateways; nil changes nothing.
	change func(*Parts)
	// serve handles the requests of the API server.
	serve http.HandlerFunc
	// seen are the requests that reached the API server.
	mu   sync.Mutex
	seen []*http.Request
}

func newRegion(t testing.TB) *region {
	t.Helper()
	r := &region{t: t, fleet: &fleet{changed: make(chan struct{})}, trail: audittest.New(t, "gateway-access", 0), log: &logtest.Log{}, clock: clocktest.New()}
	r.db, r.cosmos = databasetest.New(t)
	r.target = grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, r.fleet) })
	var err error
	if r.sealing, r.opening, err = seal.NewPair(); err != nil {
		t.Fatal(err)
	}
	r.recorded = t.TempDir()
	if r.recordingKeys, r.reading, err = seal.NewPair(); err != nil {
		t.Fatal(err)
	}
	r.recordingSigner = must.Get(audit.GenerateKey())(t)
	r.recordingSigners = audit.Keys{}
	r.recordingSigners.Trust("gateway-access", r.recordingSigner)
	r.signer, r.key = newSigner(t)
	authorities := x509.NewCertPool()
	authorities.AddCert(r.signer)
	r.api = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, request.Clone(context.Background()))
		serve := r.serve
		r.mu.Unlock()
		if serve != nil {
			serve(w, request)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"PodList"}`)
	}))
	r.api.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities}
	r.api.EnableHTTP2 = true
	r.api.StartTLS()
	t.Cleanup(r.api.Close)
	r.endpoint, r.authorities = r.api.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.api.Certificate().Raw}))
	return r
}

func newSigner(t testing.TB) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	parsed := must.Get(x509.ParseCertificate(der))(t)
	return parsed, key
}

// handle replaces the handler of the API server.
func (r *region) handle(serve http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serve = serve
}

// arrived returns the requests that reached the API server.
func (r *region) arrived() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// cluster sets the state of the cluster in Cluster Service.
func (r *region) cluster(change func(*clusterservicev1.Cluster)) {
	c := &clusterservicev1.Cluster{Uid: clusterUID, ResourceId: resourceID, Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ApiUrl: r.endpoint,
		ServingCertificateAuthority: r.authorities}}
	if change != nil {
		change(c)
	}
	r.fleet.add(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_Cluster{Cluster: c}})
}

// request stores a session as admin does, and returns its certificate signing request.
func (r *region) request(id, engineer string, change func(*database.AccessSessionDocument)) *x509.CertificateRequest {
	r.t.Helper()
	now := r.clock.Now().UTC()
	document := database.AccessSessionDocument{SessionID: id, ClusterUID: clusterUID, ResourceID: resourceID, Mode: "read", State: database.AccessSessionRequested, RequestTime: now,
		RequestExpirationTime: now.Add(2 * time.Minute), ElevationExpirationTime: now.Add(time.Hour),
		Owner: database.AdminActor{Name: engineer + "@example.com", ObjectID: engineer, TenantID: "tenant", Role: "operator", ElevationID: "elevation", Reason: "it is slow", Ticket: "INC-1"}}
	if change != nil {
		change(&document)
	}
	key, asked, err := certificaterequest.New("system:sre-break-glass:"+engineer, adminv1.AccessMode(document.Mode).Level().Organization())
	if err != nil {
		r.t.Fatal(err)
	}
	sealed := must.Get(r.sealing.Seal(document.KeyPurpose(), key))(r.t)
	document.SealedKeys = [][]byte{sealed}
	at := database.AccessSessionKey(clusterUID, id)
	batch := r.db.NewBatch(at.SubscriptionID)
	database.Create(batch, r.db.AccessSessions(), at, document)
	must.Do(r.t, batch.Commit(r.t.Context()))
	block, _ := pem.Decode(asked)
	return must.Get(x509.ParseCertificateRequest(block.Bytes))(r.t)
}

// issue signs the request of a session and makes Cluster Service report it.
func (r *region) issue(id string, request *x509.CertificateRequest, lifetime time.Duration) *clusterservicev1.BreakGlassCredential {
	r.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: request.Subject, NotBefore: r.clock.Now().Add(-time.Minute), NotAfter: r.clock.Now().Add(lifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, r.signer, request.PublicKey, r.key))(r.t)
	level := clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER
	if request.Subject.Organization[0] == adminv1.LevelAdmin.Organization() {
		level = clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN
	}
	c := &clusterservicev1.BreakGlassCredential{Uid: id, ClusterUid: clusterUID, CreateTime: timestamppb.Now(),
		Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Level: level,
			Elevation: "elevation", NotAfter: timestamppb.New(r.clock.Now().Add(time.Hour))},
		Status: &clusterservicev1.BreakGlassCredentialStatus{State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED,
			Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}}
	r.report(c)
	return c
}

// report makes Cluster Service report a credential.
func (r *region) report(c *clusterservicev1.BreakGlassCredential) {
	r.fleet.add(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_BreakGlassCredential{BreakGlassCredential: proto.CloneOf(c)}})
}

// gateway is a running gateway.
type gateway struct {
	r       *region
	url     string
	metrics *prometheus.Registry
	// closed is closed when the gateway accepts no more connections.
	closed <-chan struct{}
	stop   func()
}

// notedListener closes a channel when it is closed.
type notedListener struct {
	net.Listener
	note func()
}

// Close implements net.Listener.
func (l notedListener) Close() error {
	defer l.note()
	return l.Listener.Close()
}

func (r *region) start() *gateway {
	r.t.Helper()
	connection := must.Get(grpc.NewClient("passthrough:///"+r.target, grpc.WithTransportCredentials(insecure.NewCredentials())))(r.t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(r.t)
	closed := make(chan struct{})
	scheme, serving := "http://", net.Listener(notedListener{listener, sync.OnceFunc(func() { close(closed) })})
	if r.listen != nil {
		scheme, serving = "https://", r.listen(serving)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p := process.New("gateway-access", slog.New(slog.NewJSONHandler(r.log, nil)))
	options := recorder.Options{Dir: r.t.TempDir(), Sink: sink.FileAt(r.recorded), Index: recorder.DatabaseIndex{Database: r.db}, Keys: r.recordingKeys, Signing: r.recordingSigner, Log: p.Log, Metrics: p.Metrics}
	if r.recordings != nil {
		r.recordings(&options)
	}
	recordings := must.Get(recorder.Open(options))(r.t)
	go func() {
		defer close(ended)
		var exporting sync.WaitGroup
		workers, stop := context.WithCancel(context.Background())
		exporting.Go(func() { recordings.Run(workers) })
		defer exporting.Wait()
		defer stop()
		parts := Parts{Database: r.db, Fleet: connection, Keys: r.opening, Authenticator: engineers{}, Audit: r.trail, Recordings: recordings, Clock: r.clock,
			Handler: func(next http.Handler) http.Handler { return next }, Listener: serving}
		if r.change != nil {
			r.change(&parts)
		}
		_ = Serve(ctx, p, parts)
	}()
	g := &gateway{r: r, url: scheme + listener.Addr().String(), metrics: p.Metrics, closed: closed}
	g.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		_ = connection.Close()
	})
	r.t.Cleanup(g.stop)
	return g
}

// opened issues the credential of a session of an engineer, and starts a gateway with which the session is ready.
func (r *region) opened(id, engineer string, change func(*database.AccessSessionDocument)) (*gateway, *clusterservicev1.BreakGlassCredential) {
	r.t.Helper()
	r.cluster(nil)
	c := r.issue(id, r.request(id, engineer, change), 15*time.Minute)
	g := r.start()
	g.await(id, database.AccessSessionReady)
	return g, c
}

// ready starts a gateway with a session of an engineer that is ready.
func ready(t testing.TB, id, engineer string) (*region, *gateway, *clusterservicev1.BreakGlassCredential) {
	t.Helper()
	r := newRegion(t)
	g, c := r.opened(id, engineer, nil)
	return r, g, c
}

// document returns the document of a session.
func (r *region) document(id string) (*database.AccessSessionDocument, error) {
	item, err := r.db.AccessSessions().Get(r.t.Context(), database.AccessSessionKey(clusterUID, id))
	if err != nil {
		return nil, err
	}
	return &item.Value, nil
}

// await waits until the document of a session has a state.
func (g *gateway) await(id string, want database.AccessSessionState) *database.AccessSessionDocument {
	g.r.t.Helper()
	return g.awaitAt(database.AccessSessionKey(clusterUID, id), want)
}

// awaitAt waits until the document of the session with a key has a state.
func (g *gateway) awaitAt(key database.Key, want database.AccessSessionState) *database.AccessSessionDocument {
	g.r.t.Helper()
	var found *database.AccessSessionDocument
	eventually.Soon(g.r.t, fmt.Sprintf("the session is %s", want), func() error {
		item, err := g.r.db.AccessSessions().Get(g.r.t.Context(), key)
		if err != nil {
			return err
		}
		if found = &item.Value; found.State != want {
			return fmt.Errorf("it is %s: %s", found.State, found.EndReason)
		}
		return nil
	})
	return found
}

// send sends a request and returns the response with its body.
func (g *gateway) send(method, token, path, body string, headers ...string) (*http.Response, string) {
	g.r.t.Helper()
	response := must.Get(g.open(g.r.t.Context(), method, token, path, body, headers...))(g.r.t)
	defer func() { _ = response.Body.Close() }()
	content := must.Get(io.ReadAll(response.Body))(g.r.t)
	return response, string(content)
}

// awaitRead waits until a read in the session of alice succeeds.
func (g *gateway) awaitRead() {
	g.r.t.Helper()
	eventually.Soon(g.r.t, "a read succeeds", func() error {
		if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusOK {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})
}

// open sends a request and returns the response.
func (g *gateway) open(ctx context.Context, method, token, path, body string, headers ...string) (*http.Response, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, g.url+path, content)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return client.Do(request)
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// message returns the message of a Status of Kubernetes.
func message(t *testing.T, body string) string {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" || status.Message == "" {
		t.Fatalf("the response is no Status: %s", body)
	}
	return status.Message
}

const (
	aliceSession = "a0000000-0000-4000-8000-00000000000a"
	alicePath    = "/sessions/" + aliceSession + "/kas"
)

// TestRequestHasCertificateOfEngineerOnly sends a request with headers that identify its sender. The API server gets the certificate of the
// engineer and none of these headers, and the audit has the request.
func TestRequestHasCertificateOfEngineerOnly(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/namespaces/default/pods?limit=5", "", "Audit-Id", "1", "X-Remote-User", "system:admin",
		"X-Remote-Group", "system:masters", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "other", "Forwarded", "for=192.0.2.1", "Proxy-Authorization", "Basic x", "Cookie", "session=secret", "X-Client-Cert", "pem", "X-Http-Method-Override", "DELETE", "Te", "trailers",
		"Accept", "application/json", "User-Agent", "kubectl/1.35", "If-None-Match", "etag")
	if response.StatusCode != http.StatusOK || body != `{"kind":"PodList"}` {
		t.Fatalf("%d: %s", response.StatusCode, body)
	}
	arrived := r.arrived()
	if len(arrived) != 1 {
		t.Fatalf("%d requests arrived", len(arrived))
	}
	seen := arrived[0]
	want := http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"kubectl/1.35"}, "If-None-Match": {"etag"}, "Audit-Id": {response.Header.Get("X-Request-Id")}}
	if diff := cmp.Diff(want, seen.Header); diff != "" {
		t.Errorf("the API server got other headers: %s", diff)
	}
	if subject := seen.TLS.PeerCertificates[0].Subject; subject.CommonName != "system:sre-break-glass:alice" || seen.URL.RequestURI() != "/api/v1/namespaces/default/pods?limit=5" || seen.Host != strings.TrimPrefix(r.api.URL, "https://") {
		t.Errorf("the API server got %s of %v at %s", seen.URL, subject, seen.Host)
	}
	g.stop()
	records := r.trail.Records(t)
	if len(records) != 2 || records[0].Outcome != audit.Started {
		t.Fatalf("the audit has %+v", records)
	}
	wantRecord := audit.Record{Peer: "app:hcpctl", Person: audit.Person{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "operator", Elevation: "elevation"},
		Action: "kubernetes.list", Object: audit.Object{Kind: "pods", ID: "/default", ResourceID: resourceID, Cluster: clusterUID}, Level: "reader", Reason: "it is slow", Ticket: "INC-1",
		Outcome: audit.Succeeded, Operation: aliceSession, Request: response.Header.Get("X-Request-Id")}
	if diff := cmp.Diff(wantRecord, records[1]); diff != "" {
		t.Errorf("the audit has another record: %s", diff)
	}
	if log := r.log.String(); strings.Contains(log, "Bearer") || strings.Contains(log, "PRIVATE KEY") {
		t.Errorf("the log contains a secret: %s", log)
	}
}

// TestRefusals sends requests that the gateway refuses. None reaches the API server.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	pods := alicePath + "/api/v1/pods"
	for name, tc := range map[string]struct {
		method, token, path string
		headers             []string
		status              int
		message             string
	}{
		"no token":           {"GET", "", pods, nil, 401, "no token"},
		"another engineer":   {"GET", "mallory", pods, nil, 403, "another engineer"},
		"unknown session":    {"GET", "alice", "/sessions/b0000000-0000-4000-8000-00000000000b/kas/api/v1/pods", nil, 403, "does not exist"},
		"no session":         {"GET", "alice", "/api/v1/pods", nil, 404, "/sessions/ID/kas"},
		"no UUID":            {"GET", "alice", "/sessions/../kas/api", nil, 404, "/sessions/ID/kas"},
		"secrets":            {"GET", "alice", alicePath + "/api/v1/secrets", nil, 403, "list of secrets"},
		"a secret":           {"GET", "alice", alicePath + "/api/v1/namespaces/default/secrets/a", nil, 403, "get of secrets"},
		"watch of secrets":   {"GET", "alice", alicePath + "/api/v1/watch/secrets", nil, 403, "watch of secrets"},
		"a change":           {"DELETE", "alice", pods, nil, 403, "deletecollection of pods"},
		"options of a watch": {"OPTIONS", "alice", alicePath + "/api/v1/watch/pods", nil, 403, "watch of pods"},
		"a change as watch":  {"DELETE", "alice", alicePath + "/api/v1/watch/pods", nil, 403, "watch of pods"},
		"a command":          {"GET", "alice", alicePath + "/api/v1/namespaces/default/pods/a/exec?command=id", nil, 403, "get of pods/exec"},
		"a command, SPDY":    {"POST", "alice", alicePath + "/api/v1/namespaces/default/pods/a/exec", []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}, 403, "create of pods/exec: it has no commands"},
		"a WebSocket":        {"GET", "alice", pods, []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403, "does not forward upgrades to another protocol for list of pods"},
		"a hidden upgrade":   {"GET", "alice", pods, []string{"Connection", "keep-alive, uPgRaDe"}, 403, "does not forward upgrades"},
		"another user":       {"GET", "alice", pods, []string{"Impersonate-User", "system:admin"}, 403, "does not permit impersonation"},
		"another group":      {"GET", "alice", pods, []string{"impersonate-group", "system:masters"}, 403, "does not permit impersonation"},
		"another extra":      {"GET", "alice", pods, []string{"Impersonate-Extra-Scopes", ""}, 403, "does not permit impersonation"},
		"another UID":        {"POST", "alice", alicePath + "/apis/authentication.k8s.io/v1/selfsubjectreviews", []string{"Impersonate-Uid", "1"}, 403, "does not permit impersonation"},
		"proxy of a node":    {"GET", "alice", alicePath + "/api/v1/nodes/n/proxy/logs/", nil, 403, "nodes/proxy"},
		"parts":              {"GET", "alice", alicePath + "/api/v1/namespaces/default/pods/a/log/b", nil, 400, "more parts"},
		"proxy of a service": {"GET", "alice", alicePath + "/api/v1/namespaces/default/services/s/proxy", nil, 403, "services/proxy"},
		"proxy by verb":      {"GET", "alice", alicePath + "/api/v1/proxy/nodes/n", nil, 403, "proxy of nodes"},
		"a token":            {"POST", "alice", alicePath + "/api/v1/namespaces/default/serviceaccounts/default/token", nil, 403, "serviceaccounts/token"},
		"debug":              {"GET", "alice", alicePath + "/debug/pprof/heap", nil, 403, "does not permit get of this path"},
		"logs of the server": {"GET", "alice", alicePath + "/logs/audit.log", nil, 403, "does not permit get of this path"},
		"dots":               {"GET", "alice", alicePath + "/api/v1/namespaces/default/configmaps/../secrets", nil, 400, `the part ".."`},
		"encoded dots":       {"GET", "alice", alicePath + "/api/v1/namespaces/default/configmaps/%2e%2e/secrets", nil, 400, `the part ".."`},
		"encoded letters":    {"GET", "alice", alicePath + "/%61pi/v1/namespaces/default/%73ecrets", nil, 403, "secrets"},
		"an encoded slash":   {"GET", "alice", alicePath + "/api/v1/namespaces/default%2fsecrets", nil, 400, "encoded"},
		"two slashes":        {"GET", "alice", alicePath + "//api/v1/secrets", nil, 400, "empty part"},
		"encoded twice":      {"GET", "alice", alicePath + "/api/v1/namespaces/default%255csecrets", nil, 400, "encoded"},
		"a semicolon":        {"GET", "alice", pods + "?a=1;watch=1", nil, 400, "semicolon"},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := g.send(tc.method, tc.token, tc.path, "", tc.headers...)
			if got := message(t, body); response.StatusCode != tc.status || !strings.Contains(got, tc.message) {
				t.Errorf("%d: %s, want %d and %q", response.StatusCode, got, tc.status, tc.message)
			}
		})
	}
	if arrived := r.arrived(); len(arrived) > 0 {
		t.Errorf("%s reached the API server", arrived[0].URL)
	}
	g.stop()
	refused := map[string]int{}
	for _, record := range r.trail.Records(t) {
		if record.Outcome != audit.Refused {
			t.Errorf("the audit has the outcome %s of a refused request", record.Outcome)
		}
		refused[record.Action]++
	}
	if refused["authenticate"] == 0 || refused["accessSessions.use"] == 0 || refused["kubernetes.list"] == 0 {
		t.Errorf("the audit has %v", refused)
	}
}

// watch opens a watch that has sent a first event.
func (g *gateway) watch(path string) (events *bufio.Reader, body io.Closer) {
	g.r.t.Helper()
	response := must.Get(g.open(g.r.t.Context(), http.MethodGet, "alice", path, ""))(g.r.t)
	if response.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(response.Body)
		g.r.t.Fatalf("%d: %s", response.StatusCode, content)
	}
	events = bufio.NewReader(response.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "{}\n" {
		g.r.t.Fatalf("the first event is %q: %v", line, err)
	}
	return events, response.Body
}

// endless serves a watch that ends only with its request.
func endless(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "{}\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// revoke makes Cluster Service report that a credential was revoked.
func (r *region) revoke(c *clusterservicev1.BreakGlassCredential) {
	c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
	r.report(c)
}

// endings are the ways in which a session ends, with the reasons.
var endings = map[string]struct {
	end  func(r *region, c *clusterservicev1.BreakGlassCredential)
	want string
}{
	"admin ends it": {func(r *region, _ *clusterservicev1.BreakGlassCredential) { r.closeSession(aliceSession) }, "ended by bob"},
	"its credential is revoked": {func(r *region, c *clusterservicev1.BreakGlassCredential) {
		c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION
		r.report(c)
	}, "its credential was revoked"},
	"its elevation expires": {func(r *region, c *clusterservicev1.BreakGlassCredential) {
		c.Spec.NotAfter = timestamppb.New(r.clock.Now())
		r.report(c)
	}, "its certificate or its elevation has expired"},
	"the cluster is deleted": {func(r *region, _ *clusterservicev1.BreakGlassCredential) {
		r.cluster(func(c *clusterservicev1.Cluster) { c.DeleteTime = timestamppb.Now() })
	}, "the cluster is being deleted"},
}

// TestWatchEndsWithSession ends sessions in each possible way. A watch ends, also the request to the API server, the document has the
// reason, and its keys are gone.
func TestWatchEndsWithSession(t *testing.T) {
	t.Parallel()
	for name, tc := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, g, c := ready(t, aliceSession, "alice")
			ended := make(chan struct{})
			r.handle(func(w http.ResponseWriter, request *http.Request) { defer close(ended); endless(w, request) })
			events, body := g.watch(alicePath + "/api/v1/pods?watch=true")
			defer func() { _ = body.Close() }()
			tc.end(r, c)
			if rest, err := io.ReadAll(events); err == nil || len(rest) > 0 {
				t.Errorf("the watch ended with %q and the error %v, want an incomplete response", rest, err)
			}
			<-ended
			if v := g.await(aliceSession, database.AccessSessionEnded); v.EndReason != tc.want || len(v.SealedKeys) > 0 || v.EndTime == nil {
				t.Errorf("the session is %+v", v)
			}
			response, text := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", "")
			if response.StatusCode != http.StatusForbidden || !strings.Contains(message(t, text), tc.want) {
				t.Errorf("after the end: %d: %s", response.StatusCode, text)
			}
		})
	}
}

// TestSessionExpires lets the certificate of a session expire during a watch.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	r.handle(endless)
	events, body := g.watch(alicePath + "/api/v1/pods?watch=true")
	defer func() { _ = body.Close() }()
	r.clock.Step(15 * time.Minute)
	if _, err := io.ReadAll(events); err == nil {
		t.Error("the watch was completed")
	}
	if v := g.await(aliceSession, database.AccessSessionEnded); !strings.Contains(v.EndReason, "expired") {
		t.Errorf("the session is %+v", v)
	}
}

// TestSlowClientDoesNotDelayEnd ends the session of a client that reads nothing of a large response.
func TestSlowClientDoesNotDelayEnd(t *testing.T) {
	t.Parallel()
	r, g, c := ready(t, aliceSession, "alice")
	ended := make(chan struct{})
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		defer close(ended)
		for request.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	})
	response := must.Get(g.open(t.Context(), http.MethodGet, "alice", alicePath+"/api/v1/pods?watch=true", ""))(t)
	defer func() { _ = response.Body.Close() }()
	r.revoke(c)
	<-ended
	g.await(aliceSession, database.AccessSessionEnded)
}

// TestRequestsAreLimited opens the maximum of watches, and then the maximum of followed logs, which have a limit of their own. A further one is refused,
// and one more is possible after one has ended.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	r.handle(endless)
	var first []io.Closer
	limits := []struct{ path, message string }{{"/api/v1/pods?watch=1", "20 watches"}, {"/api/v1/namespaces/default/pods/a/log?follow=true", "10 followed logs"}}
	for _, limit := range limits {
		var count int
		must.Get(fmt.Sscan(limit.message, &count))(t)
		for i := range count {
			_, body := g.watch(alicePath + limit.path)
			if i == 0 {
				first = append(first, body)
			} else {
				defer func() { _ = body.Close() }()
			}
		}
		response, body := g.send(http.MethodGet, "alice", alicePath+limit.path, "")
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || !strings.Contains(message(t, body), limit.message) {
			t.Errorf("%d: %s", response.StatusCode, body)
		}
	}
	for i, limit := range limits {
		_ = first[i].Close()
		eventually.Soon(t, "another one is accepted", func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			response, err := g.open(ctx, http.MethodGet, "alice", alicePath+limit.path, "")
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
}

// TestRequestsWithoutTokenDoNotHoldConnections sends one byte of the bodies of requests without a token. The gateway responds, and closes the connections.
func TestRequestsWithoutTokenDoNotHoldConnections(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.withTunnels()
	address := strings.TrimPrefix(r.start().url, "http://")
	type refused struct {
		net.Conn
		path string
		size int
	}
	var connections []refused
	for range 67 {
		for _, path := range []string{alicePath + "/api/v1/pods", tunnel.Path + managementCluster} {
			for _, size := range []int{1, 100_000, 1_000_000} {
				connection := must.Get(net.Dial("tcp", address))(t)
				defer func() { _ = connection.Close() }()
				must.Get(fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\nx", path, size))(t)
				connections = append(connections, refused{connection, path, size})
			}
		}
	}
	for _, connection := range connections {
		reader := bufio.NewReader(connection)
		response := must.Get(http.ReadResponse(reader, nil))(t)
		if response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusTooManyRequests || !response.Close {
			t.Fatalf("%s with a body of %d bytes: %s, and the gateway closes the connection: %t", connection.path, connection.size, response.Status, response.Close)
		}
		if _, err := io.Copy(io.Discard, reader); err != nil {
			t.Errorf("%s with a body of %d bytes: %v", connection.path, connection.size, err)
		}
	}
}

// TestLargeBodyIsRefused sends a body of an unknown length that is too large.
func TestLargeBodyIsRefused(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	r.handle(func(w http.ResponseWriter, request *http.Request) { _, _ = io.Copy(io.Discard, request.Body) })
	const reviews = alicePath + "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	if response, body := g.send(http.MethodPost, "alice", reviews, "{}"); response.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", response.StatusCode, body)
	}
	for _, size := range []int64{-1, 9 << 20} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+reviews, io.LimitReader(zeros{}, 9<<20)))(t)
		request.ContentLength = size
		request.Header.Set("Authorization", "Bearer alice")
		response, err := client.Do(request)
		if err != nil {
			continue // the server may close the connection while the client still sends
		}
		content, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode < 400 {
			t.Errorf("%d: %s", response.StatusCode, content)
		}
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { clear(into); return len(into), nil }

// TestNothingHappensWithoutAudit fills the queue of the audit. Then no watch is forwarded, and the result of no read is returned.
func TestNothingHappensWithoutAudit(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.trail = audittest.New(t, "gateway-access", 64<<10)
	r.trail.SinkAway(true)
	g, _ := r.opened(aliceSession, "alice", nil)
	for r.trail.Append(t.Context(), audit.Record{Action: "fill"}) == nil {
		continue
	}
	const path = alicePath + "/api/v1/pods"
	if response, body := g.send(http.MethodGet, "alice", path, ""); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, body), "cannot be audited") {
		t.Errorf("a read: %d: %s", response.StatusCode, body)
	}
	before := len(r.arrived())
	for what, tc := range map[string]struct{ method, path, body string }{
		"a watch":      {http.MethodGet, path + "?watch=true", ""},
		"a log":        {http.MethodGet, alicePath + "/api/v1/namespaces/default/pods/a/log?follow=true", ""},
		"another verb": {http.MethodPost, alicePath + "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "{}"},
	} {
		if response, body := g.send(tc.method, "alice", tc.path, tc.body); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, body), "cannot be audited") {
			t.Errorf("%s: %d: %s", what, response.StatusCode, body)
		}
	}
	if after := len(r.arrived()); after != before {
		t.Errorf("%d requests were forwarded", after-before)
	}
	r.trail.SinkAway(false)
	g.awaitRead()
}

// TestForeignAPIServerIsRefused sends requests while the endpoint of the cluster has a certificate of another authority.
func TestForeignAPIServerIsRefused(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	foreign, _ := newSigner(t)
	r.cluster(func(c *clusterservicev1.Cluster) {
		c.Status.ServingCertificateAuthority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign.Raw}))
	})
	r.issue(aliceSession, r.request(aliceSession, "alice", nil), 15*time.Minute)
	g := r.start()
	g.await(aliceSession, database.AccessSessionReady)
	if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusServiceUnavailable || len(r.arrived()) > 0 {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
	// The authority of the cluster was rotated.
	r.cluster(nil)
	g.awaitRead()
}

// TestForgedSessionsEnd stores sessions that do not match their credentials. None becomes ready.
func TestForgedSessionsEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(v *database.AccessSessionDocument)
		report func(c *clusterservicev1.BreakGlassCredential)
		want   string
	}{
		"of another engineer":  {func(v *database.AccessSessionDocument) { v.Owner.ObjectID = "mallory" }, nil, "another engineer"},
		"with another key":     {func(v *database.AccessSessionDocument) {}, nil, "no key"},
		"of another elevation": {nil, func(c *clusterservicev1.BreakGlassCredential) { c.Spec.Elevation = "other" }, "another elevation"},
		"for another cluster":  {nil, func(c *clusterservicev1.BreakGlassCredential) { c.ClusterUid = "other" }, "another cluster"},
		"of the level admin": {nil, func(c *clusterservicev1.BreakGlassCredential) {
			c.Spec.Level = clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN
		}, "another level"},
		"of the mode admin, with the level reader": {func(v *database.AccessSessionDocument) { v.Mode = "admin" }, func(c *clusterservicev1.BreakGlassCredential) {
			c.Spec.Level = clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER
		}, "another level"},
		"of an unknown mode":    {func(v *database.AccessSessionDocument) { v.Mode = "write" }, nil, "does not support the mode"},
		"without a certificate": {nil, func(c *clusterservicev1.BreakGlassCredential) { c.Status.Certificate = "" }, "cannot be read"},
		"of a canceled one": {nil, func(c *clusterservicev1.BreakGlassCredential) {
			c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED
		}, "was canceled before the control plane signed it, because the credentials"},
		"of a failed one": {nil, func(c *clusterservicev1.BreakGlassCredential) {
			c.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED
		}, "did not issue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.cluster(nil)
			request := r.request(aliceSession, "alice", tc.change)
			if name == "with another key" {
				request = r.request("b0000000-0000-4000-8000-00000000000b", "alice", nil)
			}
			g := r.start()
			history := len(r.fleet.history)
			c := r.issue(aliceSession, request, 15*time.Minute)
			if tc.report != nil {
				tc.report(c)
				r.fleet.mu.Lock()
				r.fleet.history = r.fleet.history[:history]
				r.fleet.mu.Unlock()
				r.report(c)
			}
			if v := g.await(aliceSession, database.AccessSessionEnded); !strings.Contains(v.EndReason, tc.want) {
				t.Errorf("it ended because %q, want %q", v.EndReason, tc.want)
			}
		})
	}
}

// TestForwardedStreamHasRecord reads the audit on the disk when the API server receives a stream or a creation: the record of its beginning is
// there. A process that is killed at any later time has lost no record.
func TestForwardedStreamHasRecord(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	recorded := make(chan map[string]bool, 1)
	r.handle(func(http.ResponseWriter, *http.Request) {
		actions := map[string]bool{}
		for _, record := range r.trail.Records(t) {
			if record.Outcome == audit.Started {
				actions[record.Action+" "+record.Object.Kind] = true
			}
		}
		recorded <- actions
	})
	for want, request := range map[string][3]string{
		"kubernetes.watch pods":   {http.MethodGet, "/api/v1/pods?watch=true", ""},
		"kubernetes.get pods/log": {http.MethodGet, "/api/v1/namespaces/default/pods/a/log?follow=1", ""},
		"kubernetes.create selfsubjectaccessreviews.authorization.k8s.io": {http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "{}"},
	} {
		if response, body := g.send(request[0], "alice", alicePath+request[1], request[2]); response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d: %s", want, response.StatusCode, body)
		}
		if actions := <-recorded; !actions[want] {
			t.Errorf("%s was forwarded before its record; the audit has %v", want, actions)
		}
	}
}

// TestRedirectIsNotReturned lets the API server redirect a client to a server that would get the client's token.
func TestRedirectIsNotReturned(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		http.Redirect(w, request, "https://attacker.example.com/", http.StatusFound)
	})
	response, body := g.send(http.MethodGet, "alice", alicePath+"/apis/apps/v1/deployments", "")
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Location") != "" || !strings.Contains(message(t, body), "redirects") {
		t.Errorf("%d: %s to %q", response.StatusCode, body, response.Header.Get("Location"))
	}
}

// TestStopEndsWatches stops the process during a watch. Both end at once, and the session stays.
func TestStopEndsWatches(t *testing.T) {
	t.Parallel()
	r, g, _ := ready(t, aliceSession, "alice")
	r.handle(endless)
	events, body := g.watch(alicePath + "/api/v1/pods?watch=true")
	defer func() { _ = body.Close() }()
	g.stop()
	if _, err := io.ReadAll(events); err == nil {
		t.Error("the watch was completed")
	}
	if v, err := r.document(aliceSession); err != nil || v.State != database.AccessSessionReady {
		t.Errorf("the session is %+v: %v", v, err)
	}
	// Another replica continues with it.
	r.handle(nil)
	r.start().awaitRead()
}
