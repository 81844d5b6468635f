package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// modelItem is an item of the model. created and changed are its positions in the order of creation and of change.
type modelItem struct {
	n                int
	etag             string
	created, changed int
}

// model is the specification of the store: a map.
type model struct {
	items map[string]modelItem // by partition key and id
	clock int
}

// apply applies a batch to a copy of the model. It returns the copy, or the index and the kind of the first rejected
// operation.
func (m model) apply(pk string, ops []modelOp) (model, int, Kind) {
	next := model{maps.Clone(m.items), m.clock}
	for i, op := range ops {
		key := pk + "/" + op.id
		current, exists := next.items[key]
		next.clock++
		switch {
		case op.verb == Create && exists:
			return m, i, Conflict
		case !exists && op.verb != Create && op.verb != Upsert:
			return m, i, NotFound
		case exists && op.ifMatch != "" && op.ifMatch != current.etag:
			return m, i, PreconditionFailed
		case op.verb == Delete:
			delete(next.items, key)
			continue
		}
		if !exists {
			current = modelItem{created: next.clock}
		}
		current.n, current.changed, current.etag = op.n, next.clock, "" // the store assigns the ETag
		next.items[key] = current
	}
	return next, -1, 0
}

type modelOp struct {
	verb    Verb
	id      string
	n       int
	ifMatch string
}

// TestStoreMatchesModel applies random batches to the store and to the model and compares all results.
func TestStoreMatchesModel(t *testing.T) {
	const seed, batches = 20, 600
	r := rand.New(rand.NewPCG(seed, seed))
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path, nil)
	c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`)
	m := model{items: map[string]modelItem{}}
	rejected := map[Kind]int{}
	for batch := range batches {
		pk := fmt.Sprint("p", r.IntN(3))
		var batchOps []modelOp
		var ops []Operation
		for range 1 + r.IntN(4) {
			o := modelOp{verb: []Verb{Create, Upsert, Upsert, Replace, Delete}[r.IntN(5)], id: fmt.Sprint(r.IntN(6)), n: batch}
			if r.IntN(3) == 0 && o.verb != Create {
				o.ifMatch = `"stale"`
				// The ETag of an item that an earlier operation of the batch changed is not known yet, so only the first
				// operation may use it.
				touched := slices.ContainsFunc(batchOps, func(p modelOp) bool { return p.id == o.id })
				if current, ok := m.items[pk+"/"+o.id]; ok && r.IntN(4) > 0 && !touched {
					o.ifMatch = current.etag
				}
			}
			batchOps = append(batchOps, o)
			body := document.Value{}
			if o.verb != Delete {
				body = parse(t, fmt.Sprintf(`{"id":%q,"pk":%q,"n":%d}`, o.id, pk, o.n))
			}
			ops = append(ops, Operation{Verb: o.verb, ID: o.id, Body: body, IfMatch: o.ifMatch})
		}
		next, at, kind := m.apply(pk, batchOps)
		results, err := do(s, c, pk, ops...)
		if at >= 0 {
			var failed *FailedOperation
			if !errors.As(err, &failed) || failed.Index != at || failed.Err.Kind != kind {
				t.Fatalf("seed %d, batch %d: %v, want operation %d rejected with kind %d\n%+v", seed, batch, err, at, kind, batchOps)
			}
			rejected[kind]++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d, batch %d: %v, want success\n%+v", seed, batch, err, batchOps)
		}
		m = next
		for i, o := range batchOps {
			if current, ok := m.items[pk+"/"+o.id]; ok && o.verb != Delete {
				current.etag = results[i].Item.ETag
				m.items[pk+"/"+o.id] = current
			}
		}
		if batch%150 == 149 {
			must.Do(t, s.Close())
			s = open(t, path, nil)
			c = must.Get(s.Container("db", "items"))(t)
			compare(t, s, c, m)
		}
	}
	if len(rejected) != 3 {
		t.Errorf("rejections of %d kinds, want 3: %v", len(rejected), rejected)
	}
}

func compare(t *testing.T, s *Store, c *Container, m model) {
	t.Helper()
	order := func(by func(modelItem) int) []string {
		keys := slices.SortedFunc(maps.Keys(m.items), func(a, b string) int { return by(m.items[a]) - by(m.items[b]) })
		out := make([]string, len(keys))
		for i, k := range keys {
			out[i] = fmt.Sprintf("%s n%d %s", k, m.items[k].n, m.items[k].etag)
		}
		return out
	}
	text := func(item Item) string {
		v := parse(t, string(item.Body))
		return fmt.Sprintf("%s/%s n%v %s", v.Get("pk").Str, v.Get("id").Str, v.Get("n").Num, item.ETag)
	}
	var scan, feed []string
	must.Get(s.Scan(c, Scope{}, nil, func(_ Position, item Item) (bool, error) {
		scan = append(scan, text(item))
		return true, nil
	}))(t)
	page := must.Get(s.ChangesAfter(c, Scope{}, 0, 0, 1<<30, 1<<30))(t)
	for _, item := range page.Items {
		feed = append(feed, text(item))
	}
	if diff := cmp.Diff(order(func(i modelItem) int { return i.created }), scan); diff != "" {
		t.Errorf("the scan: %s", diff)
	}
	if diff := cmp.Diff(order(func(i modelItem) int { return i.changed }), feed); diff != "" {
		t.Errorf("the change feed: %s", diff)
	}
	byPartition := 0
	for _, pk := range []partition.Key{"p0", "p1", "p2"} {
		must.Get(s.Scan(c, Scope{Key: pk}, nil, func(_ Position, item Item) (bool, error) {
			byPartition++
			_, ok := m.items[string(pk)+"/"+parse(t, string(item.Body)).Get("id").Str]
			if !ok {
				t.Errorf("partition %s has %s", pk, item.Body)
			}
			return true, nil
		}))(t)
	}
	if byPartition != len(m.items) {
		t.Errorf("the partitions have %d items, want %d", byPartition, len(m.items))
	}
}
