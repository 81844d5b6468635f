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
	"fmt"
	"io"
	"math/big"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "direct"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, r.signer, &key.PublicKey, r.key)
	if err != nil {
		r.t.Fatal(err)
	}
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
		if err := read(b.Context(), direct, r.endpoint+readPath); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		if err := read(b.Context(), through, g.url+alicePath+readPath); err != nil {
			b.Fatal(err)
		}
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

// BenchmarkWatches opens 10 watches, the limit, in each of 200 sessions. It reports the memory of a watch, with its client and the API server, which are
// in the same process: an upper bound of the gateway's.
func BenchmarkWatches(b *testing.B) {
	const sessions, watches = 200, 10
	for b.Loop() {
		r := newRegion(b)
		r.cluster(nil)
		r.handle(endless)
		id := func(i int) string { return fmt.Sprintf("a0000000-0000-4000-8000-%012d", i) }
		for i := range sessions {
			r.issue(id(i), r.request(id(i), "alice", nil), 15*time.Minute)
		}
		g := r.start()
		for i := range sessions {
			g.await(id(i), database.AccessSessionReady)
		}
		before := memory()
		var bodies []io.Closer
		for i := range sessions {
			for range watches {
				_, body := g.watch("/sessions/" + id(i) + "/kas/api/v1/pods?watch=true")
				bodies = append(bodies, body)
			}
		}
		b.ReportMetric(float64(memory()-before)/(1<<10)/(sessions*watches), "KiB/watch")
		for _, body := range bodies {
			_ = body.Close()
		}
		g.stop()
	}
}

// memory returns the bytes of the heap and of stacks that are in use.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse + stats.StackInuse)
}
