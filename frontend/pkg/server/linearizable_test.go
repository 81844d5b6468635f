package server_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var linearizableOps = flag.Int("linearizable-ops", 1500, "`number` of operations of TestLinearizable, at least")

// The size of TestLinearizable. Clients use new slots in each epoch, so that the histories stay short enough to check.
const (
	epochOperations = 1500
	epochClients    = 6
	epochClusters   = 3
	epochAuths      = 2
)

// TestLinearizable: clients concurrently create, replace, patch, read and delete a few clusters and external
// authentications. The store loses responses and is busy at times, one of its replicas lags, and frontends are killed. The changes of each
// resource have one order in which every response is correct, and a cluster has at most one external authentication at
// any time.
//
// The test detects each of these defects: a blind write, without the ETag condition in attempt of
// internal/database/commit.go; preconditions that ignore If-Match; externalAuthType.reservations without the
// reservation; an account and a database.ConsistencyLevel of Session. A run of 100,000 on a busy machine found a commit with an unknown outcome that was decided again
// (TestLostResponseAndNoAnswer in internal/database).
func TestLinearizable(t *testing.T) {
	t.Parallel()
	var config server.Config
	h := newHarness(t, func(c *server.Config) { config = *c })
	y := h.newSubscription(t)
	epochs := max(1, (*linearizableOps+epochOperations-1)/epochOperations)
	for epoch := range epochs {
		for i := range epochAuths {
			y.createCluster(homeOf(epoch, i))
		}
	}
	probability, staleProbability := 0.02, 0.2
	for _, rule := range []faults.Rule{
		{Operations: []string{"batch"}, DropResponse: true, Probability: &probability},
		{Operations: []string{"batch"}, Status: 449, Probability: &probability},
		{Status: 429, RetryAfterMS: 1, Probability: &probability},
		{Operations: []string{"read", "query", "list"}, StaleRead: true, Probability: &staleProbability},
	} {
		must.Get(h.faults.Add(rule))(t)
	}
	frontends := &killableFrontend{config: config}
	frontends.kill()
	counts := map[string]int{}
	total := 0
	for epoch := range epochs {
		history := y.record(t, frontends, epoch, *linearizableOps/epochs)
		for _, operation := range history {
			counts[fmt.Sprintf("%s %d", operation.Input.(action).verb, operation.Output.(outcome).status)]++
		}
		total += len(history)
		result, found := porcupine.CheckOperationsVerbose(model(), history, 0)
		if result != porcupine.Ok {
			t.Errorf("the history of epoch %d is not linearizable: %s", epoch, result)
			explain(t, history, found)
			break
		}
	}
	h.faults.Clear()
	frontends.kill()
	t.Logf("%d operations, %d frontends killed: %v", total, frontends.killed, counts)
	y.documents().check(t)
}

// homeOf returns the name of a cluster for external authentications.
func homeOf(epoch, i int) string { return fmt.Sprintf("home-%d-%d", epoch, i) }

// record runs the clients on the slots of an epoch.
func (y *testSubscription) record(t *testing.T, frontends *killableFrontend, epoch, operations int) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	began := time.Now()
	var wg sync.WaitGroup
	for client := range epochClients {
		seed := rand.Uint64()
		t.Logf("client %d of epoch %d has the seed %d", client, epoch, seed)
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, seed))
			etags := map[string]string{}
			for i := range operations / epochClients {
				if random.IntN(100) == 0 {
					frontends.kill()
				}
				a := pick(random, etags, fmt.Sprintf("%d-%d", client, i), epoch)
				call := time.Since(began)
				o := y.act(frontends, a)
				returned := time.Since(began)
				if o.status == 0 {
					// The request may take effect at any later time.
					returned = time.Hour
				}
				if o.etag != "" {
					etags[a.name] = o.etag
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: a, Output: o, Call: int64(call), Return: int64(returned)})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

// killableFrontend is a frontend that can be killed. Its requests in progress are cut off, and a new frontend without state
// replaces it.
type killableFrontend struct {
	config server.Config

	mu      sync.Mutex
	handler http.Handler
	life    context.Context
	end     context.CancelFunc
	killed  int
}

func (m *killableFrontend) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end != nil {
		m.end()
		m.killed++
	}
	m.config.Metrics = prometheus.NewRegistry()
	m.handler = server.New(m.config)
	m.life, m.end = context.WithCancel(context.Background())
}

// serve handles a request. A request that is cut off gets status 503, as from a front door.
func (m *killableFrontend) serve(request *http.Request) *httptest.ResponseRecorder {
	m.mu.Lock()
	handler, life := m.handler, m.life
	m.mu.Unlock()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request.WithContext(life))
	if life.Err() != nil {
		recorder = httptest.NewRecorder()
		recorder.WriteHeader(http.StatusServiceUnavailable)
	}
	return recorder
}

