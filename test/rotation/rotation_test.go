// Package rotation replaces the keys and the authority of a running region while its certificates are renewed, and customers create, read
// and delete clusters. No call may fail that a published client would not repeat by itself.
package rotation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// rotations is the number of replacements of the authority of the services.
const rotations = 10

// writers is the number of clusters that come and go at the same time.
const writers = 2

// restarts are those that the replacement of the authorities of etcd and of the management cluster needs.
var restarts = map[string]int{
	"etcd": 2, shard + "-kube-apiserver": 2, shard + "-controllers": 2, shard + "-hypershift-runtime": 4, shard + "-maestro-agent": 2,
	shard + "-egress-proxy": 2, shard + "-monitor-inside": 2, shard + "-log-forwarder": 2, shard + "-gateway-tunnel": 2,
}

// load is a customer and an SRE who call the region until they are stopped.
type load struct {
	t        *testing.T
	region   *local.Region
	customer *customer.Customer
	stopping atomic.Bool
	running  sync.WaitGroup

	// cycles counts the lives of clusters of each writer, reads the successful reads of the customer, and asked those of the SRE.
	cycles      [writers]atomic.Int64
	reads, asks atomic.Int64
}

// start begins the load. The context must outlive it.
func (l *load) start(ctx context.Context) {
	for i := range writers {
		l.repeat(fmt.Sprintf("the life of cluster %d", i), func() error { return l.live(ctx, i) })
	}
	l.repeat("a read of the customer", func() error {
		_, err := l.customer.List(ctx, l.customer.GroupID()+"/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters")
		l.reads.Add(1)
		return err
	})
	l.repeat("a read of the SRE", func() error {
		sre, err := customer.NewEngineer(l.region.Endpoints(), "reader")
		if err != nil {
			return err
		}
		defer sre.CloseIdleConnections()
		_, err = adminclient.Get(ctx, sre, adminv1.ReadShards, nil)
		l.asks.Add(1)
		return err
	})
}

// repeat calls f until the load stops or f fails, which fails the test.
func (l *load) repeat(what string, f func() error) {
	l.running.Go(func() {
		for !l.stopping.Load() {
			if err := f(); err != nil {
				l.t.Errorf("%s: %v", what, err)
				return
			}
		}
	})
}

func (l *load) live(ctx context.Context, writer int) error {
	name := fmt.Sprintf("r%d-%d", writer, l.cycles[writer].Load())
	id := l.customer.ClusterID(name)
	if _, err := l.customer.Put(ctx, id, l.customer.ClusterBody(name)); err != nil {
		return err
	}
	if err := l.customer.Delete(ctx, id); err != nil {
		return err
	}
	l.cycles[writer].Add(1)
	return nil
}

func (l *load) stop() {
	l.stopping.Store(true)
	l.running.Wait()
}

// awaitProgress returns when a cluster of each writer was created and deleted from now on, and both have read.
func (l *load) awaitProgress() {
	l.t.Helper()
	var before [writers]int64
	for i := range writers {
		before[i] = l.cycles[i].Load()
	}
	reads, asks := l.reads.Load(), l.asks.Load()
	eventually.Soon(l.t, "clusters come and go", func() error {
		for i := range writers {

			if now := l.cycles[i].Load(); now < before[i]+2 && !l.t.Failed() {
				return fmt.Errorf("writer %d: %d of 2 lives", i, now-before[i])
			}
		}
		if (l.reads.Load() < reads+2 || l.asks.Load() < asks+2) && !l.t.Failed() {
			return fmt.Errorf("the reads have stopped")
		}
		return nil
	})
}

