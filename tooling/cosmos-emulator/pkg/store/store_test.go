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

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

func parse(t testing.TB, s string) document.Value {
	t.Helper()
	v, err := document.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.seconds.Load(), 0) }

// open opens a store on a file; the reaper only runs when the test asks for it.
func open(t testing.TB, path string, now func() time.Time) *Store {
	t.Helper()
	s, err := Open(Options{Path: path, Now: now, ReapInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func container(t testing.TB, s *Store, props string, rus int) *Container {
	t.Helper()
	ctx := context.Background()
	if _, err := s.CreateDatabase(ctx, "db", Throughput{}); err != nil {
		var refusal *Error
		if !errors.As(err, &refusal) || refusal.Kind != Conflict {
			t.Fatal(err)
		}
	}
	c, err := s.CreateContainer(ctx, "db", parse(t, props), Throughput{Manual: rus})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const plain = `{"id":"items","partitionKey":{"kind":"Hash","paths":["/pk"],"version":2}}`

func key(pk string) partition.Key { return partition.Key{document.FromString(pk)} }

func do(s *Store, c *Container, pk string, ops ...Op) ([]Result, error) {
	results, _, err := s.Transact(context.Background(), c, key(pk), ops)
	return results, err
}

func kindOf(err error) Kind {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Kind
	}
	return 0
}

func TestOperations(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 0)
	body := func(id, extra string) document.Value { return parse(t, `{"id":"`+id+`","pk":"p"`+extra+`}`) }
	first, err := do(s, c, "p", Op{Verb: Create, Body: body("a", "")})
	if err != nil {
		t.Fatal(err)
	}
	etag := first[0].Item.ETag
	cases := map[string]struct {
		op     Op
		pk     string
		want   Kind
		reason string
	}{
		"create again":        {Op{Verb: Create, Body: body("a", "")}, "p", Conflict, "the id is taken"},
		"same id elsewhere":   {Op{Verb: Create, Body: parse(t, `{"id":"a","pk":"q"}`)}, "q", 0, "ids are unique within a partition key only"},
		"wrong key":           {Op{Verb: Create, Body: body("b", "")}, "q", BadRequest, "header and body disagree"},
		"no id":               {Op{Verb: Create, Body: parse(t, `{"pk":"p"}`)}, "p", BadRequest, "an id is required"},
		"replace nothing":     {Op{Verb: Replace, ID: "z", Body: body("z", "")}, "p", NotFound, "replace needs an item"},
		"delete nothing":      {Op{Verb: Delete, ID: "z"}, "p", NotFound, "delete needs an item"},
		"delete no match":     {Op{Verb: Delete, ID: "z", IfMatch: etag}, "p", NotFound, "absence beats the condition"},
		"stale":               {Op{Verb: Replace, ID: "a", Body: body("a", ""), IfMatch: `"no"`}, "p", PreconditionFailed, "the ETag differs"},
		"upsert stale":        {Op{Verb: Upsert, Body: body("a", ""), IfMatch: `"no"`}, "p", PreconditionFailed, "upserts are conditional too"},
		"upsert new":          {Op{Verb: Upsert, Body: body("new", ""), IfMatch: `"no"`}, "p", 0, "there is nothing to compare with"},
		"upsert if none":      {Op{Verb: Upsert, Body: body("a", ""), IfNoneMatch: "*"}, "p", PreconditionFailed, "it exists"},
		"rename":              {Op{Verb: Replace, ID: "a", Body: body("other", "")}, "p", BadRequest, "ids do not change"},
		"too large":           {Op{Verb: Upsert, Body: body("big", `,"x":"`+strings.Repeat("x", MaxItemBytes)+`"`)}, "p", TooLarge, "2 MiB"},
		"not an object":       {Op{Verb: Replace, ID: "a", Body: parse(t, `[]`)}, "p", BadRequest, "items are objects"},
		"current etag":        {Op{Verb: Read, ID: "a", IfMatch: etag}, "p", 0, "the ETag is the current one"},
		"unquoted etag":       {Op{Verb: Read, ID: "a", IfMatch: strings.Trim(etag, `"`)}, "p", 0, "some clients drop the quotes"},
		"any etag":            {Op{Verb: Read, ID: "a", IfMatch: "*"}, "p", 0, "* matches what exists"},
		"system properties":   {Op{Verb: Upsert, Body: body("sys", `,"_etag":"mine","_ts":1`)}, "p", 0, "what clients send of them is ignored"},
		"nested partition id": {Op{Verb: Create, Body: parse(t, `{"id":"n","pk":{"a":1}}`)}, "p", BadRequest, "a partition key is a scalar"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := do(s, c, tc.pk, tc.op); kindOf(err) != tc.want || (tc.want == 0) != (err == nil) {
				t.Errorf("got %v, want kind %d: %s", err, tc.want, tc.reason)
			}
		})
	}
	got, _, err := s.Get(c, key("p"), "sys")
	if err != nil {
		t.Fatal(err)
	}
	if v := parse(t, string(got.Body)); v.Get("_etag").Str != got.ETag || v.Get("_rid").Str == "" || v.Get("_ts").Num < 2 {
		t.Errorf("the system properties are not the store's: %s", got.Body)
	}
}

// TestWritesSurviveAReopen checks that everything an item is found by comes back.
func TestWritesSurviveAReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path, nil)
	c := container(t, s, `{"id":"items","partitionKey":{"kind":"Hash","paths":["/pk"],"version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/name"]}]},"defaultTtl":-1}`, 20000)
	for i := range 20 {
		pk := fmt.Sprint("p", i%3)
		if _, err := do(s, c, pk, Op{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"%d","pk":"%s","name":"n%d"}`, i, pk, i))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := do(s, c, "p0", Op{Verb: Delete, ID: "3"}, Op{Verb: Upsert, Body: parse(t, `{"id":"6","pk":"p0","name":"changed"}`)}); err != nil {
		t.Fatal(err)
	}
	before := dump(t, s, c)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, nil)
	c, err := s.Container("db", "items")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, dump(t, s, c)); diff != "" {
		t.Error(diff)
	}
	if len(c.Ranges) != 2 {
		t.Errorf("the container has %d physical partitions, want 2", len(c.Ranges))
	}
	if _, err := do(s, c, "p1", Op{Verb: Create, Body: parse(t, `{"id":"new","pk":"p1","name":"n4"}`)}); kindOf(err) != Conflict {
		t.Errorf("a taken unique key: %v", err)
	}
}

type dumped struct {
	Scan, Feed []string
	LSN        uint64
}

func dump(t testing.TB, s *Store, c *Container) dumped {
	t.Helper()
	var d dumped
	lsn, err := s.Scan(c, Scope{}, nil, func(_ Position, item Item) (bool, error) {
		d.Scan = append(d.Scan, string(item.Body))
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.LSN = lsn
	page, err := s.ChangesAfter(c, Scope{}, 0, 0, 1<<30, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range page.Items {
		d.Feed = append(d.Feed, string(item.Body))
	}
	return d
}

// TestBatchesAreAtomicUnderConcurrency moves money between accounts: any torn batch would change the sum.
func TestBatchesAreAtomicUnderConcurrency(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 0)
	const accounts, workers, rounds, start = 8, 8, 60, 100
	body := func(id int, n float64) document.Value {
		return parse(t, fmt.Sprintf(`{"id":"%d","pk":"bank","n":%v}`, id, n))
	}
	for i := range accounts {
		if _, err := do(s, c, "bank", Op{Verb: Create, Body: body(i, start)}); err != nil {
			t.Fatal(err)
		}
	}
	sum := func() float64 {
		total := 0.0
		if _, err := s.Scan(c, Scope{Key: key("bank")}, nil, func(_ Position, item Item) (bool, error) {
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
				a, _, errA := s.Get(c, key("bank"), fmt.Sprint(from))
				b, _, errB := s.Get(c, key("bank"), fmt.Sprint(to))
				if err := errors.Join(errA, errB); err != nil {
					t.Error(err)
					return
				}
				va, _ := document.Parse(a.Body)
				vb, _ := document.Parse(b.Body)
				ops := []Op{
					{Verb: Replace, ID: fmt.Sprint(from), Body: body(from, va.Get("n").Num-1), IfMatch: a.ETag},
					{Verb: Replace, ID: fmt.Sprint(to), Body: body(to, vb.Get("n").Num+1), IfMatch: b.ETag},
				}
				if r.IntN(4) == 0 {
					ops = append(ops, Op{Verb: Create, Body: body(from, 0)}) // always refused, after two changes
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
					t.Errorf("the sum is %v, want %d: a batch was torn", got, accounts*start)
					return
				}
			}
		}()
	}
	wg.Wait()
	if moved.Load() == 0 || lost.Load() == 0 {
		t.Errorf("%d batches committed and %d were refused; the test needs both", moved.Load(), lost.Load())
	}
}

// TestBatchSeesItself checks that later operations see earlier ones, and that a refusal names its operation.
func TestBatchSeesItself(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 0)
	a := parse(t, `{"id":"a","pk":"p","n":1}`)
	results, err := do(s, c, "p",
		Op{Verb: Create, Body: a}, Op{Verb: Upsert, Body: a}, Op{Verb: Read, ID: "a"}, Op{Verb: Delete, ID: "a"}, Op{Verb: Create, Body: a})
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []Outcome
	etags := map[string]bool{}
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
		etags[r.Item.ETag] = true
	}
	if diff := cmp.Diff([]Outcome{Created, Replaced, Found, Deleted, Created}, outcomes); diff != "" {
		t.Error(diff)
	}
	if len(etags) != 4 { // create, upsert (read has the same), delete (none), create
		t.Errorf("%d different ETags, want 4: every version has its own", len(etags))
	}
	before := dump(t, s, c)
	_, err = do(s, c, "p", Op{Verb: Delete, ID: "a"}, Op{Verb: Create, Body: parse(t, `{"id":"b","pk":"p"}`)}, Op{Verb: Replace, ID: "a", Body: a})
	var failed *FailedOp
	if !errors.As(err, &failed) || failed.Index != 2 || failed.Err.Kind != NotFound {
		t.Errorf("got %v, want operation 2 not found", err)
	}
	if diff := cmp.Diff(before, dump(t, s, c)); diff != "" {
		t.Errorf("the refused batch left something: %s", diff)
	}
}

func TestContainersAreChecked(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	container(t, s, plain, 0)
	cases := map[string]struct {
		props  string
		want   Kind
		reason string
	}{
		"again":        {plain, Conflict, "the id is taken"},
		"no key":       {`{"id":"x"}`, BadRequest, "a partition key is required"},
		"two paths":    {`{"id":"x","partitionKey":{"kind":"Hash","paths":["/a","/b"]}}`, BadRequest, "Hash has one path"},
		"four paths":   {`{"id":"x","partitionKey":{"kind":"MultiHash","paths":["/a","/b","/c","/d"],"version":2}}`, BadRequest, "three at most"},
		"bad path":     {`{"id":"x","partitionKey":{"paths":["a"]}}`, BadRequest, "paths begin with a slash"},
		"slash":        {`{"id":"x/y","partitionKey":{"paths":["/a"]}}`, BadRequest, "not in an id"},
		"zero ttl":     {`{"id":"x","partitionKey":{"paths":["/a"]},"defaultTtl":0}`, BadRequest, "0 is no TTL"},
		"hierarchical": {`{"id":"h","partitionKey":{"kind":"MultiHash","paths":["/a","/b"],"version":2}}`, 0, "two levels"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := s.CreateContainer(context.Background(), "db", parse(t, tc.props), Throughput{})
			if kindOf(err) != tc.want || (tc.want == 0) != (err == nil) {
				t.Errorf("got %v, want kind %d: %s", err, tc.want, tc.reason)
			}
		})
	}
}

// TestDeletedContainerTakesNoWrites checks a request that still holds the container's old description.
func TestDeletedContainerTakesNoWrites(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	old := container(t, s, plain, 0)
	if err := s.DeleteContainer(context.Background(), "db", "items", ""); err != nil {
		t.Fatal(err)
	}
	renewed := container(t, s, plain, 0)
	if _, err := do(s, old, "p", Op{Verb: Create, Body: parse(t, `{"id":"a","pk":"p"}`)}); kindOf(err) != NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if d := dump(t, s, renewed); len(d.Scan) != 0 || d.LSN != 0 {
		t.Errorf("the new container has %+v", d)
	}
	if renewed.ID() == old.ID() {
		t.Error("the new container has the old one's RID")
	}
}
