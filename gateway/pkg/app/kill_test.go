package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// childVariable is the environment variable with the child of a process that runs the program gateway-access.
const childVariable = "HCPMESH_TEST_GATEWAY_ACCESS"

// child is the command line of the program. The key of the database is no flag: a service authenticates with its workload identity.
type child struct {
	Arguments   []string
	DatabaseKey string
}

// runChild runs the program and does not return.
func runChild(text string) {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	var options Options
	flags := flag.NewFlagSet("gateway-access", flag.ExitOnError)
	options.AddFlags(flags)
	var common process.Options
	common.AddFlags(flags)
	process.Parse(flags, c.Arguments, options.Validate)
	options.Database.Key = c.DatabaseKey
	process.Run("gateway-access", common, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

// countingProxy forwards TCP connections to the API server. It calls a function directly after it has forwarded a number of parts of requests.
type countingProxy struct {
	address string
	target  string
	// left is the number of parts until reached is called.
	left    atomic.Int64
	reached func()
	wg      sync.WaitGroup
	mu      sync.Mutex
	open    map[net.Conn]bool
}

func newCountingProxy(t *testing.T, target string) *countingProxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &countingProxy{address: listener.Addr().String(), target: target, open: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(connection) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for connection := range p.open {
			_ = connection.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *countingProxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, client)
		delete(p.open, server)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer back.Wait()
	defer func() { _ = server.Close() }()
	part := make([]byte, 64<<10)
	for {
		n, err := client.Read(part)
		if n > 0 {
			if _, err := server.Write(part[:n]); err != nil {
				return
			}
			if p.left.Add(-1) == 0 {
				p.reached()
			}
		}
		if err != nil {
			return
		}
	}
}

// program is gateway-access as a process, with its environment.
type program struct {
	*hostedRegion
	audit  *writer.Options
	child  string
	token  string
	client *http.Client

	process *spawn.Process
	url     string
}

// newProgram returns the program with its environment: Cluster Service with mutual TLS, an issuer of tokens, and the keys of sessions in files.
func newProgram(t testing.TB, r *hostedRegion, engineer string) *program {
	t.Helper()
	identity := r.mesh.Identity(mesh.GatewayAccess)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(r.mesh.Identity(mesh.ClusterService).ServerTLS(mesh.GatewayAccess))))
	clusterservicev1.RegisterClusterServiceServer(server, r.fleet)
	dir := t.TempDir()
	private, public := filepath.Join(dir, "private"), filepath.Join(dir, "public")
	must.Do(t, seal.CreatePair(private, public))
	r.sealing = must.Get(seal.ReadPublic(public))(t)
	readers, recordingKey := filepath.Join(dir, "recordings.private"), filepath.Join(dir, "recordings.public")
	must.Do(t, seal.CreatePair(readers, recordingKey))
	r.reading = must.Get(seal.LoadPrivate(readers))(t)
	tokens := must.Get(entratest.Start())(t)
	t.Cleanup(tokens.Close)
	keys := must.Get(url.Parse(tokens.Authority()))(t)
	var issuer *httptest.Server
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/.well-known/openid-configuration" {
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"})
			return
		}
		httputil.NewSingleHostReverseProxy(keys).ServeHTTP(w, request)
	}))
	t.Cleanup(issuer.Close)
	authorities := filepath.Join(dir, "issuer.crt")
	must.Do(t, os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600))
	k := &program{hostedRegion: r, audit: audittest.Options(t)}
	signing := must.Get(audit.LoadKey(k.audit.KeyFile))(t)
	r.recordingSigners = audit.Keys{}
	r.recordingSigners.Trust("gateway-access", signing)
	claims := tokens.Claims("gateway", engineer, time.Now().Add(time.Hour))
	claims["iss"], claims["appid"] = issuer.URL, "hcpctl"
	k.token = must.Get(tokens.Sign(claims))(t)
	text := must.Get(json.Marshal(child{DatabaseKey: r.cosmos.Options.Key, Arguments: append(audittest.Flags(k.audit), "--cosmos-endpoint", r.cosmos.Options.Endpoint, "--identity-dir", identity.Dir(),
		"--cluster-service-address", r.mesh.Serve(server), "--key-file", private, "--listen", "127.0.0.1:0", "--authentication", "token", "--authentication-issuer", issuer.URL,
		"--authentication-audience", "gateway", "--authentication-client-ids", "hcpctl", "--authentication-ca-file", authorities,
		"--recording-dir", t.TempDir(), "--recording-sink-dir", r.recorded, "--recording-key-file", recordingKey)}))(t)
	k.child = string(text)
	content := must.Get(os.ReadFile(filepath.Join(identity.Dir(), mesh.CAFile)))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	k.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		if k.process != nil {
			k.process.Kill()
		}
	})
	return k
}

// start starts the program and waits until it serves.
func (k *program) start() {
	k.t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+k.child)
	reader, output, err := os.Pipe()
	if err != nil {
		k.t.Fatal(err)
	}
	command.Stderr = output
	k.process, err = spawn.Start(command, syscall.SIGKILL)
	_ = output.Close()
	if err != nil {
		_ = reader.Close()
		k.t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer func() { _ = reader.Close() }()
		defer close(address)
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			_, _ = k.log.Write(append(slices.Clone(lines.Bytes()), '\n'))
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving access sessions" {
				address <- line.Address
			}
		}
	}()
	listens, ok := <-address
	if !ok {
		k.t.Fatalf("the program ended: %v: %s", k.process.Err(), k.log)
	}
	k.url = "https://" + listens
}

