package app_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/cpuprofile"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

func TestOptions(t *testing.T) {
	complete := []string{"--identity-dir", "d", "--cluster-service-address", "a:1", "--location", "westus3",
		"--cosmos-endpoint", "https://localhost:8081", "--authentication", "off",
		"--audit-queue-dir=q", "--audit-sink-dir=s", "--audit-witness-dir=w", "--audit-signing-key-file=k"}
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"complete":            {reason: "the required flags are sufficient", args: complete},
		"location missing":    {reason: "the error names a missing flag", args: append(complete, "--location", ""), want: "--location"},
		"location written":    {reason: "the error names an invalid flag", args: append(complete, "--location", "West US 3"), want: "--location"},
		"cosmos endpoint":     {reason: "the flags of the store are validated", args: append(complete, "--cosmos-endpoint", "x"), want: "--cosmos-endpoint"},
		"authentication":      {reason: "the authentication mode is required", args: append(complete, "--authentication", ""), want: "--authentication"},
		"authentication mode": {reason: "an unknown mode is invalid", args: append(complete, "--authentication", "maybe"), want: `"maybe"`},
		"check URL":           {reason: "a sidecar needs a URL", args: append(complete, "--authentication", "sidecar"), want: "--authentication-check-url"},
		"issuer": {reason: "tokens need an issuer", args: append(complete, "--authentication", "token", "--authentication-audience", "a", "--authentication-client-ids", "c"),
			want: "--authentication-issuer"},
		"issuer URL": {reason: "an issuer's keys must be read with TLS", args: append(complete, "--authentication", "token", "--authentication-audience", "a", "--authentication-client-ids", "c",
			"--authentication-issuer", "http://issuer"), want: "--authentication-issuer"},
		"quota":             {reason: "a quota is not negative", args: append(complete, "--clusters-per-subscription", "-1"), want: "--clusters-per-subscription"},
		"audit":             {reason: "refused requests are audited", args: append(complete, "--audit-queue-dir", ""), want: "--audit-queue-dir"},
		"trace ratio":       {reason: "a ratio is at most 1", args: append(complete, "--trace-ratio", "2"), want: "--trace-ratio"},
		"collector":         {reason: "a collector is a URL", args: append(complete, "--otlp-endpoint", "localhost:4317"), want: "--otlp-endpoint"},
		"unknown":           {reason: "an unknown flag is rejected", args: append(complete, "--colour", "red"), want: "colour"},
		"identity missing":  {reason: "the error names a missing flag", args: append(complete, "--identity-dir", ""), want: "--identity-dir"},
		"no listen address": {reason: "the error names a missing flag", args: append(complete, "--listen", ""), want: "--listen"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var options app.Options
			flags := flag.NewFlagSet("frontend", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			options.AddFlags(flags)
			err := flags.Parse(tc.args)
			if err == nil {
				err = options.Validate()
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// region is the whole service with the Cosmos DB emulator, and identities for its clients. Cluster Service is unavailable,
// which does not affect responses.
type region struct {
	url      string
	frontend chan error
	stop     context.CancelFunc
	client   func(peer mesh.Peer) *http.Client
	log      logBuffer
	// audit has the audit of the service.
	audit *writer.Options
}

// logBuffer stores the log of the service.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func serve(t testing.TB, changes ...func(*app.Options)) *region {
	t.Helper()
	cosmos := must.Get(emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, Account: databasetest.Account(t)}))(t)
	account := httptest.NewServer(cosmos)
	t.Cleanup(func() { account.Close(); _ = cosmos.Close() })
	authority := must.Get(mesh.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "test"))(t)
	issue := func(peer mesh.Peer) string {
		dir := t.TempDir()
		must.Do(t, authority.Issue(dir, peer))
		return dir
	}
	options := app.Options{Mesh: mesh.Options{IdentityDir: issue(mesh.Frontend)}, ClusterServiceAddress: "127.0.0.1:1", Location: "westus3", ClustersPerSubscription: 100,
		Authentication: authn.Options{Mode: "off"}, Audit: *audittest.Options(t)}
	options.Database.Endpoint, options.Database.Key = account.URL, emulator.WellKnownKey
	for _, change := range changes {
		change(&options)
	}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	r := &region{url: "https://" + listener.Addr().String(), frontend: make(chan error, 1), stop: stop, audit: &options.Audit}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.frontend <- app.Serve(ctx, process.New("frontend", slog.New(slog.NewJSONHandler(&r.log, nil))), options, listener)
	}()
	// The service writes to folders of the test until it ends.
	t.Cleanup(func() { stop(); <-ended })
	r.client = func(peer mesh.Peer) *http.Client {
		identity := must.Get(mesh.LoadIdentity(issue(peer)))(t)
		// Many HTTP/1.1 connections, as a busy front door has them.
		transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: 64, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(true)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	return r
}

