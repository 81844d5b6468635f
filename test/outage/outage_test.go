// Package outage makes each component of a region unavailable in each way that it can be, while operations of a customer are in
// flight, and checks that explanations name the component that is away. Package fault has the components and the faults, and matrix_test.go the
// operations and the reasons why a combination is left out.
package outage

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// timeScale makes operations long enough to be in flight when a fault begins: a creation takes 3 seconds.
const timeScale = 0.01

// region is a running region with a customer and an SRE.
type region struct {
	*fault.Region
	customer *customer.Customer
	sre      *adminclient.Client
	flights
	results results
}

// startRegion starts a region in a folder, or in one of its own.
func startRegion(t *testing.T, ctx context.Context, dir string) *region {
	t.Helper()
	scale := timeScale
	r := &region{Region: fault.Start(t, ctx, local.Config{StateDir: dir, TimeScale: &scale, ManagementClusters: 1, Build: test.BuildRegion()})}
	e := r.Endpoints()
	r.customer = must.Get(customer.New(ctx, e, "11111111-0000-0000-0000-0000000000a0", "outages"))(t)
	t.Cleanup(func() { _ = r.customer.Close() })
	r.sre = must.Get(customer.NewEngineer(e, "reader"))(t)
	r.flights = flights{old: "old-0", size: 1, key: 1}
	var created errgroup.Group
	for _, name := range []string{quiet, update, scaling, r.old} {
		created.Go(func() error {
			body := r.customer.ClusterBody(name)
			if name == update { // the first version on which the update, a rotation of the key, is possible
				body.Properties.(map[string]any)["version"] = map[string]any{"id": "4.22", "channelGroup": "stable"}
			}
			_, err := r.customer.Put(ctx, r.customer.ClusterID(name), body)
			return err
		})
	}
	must.Do(t, created.Wait())
	must.Get(r.customer.Put(ctx, r.customer.NodePoolID(scaling, poolName), r.customer.NodePoolBody(r.size)))(t)
	t.Cleanup(func() { t.Logf("\n%s", r.results.table()) })
	return r
}

// TestOutagesOfProcesses makes one component after the other hang, and then terminates it and keeps it from being restarted.
func TestOutagesOfProcesses(t *testing.T) {
	nightly.Only(t)
	test.DependOnCode(t)
	startRegion(t, t.Context(), "").tryAll(t, t.Context(), fault.Hung, fault.Terminated)
}

// TestOutagesOfDisks fills the disk of one database after the other. Each has a small disk of its own.
func TestOutagesOfDisks(t *testing.T) {
	nightly.Only(t)
	test.DependOnCode(t)
	smalldisk.Run(t, 512<<20, func(t *testing.T, dir string) {
		for _, c := range fault.Components() {
			if c.Disk != "" {
				smalldisk.Mount(t, filepath.Join(dir, c.Disk), c.DiskSize)
			}
		}
		// PostgreSQL renames its data folder, which a mount point does not allow.
		record, err := json.Marshal(map[string]string{"postgresDir": filepath.Join(dir, fault.PostgresDisk, "postgres")})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "region.json"), record, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		startRegion(t, t.Context(), dir).tryAll(t, t.Context(), fault.DiskFull)
	})
}

// tryAll tests faults of all components. It stops when the region does not recover, because the
// next outage would begin in an unknown state.
func (r *region) tryAll(t *testing.T, ctx context.Context, kinds ...fault.Kind) {
	t.Helper()
	for _, k := range kinds {
		for _, c := range fault.Components() {
			if reason := omitted(c, k); reason != "" {
				r.results.omit(c, k, reason)
				continue
			}
			recovered := true // stays true if -run does not select the test
			t.Run(c.Layer+" "+string(k), func(t *testing.T) {
				recovered = false
				r.try(t, ctx, c, k, func() { recovered = true })
			})
			if !recovered {
				return
			}
		}
	}
	if r.results.tested() == 0 {
		t.Error("no fault was tested")
	}
}