// send sends a request of a session.
func (k *program) send(ctx context.Context, session, method, path, body string) (response *http.Response, err error) {
	request, err := http.NewRequestWithContext(ctx, method, k.url+"/sessions/"+session+"/kas"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+k.token)
	request.Header.Set("Content-Type", "application/json")
	return k.client.Do(request)
}

// TestAuditSurvivesKill kills the program several times with SIGKILL directly after it has forwarded a part of a request, while an engineer
// reads, watches, creates objects and reviews of rights. Then the audit of the gateway is compared with the audit log of the API server, whose events
// have the IDs of the gateway's requests. Each change, each watch and each read of which a client got the response has its records, with the same
// verb and object. Only a read without a response may have none. Each request that succeeded in the gateway's audit is in the API server's.
func TestAuditSurvivesKill(t *testing.T) {
	t.Parallel()
	const session, engineer, kills = "a0000000-0000-4000-8000-0000000000d1", "interrupted", 6
	r := newHostedRegion(t)
	proxy := newCountingProxy(t, strings.TrimPrefix(r.endpoint, "https://"))
	r.endpoint = "https://" + proxy.address
	k := newProgram(t, r, engineer)
	r.cluster(nil)
	r.issue(session, r.request(session, engineer, func(v *database.AccessSessionDocument) { v.Owner.TenantID, v.Mode = entratest.Tenant, "admin" }), 15*time.Minute)
	var mu sync.Mutex
	answered := map[string]string{} // the request of each response, by its ID
	exchange := func(method, path, body string) error {
		response, err := k.send(t.Context(), session, method, path, body)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		id := response.Header.Get("X-Request-Id")
		if response.StatusCode >= http.StatusBadRequest {
			content, _ := io.ReadAll(response.Body)
			return fmt.Errorf("%s: %s", response.Status, content)
		}
		mu.Lock()
		answered[id] = method + " " + path
		mu.Unlock()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	const review = `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}`
	for round := range kills + 1 {
		k.start()
		eventually.Soon(t, "the program serves the session", func() error { return exchange(http.MethodGet, "/api/v1/namespaces/default", "") })
		if round == kills {
			break
		}
		proxy.reached = func() { _ = k.process.Signal(syscall.SIGKILL) }
		proxy.left.Store(int64(20 + 13*round))
		var workers sync.WaitGroup
		for _, request := range [][3]string{
			{http.MethodGet, "/api/v1/namespaces/default/pods", ""}, {http.MethodGet, "/api/v1/namespaces/default", ""},
			{http.MethodGet, "/api/v1/namespaces?watch=true&timeoutSeconds=1", ""}, {http.MethodGet, "/api/v1/namespaces?watch=true", ""},
			{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review}, {http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata": {"generateName": "killed-"}}`},
		} {
			workers.Go(func() {
				for exchange(request[0], request[1], request[2]) == nil {
					continue
				}
			})
		}
		workers.Wait()
		<-k.process.Exited()
		k.client.CloseIdleConnections()
	}
	if err := errors.Join(k.process.Signal(syscall.SIGTERM), k.process.Err()); err != nil {
		t.Fatalf("the program ended with %v: %s", err, k.log)
	}

	records := map[string][]audit.Record{}
	unknown := 0
	for _, record := range audittest.Stored(t, k.audit, "gateway-access") {
		records[record.Request] = append(records[record.Request], record)
		if record.Outcome == audit.Unknown {
			unknown++
		}
	}
	if unknown == 0 {
		t.Error("no request was interrupted")
	}
	for id, request := range answered {
		if len(records[id]) == 0 {
			t.Errorf("%s had a response and has no record", request)
		}
	}
	var events map[string]event
	eventually.Soon(t, "the API server has logged all requests that had a response", func() (err error) {
		if events, err = r.events(engineer); err != nil {
			return err
		}
		for id, request := range answered {
			if _, logged := events[id]; !logged {
				return errors.New(request)
			}
		}
		return nil
	})
	verbs := map[string]int{}
	for id, e := range events {
		verbs[e.Verb]++
		if len(records[id]) == 0 {
			if e.Verb != "get" && e.Verb != "list" || answered[id] != "" {
				t.Errorf("%s of %s has no record in the audit of the gateway", e.Verb, e.kind())
			}
			continue
		}
		object := ""
		for _, part := range []string{e.ObjectRef.Namespace, e.ObjectRef.Name} {
			if part != "" {
				object += "/" + part
			}
		}
		if begun := records[id][0]; begun.Outcome != audit.Started || begun.Action != "kubernetes."+e.Verb || begun.Object.Kind != e.kind() || begun.Object.ID != object || begun.Person.ObjectID != engineer {
			t.Errorf("%s of %s %s has the record %+v", e.Verb, e.kind(), object, begun)
		}
	}
	for _, verb := range []string{"get", "list", "watch", "create"} {
		if verbs[verb] < kills {
			t.Errorf("the API server has logged %d requests with the verb %s", verbs[verb], verb)
		}
	}
	for id, both := range records {
		if len(both) != 2 || both[0].Outcome != audit.Started || both[1].Outcome == audit.Started {
			t.Errorf("request %s has the records %+v", id, both)
		}
		if _, logged := events[id]; !logged && both[len(both)-1].Outcome == audit.Succeeded {
			t.Errorf("request %s is not in the audit log of the API server: %+v", id, both)
		}
	}
	t.Logf("the API server has logged %v; %d requests have the outcome unknown", verbs, unknown)
}
