package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// retried reports whether clients repeat a request by themselves: the server was not reached, ended the connection, or asked for it.
// A request to a server that etcd does not answer gets 500, 503 or 504.
func retried(status int, err error) bool {
	var certificate *tls.CertificateVerificationError
	var alert *net.OpError
	if errors.As(err, &certificate) || errors.As(err, &alert) && alert.Op == "remote error" {
		return false
	}
	return err != nil || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// reader reads the namespaces of a management cluster. It keeps the authorities and the certificate that it was made with.
type reader struct {
	url    string
	client *http.Client
}

func newReader(t *testing.T, r *Region, m *managementCluster) *reader {
	t.Helper()
	config := must.Get(m.probeTLS())(t)
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return &reader{"https://" + r.address(management(m.index, managementAPI)) + "/api/v1/namespaces", &http.Client{Transport: transport, Timeout: time.Minute}}
}

func (r *reader) read(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// expectSuccess reads until an attempt succeeds. It fails the test at an error after which clients do not repeat a request.
func (r *reader) expectSuccess(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	until(ctx, t, "a successful request "+when, func() bool {
		status, err := r.read(ctx)
		if status != http.StatusOK && !retried(status, err) {
			t.Fatalf("%s: %d, %v", when, status, err)
		}
		return status == http.StatusOK
	})
}

// authorityCase is an authority, the server that it authenticates, and the files of a client that is authenticated by it.
type authorityCase struct {
	name, dir, url   string
	certificate, key string
	refused          int
}

func authorityCases(r *Region) []authorityCase {
	m := r.clusters[0]
	administrator := r.etcdAdministrator()
	return []authorityCase{
		{EtcdAuthority, r.etcdAuthorityDir(), r.etcdURL() + "/health", administrator.CertificateFile, administrator.KeyFile, 0},
		{m.name, r.managementDir(m), "https://" + r.address(management(m.index, managementAPI)) + "/api/v1/namespaces",
			m.pki.Path(kubeapi.Admin + ".crt"), m.pki.Path(kubeapi.Admin + ".key"), http.StatusUnauthorized},
	}
}

// request sends a request with a client certificate to the server of an authority, and trusts roots. It presents the certificate even if the
// server does not name its authority.
func (c *authorityCase) request(t *testing.T, roots []byte, certificate *tls.Certificate) (int, error) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		t.Fatal("no authority is trusted")
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	response, err := client.Get(c.url)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// state returns the authorities that clients trust, and the client's certificate.
func (c *authorityCase) state(t *testing.T) (roots []byte, certificate *tls.Certificate) {
	t.Helper()
	roots = must.Get(os.ReadFile(filepath.Join(c.dir, authority.CertificateFile)))(t)
	pair := must.Get(tls.LoadX509KeyPair(c.certificate, c.key))(t)
	return roots, &pair
}

// TestKubernetesAuthoritiesAreReplacedWhileRunning replaces the authorities of etcd and of a management cluster while a client of that
// cluster sends requests. None of these may fail in a way after which a client would not repeat it. At the end, neither side
// accepts the other's former certificate.
func TestKubernetesAuthoritiesAreReplacedWhileRunning(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	region := must.Get(Start(ctx, oneCluster(stateDir(t))))(t)
	defer region.Close()
	for _, c := range authorityCases(region) {
		roots, certificate := c.state(t)
		loadCtx, stop := context.WithCancel(ctx)
		var load sync.WaitGroup
		var requests, repeated atomic.Int64
		defer func() { stop(); load.Wait() }()
		readers := make([]*reader, len(region.clusters))
		var using sync.RWMutex // held while a request is in flight
		// When a step begins, all clients were restarted in the step before: they keep what they read then, and no request of the former
		// process is in flight.
		restarted := func() {
			using.Lock()
			defer using.Unlock()
			for i, m := range region.clusters {
				readers[i] = newReader(t, region, m)
			}
		}
		restarted()
		for i, m := range region.clusters {
			load.Go(func() {
				for loadCtx.Err() == nil {
					using.RLock()
					status, err := readers[i].read(loadCtx)
					using.RUnlock()
					requests.Add(1)
					if status == http.StatusOK || loadCtx.Err() != nil {
						continue
					}
					if !retried(status, err) {
						t.Errorf("%s: a request to %s: %d, %v", c.name, m.name, status, err)
						return
					}
					repeated.Add(1)
					_ = backoff.Sleep(loadCtx, 20*time.Millisecond)
				}
			})
		}
		var steps []authorities.Step
		err := region.RotateAuthority(ctx, c.name, func(step authorities.Step) {
			steps = append(steps, step)
			restarted()
			if got := region.Status().Certificates.Rotations[c.name]; got != step {
				t.Errorf("%s: the status has the step %q, want %q", c.name, got, step)
			}
		})
		for _, m := range region.clusters {
			newReader(t, region, m).expectSuccess(ctx, t, "after the replacement of "+c.name)
		}
		stop()
		load.Wait()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Logf("%s: %d requests, %d of them repeated", c.name, requests.Load(), repeated.Load())
		if want := []authorities.Step{authorities.Trusting, authorities.Issuing, authorities.Removing, authorities.None}; !slices.Equal(steps, want) {
			t.Errorf("%s: steps %q", c.name, steps)
		}
		nowRoots, nowCertificate := c.state(t)
		if bytes.Count(nowRoots, []byte("BEGIN CERTIFICATE")) != 1 || bytes.Equal(roots, nowRoots) {
			t.Errorf("%s: clients trust another authority than the new one", c.name)
		}
		if status, err := c.request(t, nowRoots, nowCertificate); err != nil || status != http.StatusOK {
			t.Errorf("%s: with the new certificate: %d, %v", c.name, status, err)
		}
		if status, err := c.request(t, nowRoots, certificate); status != c.refused || c.refused == 0 && err == nil {
			t.Errorf("%s: with a certificate of the former authority: %d, %v", c.name, status, err)
		}
		var unknown *tls.CertificateVerificationError
		if status, err := c.request(t, roots, nowCertificate); !errors.As(err, &unknown) {
			t.Errorf("%s: who trusts the former authority: %d, %v", c.name, status, err)
		}
	}
}

// TestCommandGetsEachStep replaces an authority through the socket, as hcpctl does.
func TestCommandGetsEachStep(t *testing.T) {
	ctx := testContext(t)
	region := must.Get(Start(ctx, onlyPostgres(stateDir(t))))(t)
	defer region.Close()
	client := control.NewClient(region.state.dir)
	var steps []string
	note := func(step string) { steps = append(steps, step) }
	if err := client.RotateAuthority(ctx, ServicesAuthority, note); err != nil || !slices.Equal(steps, []string{"Trusting", "Issuing", "Removing"}) {
		t.Errorf("steps %q, %v", steps, err)
	}
	steps = nil
	if err := client.RotateAuthority(ctx, "mgmt-9", note); err == nil || !strings.Contains(err.Error(), "services, etcd, mgmt-1") || len(steps) > 0 {
		t.Errorf("an unknown authority: steps %q, %v", steps, err)
	}
}

// TestInterruptedKubernetesReplacementContinues interrupts a replacement in each step. The next call continues, and so does the next start.
func TestInterruptedKubernetesReplacementContinues(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	config := oneCluster(stateDir(t))
	region := must.Get(Start(ctx, config))(t)
	defer func() { region.Close() }()
	for i, last := range []authorities.Step{authorities.Trusting, authorities.Issuing, authorities.Removing} {
		for _, c := range authorityCases(region) {
			interrupted, interrupt := context.WithCancel(ctx)
			err := region.RotateAuthority(interrupted, c.name, func(step authorities.Step) {
				if step == last {
					interrupt()
				}
			})
			interrupt()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s, interrupted in the step %s: %v", c.name, last, err)
			}
		}
		if i%2 == 0 {
			for _, c := range authorityCases(region) {
				if err := region.RotateAuthority(ctx, c.name, func(authorities.Step) {}); err != nil {
					t.Fatalf("%s, continued after the step %s: %v", c.name, last, err)
				}
			}
		} else {
			region.Close()
			restarted, err := Start(ctx, config)
			if err != nil {
				t.Fatalf("started after the step %s: %v", last, err)
			}
			region = restarted
		}
		for _, m := range region.clusters {
			newReader(t, region, m).expectSuccess(ctx, t, fmt.Sprintf("continued after the step %s", last))
		}
		for _, c := range authorityCases(region) {
			roots, certificate := c.state(t)
			if status, err := c.request(t, roots, certificate); err != nil || status != http.StatusOK {
				t.Errorf("%s, continued after the step %s: %d, %v", c.name, last, status, err)
			}
			if err := checkServer(ctx, strings.Split(strings.TrimPrefix(c.url, "https://"), "/")[0], roots, roots); err != nil {
				t.Errorf("%s, continued after the step %s: %v", c.name, last, err)
			}
		}
	}
}
