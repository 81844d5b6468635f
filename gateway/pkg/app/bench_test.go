package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/session"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// readPath is the path of the reads of the benchmarks, and readSize the size of the response in bytes.
const (
	readPath = "/api/v1/namespaces/default/pods"
	readSize = 16 << 10
)

// serveList makes the API server respond to reads with a list of readSize bytes.
func (r *region) serveList() {
	list := bytes.Repeat([]byte(" "), readSize)
	copy(list, `{"kind":"PodList"}`)
	r.handle(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(list)
	})
}

// directClient returns a client of the API server that has a certificate of its signer, without the gateway.
func (r *region) directClient() *http.Client {
	r.t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(r.t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "direct"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, r.signer, &key.PublicKey, r.key))(r.t)
	authorities := x509.NewCertPool()
	authorities.AddCert(r.api.Certificate())
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// keptClient returns a client that keeps its connections to the gateway.
func (r *region) keptClient() *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// read reads a list and returns an error unless it is complete.
func read(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer alice")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n != readSize || response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d, %d bytes: %w", response.StatusCode, n, err)
	}
	return nil
}

// median returns the median in milliseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}

// BenchmarkRead compares a read through the gateway with the same read of the API server, in turn. Both audit records of the gateway are on the disk;
// tokens are not verified. The API server does nothing, so the ratio is that of the gateway's own work and a round trip.
func BenchmarkRead(b *testing.B) {
	r, g, _ := ready(b, aliceSession, "alice")
	r.serveList()
	direct, through := r.directClient(), r.keptClient()
	var without, with []time.Duration
	for b.Loop() {
		began := time.Now()
		must.Do(b, read(b.Context(), direct, r.endpoint+readPath))
		between := time.Now()
		must.Do(b, read(b.Context(), through, g.url+alicePath+readPath))
		without, with = append(without, between.Sub(began)), append(with, time.Since(between))
	}
	b.ReportMetric(median(with)-median(without), "added-p50-ms")
	b.ReportMetric(median(with)/median(without), "gateway/direct")
}

// BenchmarkConcurrentReads reads through the gateway and directly with 16 clients for each processor. One operation is one read.
func BenchmarkConcurrentReads(b *testing.B) {
	r, g, _ := ready(b, aliceSession, "alice")
	r.serveList()
	for name, target := range map[string]struct {
		client *http.Client
		url    string
	}{"direct": {r.directClient(), r.endpoint + readPath}, "gateway": {r.keptClient(), g.url + alicePath + readPath}} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := read(b.Context(), target.client, target.url); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
		})
	}
}

// BenchmarkWatches opens watches in many sessions, each with a client of its own, as kubectl has. It reports how much the resident memory of the process
// gateway-access grows, and its memory with all watches.
func BenchmarkWatches(b *testing.B) {
	const sessions, watches, engineer = 200, session.MaxWatches, "watcher"
	for b.Loop() {
		r := &hostedRegion{region: newRegion(b), mesh: meshtest.New(b)}
		r.handle(endless)
		k := newProgram(b, r, engineer)
		r.cluster(nil)
		id := func(i int) string { return fmt.Sprintf("a0000000-0000-4000-8000-%012d", i) }
		for i := range sessions {
			r.issue(id(i), r.request(id(i), engineer, func(v *database.AccessSessionDocument) { v.Owner.TenantID = entratest.Tenant }), 15*time.Minute)
		}
		k.start()
		for i := range sessions {
			eventually.Soon(b, "the session is ready", func() error {
				item, err := r.db.AccessSessions().Get(b.Context(), database.AccessSessionKey(clusterUID, id(i)))
				if err == nil && item.Value.State != database.AccessSessionReady {
					err = errors.New("its state is " + string(item.Value.State))
				}
				return err
			})
		}
		before := procfs.Resident(k.process.PID())
		ctx, cancel := context.WithCancel(b.Context())
		for i := range sessions {
			transport := k.client.Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2 = true
			k.client = &http.Client{Transport: transport}
			for range watches {
				response, err := k.send(ctx, id(i), http.MethodGet, "/api/v1/pods?watch=true", "")
				if err != nil || response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
					b.Fatalf("%v: %v", response, err)
				}
			}
			b.Cleanup(transport.CloseIdleConnections)
		}
		with := procfs.Resident(k.process.PID())
		b.ReportMetric(float64(with-before)/(1<<10)/(sessions*watches), "KiB/watch")
		b.ReportMetric(float64(with)/(1<<20), "MiB")
		cancel()
		k.process.Kill()
	}
}
