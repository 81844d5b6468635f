package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

func parse(t testing.TB, s string) document.Value {
	t.Helper()
	return must.Get(document.Parse([]byte(s)))(t)
}

type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.seconds.Load(), 0) }

// open opens a store.
func open(t testing.TB, path string, now func() time.Time) *Store {
	t.Helper()
	s := must.Get(Open(Options{Path: path, Now: now}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func container(t testing.TB, s *Store, props string) *Container {
	t.Helper()
	ctx := context.Background()
	if _, err := s.CreateDatabase(ctx, "db"); err != nil {
		var rejected *Error
		if !errors.As(err, &rejected) || rejected.Kind != Conflict {
			t.Fatal(err)
		}
	}
	return must.Get(s.CreateContainer(ctx, "db", parse(t, props)))(t)
}

const plain = `{"id":"items","partitionKey":{"kind":"Hash","paths":["/pk"],"version":2}}`

func do(s *Store, c *Container, pk string, ops ...Operation) ([]Result, error) {
	results, _, err := s.Transact(context.Background(), c, partition.Key(pk), ops)
	return results, err
}

func kindOf(err error) Kind {
	var rejected *Error
	if errors.As(err, &rejected) {
		return rejected.Kind
	}
	return 0
}

func TestOperations(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain)
	body := func(id, extra string) document.Value { return parse(t, `{"id":"`+id+`","pk":"p"`+extra+`}`) }
	first := must.Get(do(s, c, "p", Operation{Verb: Create, Body: body("a", "")}, Operation{Verb: Create, Body: body("any", "")}))(t)
	etag := first[0].Item.ETag
	cases := map[string]struct {
		op     Operation
		pk     string
		want   Kind
		reason string
	}{
		"create again":      {Operation{Verb: Create, Body: body("a", "")}, "p", Conflict, "the ID exists"},
		"same id elsewhere": {Operation{Verb: Create, Body: parse(t, `{"id":"a","pk":"q"}`)}, "q", 0, "IDs are unique only within a partition key"},
		"wrong key":         {Operation{Verb: Create, Body: body("b", "")}, "q", BadRequest, "the key differs from that of the body"},
		"no id":             {Operation{Verb: Create, Body: parse(t, `{"pk":"p"}`)}, "p", BadRequest, "the ID is required"},
		"replace nothing":   {Operation{Verb: Replace, ID: "z", Body: body("z", "")}, "p", NotFound, "Replace requires an item"},
		"delete nothing":    {Operation{Verb: Delete, ID: "z"}, "p", NotFound, "Delete requires an item"},
		"delete no match":   {Operation{Verb: Delete, ID: "z", IfMatch: etag}, "p", NotFound, "existence is checked before the condition"},
		"stale":             {Operation{Verb: Replace, ID: "a", Body: body("a", ""), IfMatch: `"no"`}, "p", PreconditionFailed, "the ETag differs"},
		"upsert stale":      {Operation{Verb: Upsert, Body: body("a", ""), IfMatch: `"no"`}, "p", PreconditionFailed, "conditions apply to upserts"},
		"upsert new":        {Operation{Verb: Upsert, Body: body("new", ""), IfMatch: `"no"`}, "p", 0, "the condition is ignored for a new item"},
		"rename":            {Operation{Verb: Replace, ID: "a", Body: body("other", "")}, "p", BadRequest, "IDs are immutable"},
		"too large":         {Operation{Verb: Upsert, Body: body("big", `,"x":"`+strings.Repeat("x", MaxItemBytes)+`"`)}, "p", TooLarge, "2 MiB"},
		"not an object":     {Operation{Verb: Replace, ID: "a", Body: parse(t, `[]`)}, "p", BadRequest, "items are objects"},
		"current etag":      {Operation{Verb: Replace, ID: "a", Body: body("a", ""), IfMatch: etag}, "p", 0, "the ETag is the current one"},
		"any etag":          {Operation{Verb: Replace, ID: "any", Body: body("any", ""), IfMatch: "*"}, "p", 0, "* matches every item"},
		"system properties": {Operation{Verb: Upsert, Body: body("sys", `,"_etag":"client","_ts":1`)}, "p", 0, "system properties of requests are ignored"},
		"object as key":     {Operation{Verb: Create, Body: parse(t, `{"id":"n","pk":{"a":1}}`)}, "p", BadRequest, "a partition key is a string"},
		"number as key":     {Operation{Verb: Create, Body: parse(t, `{"id":"n","pk":1}`)}, "p", BadRequest, "a partition key is a string"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := do(s, c, tc.pk, tc.op); kindOf(err) != tc.want || (tc.want == 0) != (err == nil) {
				t.Errorf("got %v, want kind %d: %s", err, tc.want, tc.reason)
			}
		})
	}
	got, _, err := s.Get(c, "p", "sys")
	if err != nil {
		t.Fatal(err)
	}
	if v := parse(t, string(got.Body)); v.Get("_etag").Str != got.ETag || v.Get("_rid").Str == "" || v.Get("_ts").Num < 2 {
		t.Errorf("the system properties are not the store's: %s", got.Body)
	}
}

// TestWritesArePersistent checks that items and all indexes are the same after the store is reopened.
func TestWritesArePersistent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path, nil)
	c := container(t, s, `{"id":"items","partitionKey":{"kind":"Hash","paths":["/pk"],"version":2},"defaultTtl":-1}`)
	must.Get(s.Split(t.Context(), "db", "items", "0"))(t)
	for i := range 20 {
		pk := fmt.Sprint("p", i%3)
		must.Get(do(s, c, pk, Operation{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"%d","pk":"%s","name":"n%d"}`, i, pk, i))}))(t)
	}
	must.Get(do(s, c, "p0", Operation{Verb: Delete, ID: "3"}, Operation{Verb: Upsert, Body: parse(t, `{"id":"6","pk":"p0","name":"changed"}`)}))(t)
	before := dump(t, s, c)
	must.Do(t, s.Close())
	s = open(t, path, nil)
	c = must.Get(s.Container("db", "items"))(t)
	if diff := cmp.Diff(before, dump(t, s, c)); diff != "" {
		t.Error(diff)
	}
	if len(c.Ranges) != 2 {
		t.Errorf("the container has %d physical partitions, want 2", len(c.Ranges))
	}
}

type dumped struct {
	Scan, Feed []string
	LSN        uint64
}

func dump(t testing.TB, s *Store, c *Container) dumped {
	t.Helper()
	var d dumped
	lsn := must.Get(s.Scan(c, Scope{}, nil, func(_ Position, item Item) (bool, error) {
		d.Scan = append(d.Scan, string(item.Body))
		return true, nil
	}))(t)
	d.LSN = lsn
	page := must.Get(s.ChangesAfter(c, Scope{}, 0, 0, 1<<30, 1<<30))(t)
	for _, item := range page.Items {
		d.Feed = append(d.Feed, string(item.Body))
	}
	return d
}

// TestBatchesAreAtomicUnderConcurrency moves money between accounts. A batch that is applied in part would change the sum.
func TestBatchesAreAtomicUnderConcurrency(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain)
	const accounts, workers, rounds, start = 8, 8, 60, 100
	body := func(id int, n float64) document.Value {
		return parse(t, fmt.Sprintf(`{"id":"%d","pk":"bank","n":%v}`, id, n))
	}
	for i := range accounts {
		must.Get(do(s, c, "bank", Operation{Verb: Create, Body: body(i, start)}))(t)
	}
	sum := func() float64 {
		total := 0.0
		if _, err := s.Scan(c, Scope{Key: "bank"}, nil, func(_ Position, item Item) (bool, error) {
			v, err := document.Parse(item.Body)
			total += v.Get("n").Num
			return true, err
		}); err != nil {
			t.Error(err)
		}
		return total
	}
	var moved, lost atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range rounds {
				from, to := r.IntN(accounts), r.IntN(accounts)
				if from == to {
					continue
				}
				a, _, errA := s.Get(c, "bank", fmt.Sprint(from))
				b, _, errB := s.Get(c, "bank", fmt.Sprint(to))
				if err := errors.Join(errA, errB); err != nil {
					t.Error(err)
					return
				}
				va, _ := document.Parse(a.Body)
				vb, _ := document.Parse(b.Body)
				ops := []Operation{
					{Verb: Replace, ID: fmt.Sprint(from), Body: body(from, va.Get("n").Num-1), IfMatch: a.ETag},
					{Verb: Replace, ID: fmt.Sprint(to), Body: body(to, vb.Get("n").Num+1), IfMatch: b.ETag},
				}
				if r.IntN(4) == 0 {
					ops = append(ops, Operation{Verb: Create, Body: body(from, 0)}) // always rejected, after two changes
				}
				_, err := do(s, c, "bank", ops...)
				switch kindOf(err) {
				case PreconditionFailed, Conflict:
					lost.Add(1)
				default:
					if err != nil {
						t.Error(err)
						return
					}
					moved.Add(1)
				}
				if got := sum(); got != accounts*start {
					t.Errorf("the sum is %v, want %d: a batch was applied in part", got, accounts*start)
					return
				}
			}
		}()
	}
	wg.Wait()
	if moved.Load() == 0 || lost.Load() == 0 {
		t.Errorf("%d batches were committed and %d were rejected; want both", moved.Load(), lost.Load())
	}
}

// TestBatchReadsItsWrites checks that operations use the results of earlier ones, and that an error has the index of its
// operation.
func TestBatchReadsItsWrites(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain)
	a := parse(t, `{"id":"a","pk":"p","n":1}`)
	results, err := do(s, c, "p",
		Operation{Verb: Create, Body: a}, Operation{Verb: Upsert, Body: a}, Operation{Verb: Delete, ID: "a"}, Operation{Verb: Create, Body: a})
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []Outcome
	etags := map[string]bool{}
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
		etags[r.Item.ETag] = true
	}
	if diff := cmp.Diff([]Outcome{Created, Replaced, Deleted, Created}, outcomes); diff != "" {
		t.Error(diff)
	}
	if len(etags) != 4 { // create, upsert, delete (none), create
		t.Errorf("%d different ETags, want 4: one per version", len(etags))
	}
	before := dump(t, s, c)
	_, err = do(s, c, "p", Operation{Verb: Delete, ID: "a"}, Operation{Verb: Create, Body: parse(t, `{"id":"b","pk":"p"}`)}, Operation{Verb: Replace, ID: "a", Body: a})
	var failed *FailedOperation
	if !errors.As(err, &failed) || failed.Index != 2 || failed.Err.Kind != NotFound {
		t.Errorf("got %v, want operation 2 not found", err)
	}
	if diff := cmp.Diff(before, dump(t, s, c)); diff != "" {
		t.Errorf("the rejected batch changed the store: %s", diff)
	}
}

func TestInvalidContainers(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	container(t, s, plain)
	cases := map[string]struct {
		props  string
		want   Kind
		reason string
	}{
		"again":        {plain, Conflict, "the ID exists"},
		"no key":       {`{"id":"x"}`, BadRequest, "a partition key is required"},
		"two paths":    {`{"id":"x","partitionKey":{"kind":"Hash","paths":["/a","/b"]}}`, BadRequest, "Hash has one path"},
		"version 1":    {`{"id":"x","partitionKey":{"paths":["/a"],"version":1}}`, BadRequest, "only version 2 is supported"},
		"unique keys":  {`{"id":"x","partitionKey":{"paths":["/a"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}`, BadRequest, "unique keys are not supported"},
		"bad path":     {`{"id":"x","partitionKey":{"paths":["a"]}}`, BadRequest, "paths begin with a slash"},
		"slash":        {`{"id":"x/y","partitionKey":{"paths":["/a"]}}`, BadRequest, "slashes are invalid in IDs"},
		"zero ttl":     {`{"id":"x","partitionKey":{"paths":["/a"]},"defaultTtl":0}`, BadRequest, "0 is not a valid TTL"},
		"hierarchical": {`{"id":"h","partitionKey":{"kind":"MultiHash","paths":["/a","/b"],"version":2}}`, BadRequest, "hierarchical keys are not supported"},
		"policy":       {`{"id":"x","partitionKey":{"paths":["/a"]},"vectorEmbeddingPolicy":{}}`, BadRequest, "other properties are not supported"},
		"nested":       {`{"id":"n","partitionKey":{"kind":"Hash","paths":["/a/b"],"version":2}}`, 0, "a path of two names"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := s.CreateContainer(context.Background(), "db", parse(t, tc.props))
			if kindOf(err) != tc.want || (tc.want == 0) != (err == nil) {
				t.Errorf("got %v, want kind %d: %s", err, tc.want, tc.reason)
			}
		})
	}
}

// TestWriteToDeletedContainer writes with the description of a container whose database was deleted and recreated.
func TestWriteToDeletedContainer(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	old := container(t, s, plain)
	must.Do(t, s.DeleteDatabase(context.Background(), "db"))
	recreated := container(t, s, plain)
	if _, err := do(s, old, "p", Operation{Verb: Create, Body: parse(t, `{"id":"a","pk":"p"}`)}); kindOf(err) != NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if d := dump(t, s, recreated); len(d.Scan) != 0 || d.LSN != 0 {
		t.Errorf("the new container has %+v", d)
	}
	if recreated.ID() == old.ID() {
		t.Error("the new container has the old one's RID")
	}
}