// waitReady waits until the service is ready.
func (r *region) waitReady(t testing.TB, client *http.Client) {
	t.Helper()
	eventually.Soon(t, "the service is ready", func() error {
		if status, body := do(t, client, http.MethodGet, r.url+"/readyz", ""); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

func do(t testing.TB, client *http.Client, method, url, body string) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Ms-Identity-Url", "https://identity.example")
	response := must.Get(client.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	content := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(content)
}

// TestServe: only the ARM front door may call the API, and the service terminates when its context ends.
func TestServe(t *testing.T) {
	r := serve(t)
	arm := r.client(mesh.ARMFrontDoor)
	r.waitReady(t, arm)
	if status, body := do(t, arm, http.MethodGet, r.url+"/providers/Microsoft.RedHatOpenShift/operations?api-version=2026-09-01-preview", ""); status != http.StatusOK {
		t.Errorf("GET operations: %d %s", status, body)
	}
	for _, peer := range mesh.Peers() {
		if peer == mesh.ARMFrontDoor {
			continue
		}
		if response, err := r.client(peer).Get(r.url + "/healthz"); err == nil {
			_ = response.Body.Close()
			t.Errorf("the workload %s received a response", peer)
		}
	}
	if status, body := do(t, arm, http.MethodPut, r.url+"/subscriptions/11111111-1111-1111-1111-111111111111?api-version=2.0", `{"state":"Registered","registrationDate":"now"}`); status != http.StatusOK {
		t.Errorf("PUT subscription: %d %s", status, body)
	}
	eventually.Soon(t, "the access log and the audit record name the workload", func() error {
		for _, message := range []string{"request", "audit"} {
			if !r.named(message, mesh.ARMFrontDoor) {
				return fmt.Errorf("no record %q names it:\n%s", message, &r.log)
			}
		}
		return nil
	})

	arm.CloseIdleConnections()
	r.stop()
	if err := <-r.frontend; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// named reports whether a log record with a message has a workload as its client.
func (r *region) named(message string, workload mesh.Peer) bool {
	for line := range strings.Lines(r.log.String()) {
		var record struct{ Msg, Client string }
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == message && record.Client == string(workload) {
			return true
		}
	}
	return false
}

// createCluster creates a cluster and returns its URL.
func (r *region) createCluster(b *testing.B, arm *http.Client) string {
	b.Helper()
	const subscription = "11111111-1111-1111-1111-111111111111"
	if status, body := do(b, arm, http.MethodPut, r.url+"/subscriptions/"+subscription+"?api-version=2.0", `{"state":"Registered","registrationDate":"now"}`); status != http.StatusOK {
		b.Fatal(status, body)
	}
	content := must.Get(os.ReadFile("../../testdata/bodies/cluster.json"))(b)
	group := "/subscriptions/" + subscription + "/resourceGroups/group"
	body := strings.NewReplacer("{{location}}", "westus3", "{{network}}", group+"/providers/Microsoft.Network",
		"{{identity}}", group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities").Replace(string(content))
	cluster := r.url + group + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster?api-version=2026-09-01-preview"
	if status, answer := do(b, arm, http.MethodPut, cluster, body); status != http.StatusCreated {
		b.Fatal(status, answer)
	}
	return cluster
}

// BenchmarkGet measures a GET of a cluster over mutual TLS from 16 clients. p50 and p99 are those of all requests.
func BenchmarkGet(b *testing.B) {
	r := serve(b)
	arm := r.client(mesh.ARMFrontDoor)
	r.waitReady(b, arm)
	cluster := r.createCluster(b, arm)
	var mu sync.Mutex
	var took []time.Duration
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		var own []time.Duration
		for pb.Next() {
			started := time.Now()
			if status, answer := do(b, arm, http.MethodGet, cluster, ""); status != http.StatusOK {
				b.Error(status, answer)
			}
			own = append(own, time.Since(started))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
	})
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// The functions that a GET uses in this process, by their names in a CPU profile: those that record and send spans and metrics, the server's
// goroutines, and those of the store, of the collector and of the client. The connections to the store do not count as a part of the request.
const (
	telemetry = `go\.opentelemetry\.io/|internal/tracing\.|prometheus/client_golang/|pkg/server\.\(\*metrics\)|pkg/server\.userAgent`
	serving   = `net/http\.\(\*conn\)\.serve|` + telemetry
	others    = `cosmos-emulator/|pkg/app_test\.`
)

// BenchmarkTelemetry measures which share of the CPU time of a GET the frontend uses for tracing and metrics, by a CPU profile. It records the
// given share of the traces of reads.
func BenchmarkTelemetry(b *testing.B) {
	for _, ratio := range []float64{0.05, 1} {
		b.Run(fmt.Sprintf("ratio=%v", ratio), func(b *testing.B) {
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { _, _ = io.Copy(io.Discard, request.Body) }))
			b.Cleanup(collector.Close)
			r := serve(b, func(o *app.Options) { o.Tracing.Collector, o.Tracing.Ratio = collector.URL, ratio })
			arm := r.client(mesh.ARMFrontDoor)
			r.waitReady(b, arm)
			cluster := r.createCluster(b, arm)
			profile := must.Get(os.Create(filepath.Join(b.TempDir(), "cpu.pprof")))(b)
			must.Do(b, pprof.StartCPUProfile(profile))
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if status, answer := do(b, arm, http.MethodGet, cluster, ""); status != http.StatusOK {
						b.Error(status, answer)
					}
				}
			})
			pprof.StopCPUProfile()
			must.Do(b, profile.Close())
			share := func(in, out string) float64 {
				b.Helper()
				return must.Get(cpuprofile.Share(b.Context(), profile.Name(), in, out))(b)
			}
			b.ReportMetric(100*share(telemetry, others)/share(serving, others), "%-telemetry")
		})
	}
}
