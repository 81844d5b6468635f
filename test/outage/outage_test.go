// Package outage stops real processes of a region one after the other, while operations of a customer are in flight, and checks
// that explanations name the component that is away.
package outage

import (
	"context"
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/sources"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

var all = flag.Bool("outages-all", false, "stop every process that clusters depend on, not only some")

// deadline bounds each wait, on a busy machine.
const deadline = 3 * time.Minute

// target is a process with the layer that explanations must name while the process is stopped.
type target struct {
	process, layer string
	// always is true for the targets of the slice that runs without -outages-all.
	always bool
	// rejects is true if no request of a customer is accepted meanwhile.
	rejects bool
}

var targets = []target{
	{process: "backend", layer: adminv1.ComponentBackend, always: true},
	{process: "mgmt-1-maestro-agent", layer: adminv1.ComponentAgent, always: true},
	{process: "cosmos-emulator", layer: adminv1.ComponentCosmosDB, always: true, rejects: true},
	{process: "postgres", layer: adminv1.ComponentPostgreSQL},
	{process: "cluster-service", layer: adminv1.ComponentClusterService},
	{process: "maestro-server", layer: adminv1.ComponentMaestroServer},
	{process: "eventgrid-emulator", layer: adminv1.ComponentMQTTBroker},
	{process: "mgmt-1-hypershift-runtime", layer: adminv1.ComponentHyperShift},
	{process: "mgmt-1-kube-apiserver", layer: adminv1.ComponentManagementAPI},
	{process: "etcd", layer: adminv1.ComponentEtcd},
}

// region is a running region with a customer and an SRE.
type region struct {
	*local.Region
	customer *customer.Customer
	sre      *adminclient.Client
}

func startRegion(t *testing.T, ctx context.Context) *region {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
		t.Fatal(err)
	}
	timeScale, freePorts := 0.002, 0
	running, err := local.Start(ctx, local.Config{StateDir: dir, BasePort: &freePorts, TimeScale: &timeScale, ManagementClusters: 1, Build: true, Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Close)
	e := running.Endpoints()
	r := &region{Region: running}
	if r.customer, err = customer.New(ctx, e, "11111111-0000-0000-0000-0000000000a0", "outages"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.customer.Close() })
	r.sre, err = adminclient.New(adminclient.Options{Endpoint: e.Admin, Authority: e.ARM, CAFile: e.CAFile, CredentialsFile: e.EngineersFile, Engineer: "reader", Audience: e.AdminAudience})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOutagesOfProcesses stops one process after the other with SIGSTOP. Meanwhile a customer creates a cluster, scales a node pool
// and deletes a cluster. The explanation of each cluster, and of the region, names the component. After SIGCONT all operations
// succeed.
func TestOutagesOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the whole region; run without -short")
	}
	sources.DependOnAll(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	r := startRegion(t, ctx)
	c := r.customer
	for _, id := range []string{c.ClusterID("quiet"), c.ClusterID("scaled"), c.ClusterID("old-0")} {
		if _, err := c.Put(ctx, id, c.ClusterBody(id[len(c.ClusterID("")):])); err != nil {
			t.Fatal(err)
		}
	}
	pool := c.NodePoolID("scaled", "np")
	if _, err := c.Put(ctx, pool, c.NodePoolBody(1)); err != nil {
		t.Fatal(err)
	}
	old := "old-0"
	for i, target := range targets {
		if !*all && !target.always {
			continue
		}
		next := fmt.Sprintf("old-%d", i+1)
		if !t.Run(target.process, func(t *testing.T) { r.checkOutage(t, ctx, target, pool, old, next, i+2) }) {
			return // the next outage would begin in an unknown state
		}
		if !target.rejects {
			old = next
		}
	}
}

// checkOutage stops a process, scales the node pool to a size, deletes the cluster old and creates the cluster next.
func (r *region) checkOutage(t *testing.T, ctx context.Context, target target, pool, old, next string, size int) {
	c := r.customer
	if err := r.Signal(target.process, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			_ = r.Signal(target.process, syscall.SIGCONT)
		}
	}
	defer resume()
	clusters := []string{c.ClusterID("quiet")}
	if !target.rejects {
		clusters = append(clusters, c.ClusterID("scaled"), c.ClusterID(old), c.ClusterID(next))
		if _, err := c.Resources.BeginCreateOrUpdateByID(ctx, pool, customer.APIVersion, c.NodePoolBody(size), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Resources.BeginDeleteByID(ctx, c.ClusterID(old), customer.APIVersion, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Resources.BeginCreateOrUpdateByID(ctx, c.ClusterID(next), customer.APIVersion, c.ClusterBody(next), nil); err != nil {
			t.Fatal(err)
		}
	}
	var checks errgroup.Group
	for _, id := range clusters {
		checks.Go(func() error {
			// Cluster Service places a new cluster within moments; until then it depends on no management cluster.
			bounded, cancel := context.WithTimeout(ctx, 8*time.Second)
			defer cancel()
			return eventually.Repeat(bounded, func() error {
				began := time.Now()
				explained, err := r.sre.Explanation(ctx, id)
				if err != nil {
					return err
				}
				t.Logf("%s: %s, after %s", id[len(c.ClusterID("")):], explained.Items[0].Summary.Text, time.Since(began).Round(time.Millisecond))
				return named(explained.Items, target, explained.Text())
			})
		})
	}
	checks.Go(func() error {
		explained, err := r.sre.RegionExplanation(ctx)
		if err != nil {
			return err
		}
		return named(explained.Items, target, explained.Text())
	})
	if err := checks.Wait(); err != nil {
		t.Error(err)
	}
	resume()
	if err := r.AwaitReady(ctx, target.process); err != nil {
		t.Fatal(err)
	}
	// What was in flight ends well, and nothing is called away any more.
	eventually.Holds(t, deadline, "all clusters are ready after the outage", func() error {
		for _, id := range clusters {
			explained, err := r.sre.Explanation(ctx, id)
			if err != nil {
				return err
			}
			if code := explained.Items[0].Code; code != adminv1.ExplanationReady && (id != c.ClusterID(old) || code != adminv1.ExplanationDeleted) {
				return fmt.Errorf("%s:\n%s", id, explained.Text())
			}
		}
		return nil
	})
}

// named reports whether the first item names the layer of a target, and no item asks the customer or Azure to act.
func named(items []adminv1.ExplanationItem, target target, text string) error {
	if first := items[0]; first.Code != adminv1.ExplanationLayerAway || first.Layer != target.layer || first.Responsible != adminv1.PartySRE {
		return fmt.Errorf("%s is stopped, but the explanation is %s %s:\n%s", target.process, first.Code, first.Layer, text)
	}
	for _, item := range items {
		if item.Responsible == adminv1.PartyCustomer || item.Responsible == adminv1.PartyAzure || item.Code == adminv1.ExplanationReady {
			return fmt.Errorf("%s is stopped, but %s is responsible for %s:\n%s", target.process, item.Responsible, item.Code, text)
		}
	}
	return nil
}
