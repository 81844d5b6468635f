package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// clustersUnderFaults is how many clusters live through the bad day. They live as often as it takes to kill every process.
var clustersUnderFaults = flag.Int("bad-day-clusters", 8, "clusters of TestNothingIsLostWhateverDies; `make bad-day` has 20")

// breath is how long the region is left alone between two kills: it must get hit in the middle of its work, and not spend
// the day starting.
const breath = 2 * time.Second

// TestNothingIsLostWhateverDies lets customers create, delete, create again and delete clusters while every process of
// the region is killed in turn, Cosmos DB misbehaves and the broker drops connections. Whatever was accepted must end,
// and nothing may be left, doubled or mixed up between the incarnations of a name.
func TestNothingIsLostWhateverDies(t *testing.T) {
	needsRegion(t)
	ctx := patience(t, 15*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000002", "badday")

	badDay := beginBadDay(t, ctx)
	everyCluster := func(what string, selected func(int) bool, do func(ctx context.Context, name string) error) {
		t.Helper()
		var work sync.WaitGroup
		for i := range *clustersUnderFaults {
			if !selected(i) {
				continue
			}
			name := fmt.Sprintf("storm-%02d", i)
			work.Go(func() {
				if err := do(ctx, name); err != nil {
					t.Errorf("%s %s: %v", what, name, err)
				}
			})
		}
		work.Wait()
		t.Logf("%s: done after %d kills", what, badDay.kills.Load())
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

	for round := 0; round == 0 || !badDay.everybodyDied(); round++ {
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
	badDay.end()
	nothingIsLeft(t, ctx, c)
}

// onceEach checks that every cluster exists exactly once on the management clusters together.
func onceEach(t *testing.T, ctx context.Context, c *customer.Customer) {
	t.Helper()
	eventually.Before(ctx, t, "each cluster is there once", func() error {
		found, err := inManagementClusters(ctx)
		if err != nil { // an API server may be the process that is being killed
			return err
		}
		hosted := 0
		for _, thing := range found {
			if strings.Contains(thing, " hostedclusters ") {
				hosted++
			}
		}
		if hosted != *clustersUnderFaults {
			return fmt.Errorf("%d HostedClusters for %d clusters", hosted, *clustersUnderFaults)
		}
		return nil
	})
}

// badDay is everything that goes wrong, until its end.
type badDay struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	kills atomic.Int64
	// victims is how many processes there are; each round kills each of them once.
	victims int64
}

// beginBadDay kills the processes in turn, in an order that the logged seed gives, and injects faults.
func beginBadDay(t *testing.T, ctx context.Context) *badDay {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	order := rand.New(rand.NewPCG(seed, seed))
	names := region.Processes()
	running, stop := context.WithCancel(ctx)
	day := &badDay{stop: stop, victims: int64(len(names))}
	injectCosmosFaults(t, ctx)
	day.done.Go(func() {
		breathe := time.NewTicker(breath)
		defer breathe.Stop()
		for running.Err() == nil {
			order.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				select {
				case <-running.Done():
					return
				case <-breathe.C:
				}
				if err := region.Kill(ctx, name); err != nil {
					t.Errorf("killing %s: %v", name, err)
				}
				if err := region.AwaitReady(ctx, name); err != nil {
					t.Errorf("%s did not come back: %v", name, err)
					return
				}
				day.kills.Add(1)
				switch name {
				case "cosmos-emulator": // its rules died with it
					injectCosmosFaults(t, ctx)
				default:
					dropBrokerConnections(t, ctx)
				}
			}
		}
	})
	t.Cleanup(day.end)
	return day
}

// everybodyDied reports whether each process was killed at least once.
func (d *badDay) everybodyDied() bool { return d.kills.Load() >= d.victims }

// end stops the killing, waits until all is up again and takes the faults away.
func (d *badDay) end() {
	d.stop()
	d.done.Wait()
	_ = control(context.Background(), http.MethodDelete, region.Endpoints().Cosmos+"/_emulator/faults", nil)
}

// injectCosmosFaults makes Cosmos DB misbehave in every way a client must live with, now and then.
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
			return control(ctx, http.MethodPost, region.Endpoints().Cosmos+"/_emulator/faults", rule)
		}); err != nil {
			t.Errorf("the fault %s cannot be injected: %v", rule["id"], err)
		}
	}
}

// dropBrokerConnections cuts every connection at the MQTT broker.
func dropBrokerConnections(t *testing.T, ctx context.Context) {
	if err := control(ctx, http.MethodPost, region.Endpoints().MQTTFaults+"/faults/drop", nil); err != nil {
		t.Logf("dropping connections: %v", err) // the broker may be down: then they are dropped indeed
	}
}

// control speaks to an emulator's control endpoint; the emulators' certificates are the region's.
func control(ctx context.Context, method, url string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	client, err := customer.NewHTTPClient(region.Endpoints().CAFile)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return nil
}
