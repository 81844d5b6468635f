package emulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/anishathalye/porcupine"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// call is an operation on one item. Every write has a unique value, which represents the ETag as well.
type call struct {
	verb     string // read, create, replace, delete
	item     int
	old, new int // 0: the item does not exist
}

// reply is the result that the client observed.
type reply struct {
	status int // 200, 404, 409, 412; 0 if the response was lost
	value  int
}

// item is the sequential model of an item with conditional writes. Its state is the value of the item.
var item = porcupine.NondeterministicModel{
	Init: func() []any { return []any{0} },
	Step: func(state, input, output any) []any {
		current, in, out := state.(int), input.(call), output.(reply)
		status, next := 200, current
		switch {
		case in.verb == "read":
			if current == 0 {
				status = 404
			}
			if out.status == 200 && out.value != current {
				return nil
			}
		case in.verb == "create" && current != 0:
			status = 409
		case in.verb == "create":
			next = in.new
		case current == 0:
			status = 404
		case current != in.old:
			status = 412
		default:
			next = in.new
		}
		if out.status == 0 {
			return []any{current, next}
		}
		if out.status != status {
			return nil
		}
		return []any{next}
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byItem := map[int][]porcupine.Operation{}
		for _, o := range history {
			byItem[o.Input.(call).item] = append(byItem[o.Input.(call).item], o)
		}
		var out [][]porcupine.Operation
		for _, h := range byItem {
			out = append(out, h)
		}
		return out
	},
	Equal: func(a, b any) bool { return a == b },
}

// TestHistoriesAreLinearizable runs concurrent clients with conditional writes while faults drop requests and responses, and select a
// lagging replica for reads. The observed history must be linearizable if reads ask a quorum, and is not if they ask one replica.
func TestHistoriesAreLinearizable(t *testing.T) {
	for level, want := range map[account.ConsistencyLevel]porcupine.CheckResult{
		account.Strong: porcupine.Ok, account.BoundedStaleness: porcupine.Ok, account.Session: porcupine.Illegal,
	} {
		t.Run(string(level), func(t *testing.T) {
			if got := checkHistory(t, level); got != want {
				t.Errorf("the history is %s, want %s", got, want)
			}
		})
	}
}

// checkHistory runs clients without session tokens and checks their history.
func checkHistory(t *testing.T, level account.ConsistencyLevel) porcupine.CheckResult {
	t.Helper()
	s, c, _ := openContainer(t, emulator.Options{EnableFaults: true, FaultSeed: 5, Account: account.Account{ConsistencyLevel: level}})
	twentieth, tenth := 0.05, 0.1
	for _, r := range []faults.Rule{
		{Operations: []string{"create", "replace", "delete"}, Probability: &tenth, DropResponse: true},
		{Operations: []string{"create", "replace", "delete"}, Probability: &twentieth, DropRequest: true},
		{Operations: []string{"read", "replace"}, ResourceTypes: []string{"docs"}, Probability: &tenth, LatencyMS: 3},
		{Operations: []string{"read"}, ResourceTypes: []string{"docs"}, Probability: &tenth, StaleRead: true},
	} {
		must.Get(s.Faults().Add(r))(t)
	}
	const clients, rounds, items = 6, 60, 3
	started := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	value := 0
	var wg sync.WaitGroup
	for id := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(5, uint64(id)))
			type known struct {
				value int
				etag  azcore.ETag
			}
			last := map[int]known{}
			for range rounds {
				in := call{verb: []string{"read", "read", "create", "replace", "replace", "delete"}[r.IntN(6)], item: r.IntN(items)}
				k := last[in.item]
				if k.value == 0 && (in.verb == "replace" || in.verb == "delete") {
					in.verb = "read"
				}
				mu.Lock()
				value++
				mine := value
				mu.Unlock()
				if in.verb == "create" || in.verb == "replace" {
					in.new = mine
				}
				if in.verb == "replace" || in.verb == "delete" {
					in.old = k.value
				}
				from := time.Since(started).Nanoseconds()
				out, etag := perform(c, in, k.etag)
				to := time.Since(started).Nanoseconds()
				if out.status == 0 {
					to = 1 << 62 // it may take effect at any later time
				}
				switch {
				case in.verb == "read" && out.status == 200:
					last[in.item] = known{out.value, etag}
				case out.status == 200 && in.new != 0:
					last[in.item] = known{in.new, etag}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: id, Input: in, Call: from, Output: out, Return: to})
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	// Whether the clients read what another one has replaced depends on the order in which they run. This client always does.
	s.Faults().Clear()
	must.Get(s.Faults().Add(faults.Rule{Operations: []string{"read"}, ResourceTypes: []string{"docs"}, StaleRead: true}))(t)
	for _, in := range []call{{verb: "create", item: items, new: value + 1}, {verb: "read", item: items}} {
		from := time.Since(started).Nanoseconds()
		out, _ := perform(c, in, "")
		history = append(history, porcupine.Operation{ClientId: clients, Input: in, Call: from, Output: out, Return: time.Since(started).Nanoseconds()})
	}
	seen := map[int]int{}
	for _, o := range history {
		seen[o.Output.(reply).status]++
	}
	for _, status := range []int{0, 200, 404, 409, 412} {
		if seen[status] == 0 {
			t.Errorf("no operation had status %d, want all outcomes: %v", status, seen)
		}
	}
	return porcupine.CheckOperationsTimeout(item.ToModel(), history, time.Minute)
}

func perform(c *azcosmos.ContainerClient, in call, etag azcore.ETag) (reply, azcore.ETag) {
	ctx := context.Background()
	id := fmt.Sprint("item-", in.item)
	body := fmt.Appendf(nil, `{"id":%q,"partitionKey":"p","value":%d}`, id, in.new)
	match := &azcosmos.ItemOptions{IfMatchEtag: &etag}
	var r azcosmos.ItemResponse
	var err error
	switch in.verb {
	case "read":
		r, err = c.ReadItem(ctx, pk("p"), id, nil)
	case "create":
		r, err = c.CreateItem(ctx, pk("p"), body, nil)
	case "replace":
		r, err = c.ReplaceItem(ctx, pk("p"), id, body, match)
	case "delete":
		r, err = c.DeleteItem(ctx, pk("p"), id, match)
	}
	var response *azcore.ResponseError
	switch {
	case errors.As(err, &response):
		return reply{status: response.StatusCode}, ""
	case err != nil:
		return reply{}, ""
	}
	out := reply{status: 200}
	if in.verb == "read" {
		var doc struct{ Value int }
		if err := json.Unmarshal(r.Value, &doc); err != nil {
			return reply{status: -1}, ""
		}
		out.value = doc.Value
	}
	return out, r.ETag
}
