package skew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test"
)

// region is a local region with its previous release.
type region struct {
	*local.Region
	config  local.Config
	release Release
	// previous is the folder of the programs of the release; empty if the test does not use them.
	previous string
	// absent are the processes that the region does not have because the release does not know them.
	absent []string
}

// newest returns the checkout and its newest release.
func newest(t *testing.T) (source string, release Release) {
	t.Helper()
	source = must.Get(local.FindSource())(t)
	release = must.Get(NewestRelease(source))(t)
	return source, release
}

// newRegion returns a region that does not run yet, in a new state folder, which is kept if the test fails.
func newRegion(t *testing.T) *region {
	t.Helper()
	test.DependOnCode(t)
	source, release := newest(t)
	dir := must.Get(os.MkdirTemp("", "hcpmesh-skew-"))(t)
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
		t.Fatal(err)
	}
	timeScale, freePorts := 0.002, 0
	r := &region{release: release, config: local.Config{
		StateDir: dir, SourceDir: source, BasePort: &freePorts, TimeScale: &timeScale, ManagementClusters: 1, Throwaway: true,
		OnNote: func(note string) { fmt.Fprintln(os.Stderr, note) },
	}}
	t.Cleanup(func() {
		if r.Region != nil {
			r.Close()
		}
		if t.Failed() {
			t.Logf("the region's logs are in %s", filepath.Join(dir, "logs"))
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

// build builds the programs of the release.
func (r *region) build(t *testing.T, ctx context.Context) {
	t.Helper()
	r.previous = must.Get(BuildRelease(ctx, r.config.SourceDir, r.release, programs()))(t)
}

// restore creates the data of the release.
func (r *region) restore(t *testing.T, ctx context.Context) {
	t.Helper()
	began := time.Now()
	must.Do(t, RestoreSnapshot(ctx, r.config, filepath.Join(r.config.SourceDir, filepath.FromSlash(r.release.Data))))
	t.Logf("restored the data of release %s after %s", r.release.Name, time.Since(began).Round(time.Millisecond))
}

// start starts the region with the programs of the release if build was called, otherwise with those of the checkout.
func (r *region) start(t *testing.T, ctx context.Context) {
	t.Helper()
	config := r.config
	config.Build = test.BuildRegion()
	if r.previous != "" {
		config.Programs = with(r.previous)
		// Its Cluster Service rejects the calls of workloads that it does not know, and its admin knows no gateways.
		r.absent = []string{"monitor", "gateway-access", "gateway-egress"}
		config.Without = r.absent
	}
	began := time.Now()
	started := must.Get(local.Start(ctx, config))(t)
	r.Region = started
	t.Logf("the region is ready after %s", time.Since(began).Round(time.Millisecond))
}

// awaitConsistent waits until Cosmos DB and Cluster Service have the same resources in the same states.
func (r *region) awaitConsistent(t *testing.T, ctx context.Context) {
	t.Helper()
	endpoints := r.Endpoints()
	db := must.Get(endpoints.OpenStore(ctx, "backend"))(t)
	defer db.Close()
	identity := must.Get(mesh.LoadIdentity(endpoints.Identities[string(mesh.Backend)]))(t)
	connection := must.Get(grpc.NewClient(endpoints.ClusterService, grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService)))))(t)
	defer func() { _ = connection.Close() }()
	inventory := reconciliation.FleetInventory{Client: csv1.NewClusterServiceClient(connection)}
	eventually.Soon(t, "Cosmos DB and Cluster Service agree", func() error {
		var drifts []error
		_, err := reconciliation.Compare(ctx, db, inventory, reconciliation.Options{}, func(d reconciliation.Drift) error {
			drifts = append(drifts, fmt.Errorf("%s: %s", d.Key.ResourceID, d.Type))
			return nil
		})
		return errors.Join(append(drifts, err)...)
	})
}
