package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// clustersUnderFaults is the number of clusters. They are created and deleted until every process was killed.
const clustersUnderFaults = 20

// killInterval is the pause between two kills. It lets the region work, so that kills interrupt operations and not only starts.
const killInterval = 2 * time.Second

// TestNothingIsLostWhenProcessesDie creates, deletes and recreates clusters while every process of the region is killed in turn,
// Cosmos DB returns errors and the broker drops connections. Every accepted operation must become terminal. Nothing may be
// left over, exist twice or be mixed up between incarnations of a name.
func TestNothingIsLostWhenProcessesDie(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	ctx := withTimeout(t, 15*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000002", "faults")

	faults := injectFaults(t, ctx)
	everyCluster := func(what string, selected func(int) bool, do func(ctx context.Context, name string) error) {
		t.Helper()
		var work sync.WaitGroup
		for i := range clustersUnderFaults {
			if !selected(i) {
				continue
			}
			name := fmt.Sprintf("faulty-%02d", i)
			work.Go(func() {
				if err := do(ctx, name); err != nil {
					t.Errorf("%s %s: %v", what, name, err)
				}
			})
		}
		work.Wait()
		t.Logf("%s: done after %d kills", what, faults.kills.Load())
	}
	all := func(int) bool { return true }
	half := func(i int) bool { return i%2 == 0 }
	create := func(ctx context.Context, name string) error {
		if err := c.Ensure(ctx, c.ClusterID(name), c.ClusterBody(name)); err != nil {
			return err
		}
		return c.Ensure(ctx, c.NodePoolID(name, "workers"), c.NodePoolBody(1))
	}
	gone := func(ctx context.Context, name string) error { return c.EnsureGone(ctx, c.ClusterID(name)) }

	for round := 0; round == 0 || !faults.allKilled(); round++ {
		everyCluster("creating", all, create)
		if t.Failed() {
			break
		}
		onceEach(t, ctx, c)
		everyCluster("deleting", all, gone)
		everyCluster("creating again", half, create)
		everyCluster("deleting again", half, gone)
		if t.Failed() {
			break
		}
	}
	faults.end()
	nothingIsLeft(t, ctx, c)
}

// onceEach checks that every cluster exists exactly once on the management clusters together.
func onceEach(t *testing.T, ctx context.Context, c *customer.Customer) {
	t.Helper()
	eventually.Before(ctx, t, "each cluster exists once", func() error {
		found, err := inManagementClusters(ctx)
		if err != nil { // the API server may be the killed process
			return err
		}
		hosted := 0
		for _, object := range found {
			if strings.Contains(object, " hostedclusters ") {
				hosted++
			}
		}
		if hosted != clustersUnderFaults {
			return fmt.Errorf("%d HostedClusters for %d clusters", hosted, clustersUnderFaults)
		}
		return nil
	})
}

// faultInjection kills processes and injects faults until end is called.
type faultInjection struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	kills atomic.Int64
	// victims is the number of processes. Each round kills each of them once.
	victims int64
}

// injectFaults starts to kill the processes in turn, in an order that follows from the logged seed, and injects faults.
func injectFaults(t *testing.T, ctx context.Context) *faultInjection {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	order := rand.New(rand.NewPCG(seed, seed))
	names := region.Processes()
	running, stop := context.WithCancel(ctx)
	f := &faultInjection{stop: stop, victims: int64(len(names))}
	injectCosmosFaults(t, ctx)
	f.done.Go(func() {
		ticker := time.NewTicker(killInterval)
		defer ticker.Stop()
		for running.Err() == nil {
			order.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				select {
				case <-running.Done():
					return
				case <-ticker.C:
				}
				if err := region.Kill(ctx, name); err != nil {
					t.Errorf("killing %s: %v", name, err)
				}
				if err := region.AwaitReady(ctx, name); err != nil {
					t.Errorf("%s did not become ready: %v", name, err)
					return
				}
				f.kills.Add(1)
				switch name {
				case "cosmos-emulator": // the fault rules are lost with the process
					injectCosmosFaults(t, ctx)
				default:
					dropBrokerConnections(t, ctx)
				}
			}
		}
	})
	t.Cleanup(f.end)
	return f
}

// allKilled reports whether each process was killed at least once.
func (f *faultInjection) allKilled() bool { return f.kills.Load() >= f.victims }

// end stops killing, waits until all processes are ready and removes the faults.
func (f *faultInjection) end() {
	f.stop()
	f.done.Wait()
	_ = fault.Send(context.Background(), region.Endpoints(), http.MethodDelete, region.Endpoints().Cosmos+"/_emulator/faults", "", nil)
}

// injectCosmosFaults makes Cosmos DB return every kind of fault that a client must tolerate, with low probability.
func injectCosmosFaults(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, rule := range []map[string]any{
		{"id": "throttled", "status": 429, "retryAfterMs": 5, "probability": 0.05},
		{"id": "retry-with", "status": 449, "resourceTypes": []string{"docs"}, "methods": []string{"POST", "PUT", "DELETE"}, "probability": 0.03},
		{"id": "unavailable", "status": 503, "probability": 0.02},
		{"id": "slow", "latencyMs": 40, "probability": 0.05},
		{"id": "lost-response", "dropResponse": true, "probability": 0.03},
	} {
		if err := eventually.Repeat(ctx, func() error {
			return fault.Send(ctx, region.Endpoints(), http.MethodPost, region.Endpoints().Cosmos+"/_emulator/faults", "", rule)
		}); err != nil {
			t.Errorf("injecting the fault %s: %v", rule["id"], err)
		}
	}
}

// dropBrokerConnections closes every connection of the MQTT broker.
func dropBrokerConnections(t *testing.T, ctx context.Context) {
	if err := fault.Send(ctx, region.Endpoints(), http.MethodPost, region.Endpoints().MQTTFaults+"/faults/drop", "", nil); err != nil {
		t.Logf("dropping connections: %v", err) // a broker that is down has no connections
	}
}