// explain logs where the longest partial orders of each slot's history end.
func explain(t *testing.T, history []porcupine.Operation, found porcupine.LinearizationInfo) {
	t.Helper()
	for _, attempts := range found.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, attempt := range attempts {
			if len(attempt) > len(longest) {
				longest = attempt
			}
		}
		if len(longest) == 0 {
			continue
		}
		name := longest[0].Input.(action).slot
		placed := map[string]bool{}
		key := func(o porcupine.Operation) string { return fmt.Sprintf("%d at %d", o.ClientId, o.Call) }
		for _, operation := range longest {
			placed[key(operation)] = true
		}
		var left []porcupine.Operation
		for _, operation := range history {
			if operation.Input.(action).slot == name && !placed[key(operation)] {
				left = append(left, operation)
			}
		}
		if len(left) == 0 {
			continue
		}
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, operation := range longest[max(0, len(longest)-12):] {
			t.Logf("%s: in order  %v", name, line(operation))
		}
		for _, operation := range left[:min(len(left), 12)] {
			t.Logf("%s: not in order %v", name, line(operation))
		}
	}
}

func line(o porcupine.Operation) string {
	return fmt.Sprintf("client %d, %v to %v: %+v answered %+v", o.ClientId, time.Duration(o.Call), time.Duration(o.Return), o.Input, o.Output)
}

func pick(random *rand.Rand, etags map[string]string, value string, epoch int) action {
	a := action{value: value}
	if n := random.IntN(epochClusters + epochAuths); n < epochClusters {
		a.name = fmt.Sprintf("cluster-%d-%d", epoch, n)
		a.slot = a.name
	} else {
		a.slot = homeOf(epoch, n-epochClusters)
		a.name = a.slot + "/externalAuths/" + []string{"one", "two"}[random.IntN(2)]
	}
	switch n := random.IntN(100); {
	case n < 30:
		a.verb = http.MethodGet
	case n < 45:
		a.verb = http.MethodPut
	case n < 65:
		a.verb = http.MethodPatch
		if random.IntN(2) == 0 {
			a.ifMatch = etags[a.name]
		}
	case n < 70:
		a.verb = http.MethodDelete
	default:
		a.verb = finishVerb
	}
	return a
}

// act executes an action.
func (y *testSubscription) act(frontends *killableFrontend, a action) outcome {
	if a.verb == finishVerb {
		finished, err := y.finishSlot(context.Background(), a.slot)
		if err != nil {
			return outcome{}
		}
		return outcome{status: http.StatusOK, state: string(finished)}
	}
	body, headers := "", []string{}
	auth := a.name != a.slot
	switch {
	case a.verb == http.MethodPut && auth:
		body = y.body("external-auth.json", claimed(a.value))
	case a.verb == http.MethodPut:
		body = y.body("cluster.json", strings.TrimSuffix(y.platformPatch(a.name), "}")+`,"tags":{"value":"`+a.value+`"}}`)
	case a.verb == http.MethodPatch && auth:
		body = claimed(a.value)
	case a.verb == http.MethodPatch:
		body = `{"tags":{"value":"` + a.value + `"}}`
	}
	if a.ifMatch != "" {
		headers = append(headers, "If-Match", a.ifMatch)
	}
	recorder := frontends.serve(y.request(a.verb, y.cluster(a.name), body, headers...))
	return outcomeOf(recorder.Code, recorder.Header(), recorder.Body.String())
}

// claimed returns a patch that gives an external authentication a value.
func claimed(value string) string {
	return `{"properties":{"claim":{"mappings":{"username":{"claim":"` + value + `"}}}}}`
}

// finishSlot finishes the operation of the resource in a slot, as the backend does. It returns the state before, or the
// empty string if there was no operation.
func (y *testSubscription) finishSlot(ctx context.Context, slot string) (hub.ProvisioningState, error) {
	var was hub.ProvisioningState
	err := database.Retry(ctx, func(ctx context.Context) error {
		state, active, err := y.stateOf(ctx, slot)
		was = ""
		if err != nil || active == "" {
			return err
		}
		done, err := y.db.Operations().Get(ctx, database.OperationKey(y.subscription, location, active))
		if err != nil || done.Value.Status.Terminal() {
			// Another client finished it first.
			return err
		}
		was = state
		return y.finishOperation(ctx, done)
	})
	return was, err
}

// stateOf returns the state of the resource in a slot and its active operation; both are empty if there is none.
func (y *testSubscription) stateOf(ctx context.Context, slot string) (state hub.ProvisioningState, active string, err error) {
	if strings.HasPrefix(slot, "cluster-") {
		item, err := y.db.Clusters().Find(ctx, database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster(slot)})
		if err != nil || item == nil || item.Removed != nil {
			return "", "", err
		}
		return item.Value.ProvisioningState, item.Value.ActiveOperationID, nil
	}
	err = y.db.ExternalAuths().ForEach(ctx, y.subscription, y.cluster(slot)+"/", func(item *database.Item[database.ExternalAuthDocument]) error {
		state, active = item.Value.ProvisioningState, item.Value.ActiveOperationID
		return nil
	})
	return state, active, err
}
