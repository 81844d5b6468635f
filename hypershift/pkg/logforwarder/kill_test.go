package logforwarder

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// childVariable is the environment variable with the child of a process that runs a forwarder until it is killed.
const childVariable = "HCPMESH_TEST_LOG_FORWARDER"

type child struct {
	URL, Hosted, State, Name, Certificate string
	// Tokens are the access tokens by scope.
	Tokens map[string]string
}

// GetToken implements azcore.TokenCredential.
func (c *child) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: c.Tokens[o.Scopes[0]], ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func runChild(text string) {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.Certificate))
	f, err := New(Options{HostedDir: c.Hosted, StateDir: c.State, Location: "westus3", SettingsAge: time.Minute, FlushInterval: time.Millisecond,
		Metrics: prometheus.NewRegistry(), Log: slog.Default(), Azure: Azure{ResourceManager: c.URL, BlobURL: c.URL + "/" + accountVariable, Credential: &c,
			Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}})
	if err != nil {
		panic(err)
	}
	f.Set(ControlPlane{Name: c.Name, UID: "uid", ResourceID: clusterID(c.Name)})
	if err := f.Run(context.Background()); err != nil {
		panic(err)
	}
}

// TestKilledBetweenAppendAndCheckpoint kills the forwarder with SIGKILL after the storage has stored an append and before the forwarder gets the
// response. The lines of the append are delivered twice, and none is lost.
func TestKilledBetweenAppendAndCheckpoint(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	var mu sync.Mutex
	var victim *exec.Cmd // nil if no process shall be killed, or if it was killed
	target := must.Get(url.Parse(w.azure.URL))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = w.azure.HTTP().Transport
	// The storage has stored the append, and the response is not sent yet.
	proxy.ModifyResponse = func(r *http.Response) error {
		mu.Lock()
		defer mu.Unlock()
		if victim != nil && r.Request.URL.Query().Get("comp") == "appendblock" && r.StatusCode == http.StatusCreated {
			_ = victim.Process.Kill()
			victim = nil
		}
		return nil
	}
	server := httptest.NewTLSServer(proxy)
	defer server.Close()
	c := child{URL: server.URL, Hosted: w.hosted, State: w.state, Name: "a", Tokens: map[string]string{},
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	for _, audience := range []string{armAudience, blobAudience} {
		token := must.Get(w.azure.Tokens.Principal(forwarderID).GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}}))(t)
		c.Tokens[audience+"/.default"] = token.Token
	}
	text := must.Get(json.Marshal(c))(t)

	const processes, lines = 4, 50
	for n := range processes {
		w.write("a", auditFile, events(n*lines, (n+1)*lines)...)
		if n%2 == 1 {
			w.rotate("a", n)
		}
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), childVariable+"="+string(text))
		command.Stderr = os.Stderr
		mu.Lock()
		if err := command.Start(); err != nil {
			mu.Unlock()
			t.Fatal(err)
		}
		victim = command
		mu.Unlock()
		err := command.Wait()
		mu.Lock()
		wasKilled := victim == nil
		mu.Unlock()
		if !wasKilled {
			t.Fatalf("the process ended before it appended: %v", err)
		}
	}
	w.start("a")
	w.awaitAll("one", customerlog.KubeAudit, "a", ids(0, processes*lines)...)
	got, err := w.auditIDs("one", customerlog.KubeAudit, "a")
	if err != nil || len(got) <= processes*lines {
		t.Errorf("%d lines were delivered, %v: no process was killed between an append and its checkpoint", len(got), err)
	}
}