// TestEverythingRotatesWhileClustersComeAndGo runs `hcpctl keys rotate` for all kinds of keys at once and `hcpctl region ca rotate`
// for the authority of the services, and renews the certificates under load. It does the same for etcd and the
// management cluster. Then it verifies the audit.
func TestEverythingRotatesWhileClustersComeAndGo(t *testing.T) {
	nightly.Only(t)
	test.DependOnCode(t)
	ctx, scale := t.Context(), 0.002
	started := fault.Start(t, ctx, local.Config{TimeScale: &scale, ManagementClusters: 1, Build: test.BuildRegion()})
	region, dir := started.Region, started.Dir
	c := must.Get(customer.New(ctx, region.Endpoints(), "11111111-0000-0000-0000-0000000000b0", "rotation"))(t)
	defer func() { _ = c.Close() }()
	c.FastPolling = true

	awaitEtcd := rotateEtcd(ctx, t, c, dir)
	l := &load{t: t, region: region, customer: c}
	l.start(ctx)
	defer l.stop()
	l.awaitProgress()
	former := startAudit(ctx, t, region, dir)
	rotateKeys(ctx, t, dir)
	l.awaitProgress()
	renew(ctx, t, region)
	l.awaitProgress()
	for range rotations {
		previous := readCA(t, region)
		run(ctx, t, "region", "ca", "rotate", "--state-dir", dir)
		checkIdentities(t, region, previous)
		l.awaitProgress()
	}
	renew(ctx, t, region)
	l.awaitProgress()
	awaitEtcd()
	for _, authority := range []string{local.EtcdAuthority, shard} {
		run(ctx, t, "region", "ca", "rotate", authority, "--state-dir", dir)
		l.awaitProgress()
	}
	l.stop()

	status := region.Status()
	for _, process := range status.Processes {
		if want := restarts[process.Name]; process.Restarts != want {
			t.Errorf("%s was restarted %d times, want %d", process.Name, process.Restarts, want)
		}
	}
	if status.Certificates.Error != "" || len(status.Certificates.Rotations) > 0 {
		t.Errorf("certificates: %+v", status.Certificates)
	}
	former.check(ctx, t, region)
	t.Logf("lives of clusters: %d and %d; lists of the customer: %d; requests of the SRE: %d", l.cycles[0].Load(), l.cycles[1].Load(), l.reads.Load(), l.asks.Load())
}

func readCA(t *testing.T, region *local.Region) []byte {
	t.Helper()
	return must.Get(os.ReadFile(region.Endpoints().CAFile))(t)
}

// checkIdentities checks that all processes have certificates of the current authority, and trust no other one.
func checkIdentities(t *testing.T, region *local.Region, previous []byte) {
	t.Helper()
	current := readCA(t, region)
	if bytes.Contains(current, previous) || bytes.Count(current, []byte("BEGIN CERTIFICATE")) != 1 {
		t.Fatal("the previous authority is still trusted")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(current)
	for name, dir := range region.Endpoints().Identities {
		text := must.Get(os.ReadFile(filepath.Join(dir, mesh.CertificateFile)))(t)
		block, _ := pem.Decode(text)
		certificate := must.Get(x509.ParseCertificate(block.Bytes))(t)
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("the certificate of %s: %v", name, err)
		}
	}
}

var metric = regexp.MustCompile(`(?m)^workload_certificate_end_seconds (\S+)$`)

// renew renews the certificates, and waits until all processes use new ones.
func renew(ctx context.Context, t *testing.T, region *local.Region) {
	t.Helper()
	end := region.Status().Certificates.End
	eventually.Soon(t, "the certificates are renewed", func() error {
		if err := region.RenewCertificates(ctx); err != nil {
			return err
		}
		// The end of a certificate has no fractions of a second.
		if now := region.Status().Certificates.End; now.Unix() == end.Unix() {
			return fmt.Errorf("they end in the same second, %s", now)
		}
		return nil
	})
	eventually.Soon(t, "all processes use the renewed certificates", func() error { return renewed(ctx, region, end) })
}

// renewed returns an error unless the certificate that each process uses ends after a time, according to its metrics.
func renewed(ctx context.Context, region *local.Region, end time.Time) error {
	for name, address := range region.Endpoints().Ops {
		if name == "mgmt-1-hypershift-runtime" || name == "mgmt-1-management-audit" || name == "mgmt-1-egress-proxy" || name == "mgmt-1-monitor-inside" || name == "mgmt-1-log-forwarder" || name == "mgmt-1-gateway-tunnel" || name == "gateway-egress" {
			continue // They call no other service: the first only Kubernetes API servers and etcd, the last only Cosmos DB. The proxy has an authority of its own.
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return err
		}
		found := metric.FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("%s does not export the end of its certificate", name)
		}
		at, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if at <= float64(end.Unix()) {
			return fmt.Errorf("the certificate of %s ends at %v", name, at)
		}
	}
	return nil
}
