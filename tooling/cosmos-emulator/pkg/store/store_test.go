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

// TestChangeFeedMissesNothing follows the feed of every physical partition while writers write. Of every item the
// last version must arrive, versions of an item only in order, and a transaction never in part.
func TestChangeFeedMissesNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 30000)
	const writers, rounds, keys = 6, 80, 10
	var final sync.Map // pk/id -> n
	var writing sync.WaitGroup
	for w := range writers {
		writing.Add(1)
		go func() {
			defer writing.Done()
			r := rand.New(rand.NewPCG(7, uint64(w)))
			for n := range rounds {
				pk := fmt.Sprint("k", r.IntN(keys))
				var ops []Op
				for i := range 1 + r.IntN(3) {
					ops = append(ops, Op{Verb: Upsert, Body: parse(t, fmt.Sprintf(`{"id":"%d-%d","pk":"%s","n":%d,"tx":"%d/%d"}`, w, i, pk, n, w, n))})
				}
				if _, err := do(s, c, pk, ops...); err != nil {
					t.Error(err)
					return
				}
				for i := range ops {
					final.Store(fmt.Sprintf("%s/%d-%d", pk, w, i), float64(n))
				}
			}
		}()
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()

	var reading sync.WaitGroup
	var seen sync.Map
	for _, r := range c.Ranges {
		reading.Add(1)
		go func() {
			defer reading.Done()
			after := uint64(0)
			for last := false; ; {
				page, err := s.ChangesAfter(c, Scope{Range: r.Range()}, after, 0, 2, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				for i, item := range page.Items {
					if item.LSN <= after || item.LSN > page.LSN || i > 0 && item.LSN < page.Items[i-1].LSN {
						t.Errorf("LSN %d is out of order in the page after %d up to %d", item.LSN, after, page.LSN)
					}
					v := parse(t, string(item.Body))
					id := v.Get("pk").Str + "/" + v.Get("id").Str
					if old, ok := seen.Swap(id, v.Get("n").Num); ok && old.(float64) >= v.Get("n").Num {
						t.Errorf("%s came as %v after %v", id, v.Get("n").Num, old)
					}
				}
				if page.LSN < after {
					t.Errorf("the feed went back from %d to %d", after, page.LSN)
				}
				after = page.LSN
				if len(page.Items) > 0 {
					continue
				}
				if last {
					return
				}
				select {
				case <-done:
					last = true // once more, now that nothing comes
				default:
				}
			}
		}()
	}
	reading.Wait()
	missing := 0
	final.Range(func(id, n any) bool {
		if got, ok := seen.Load(id); !ok || got != n {
			t.Errorf("%v: the feed ended at %v, the item is at %v", id, got, n)
			missing++
		}
		return missing < 10
	})
}

func TestTransactionsAreNotCutByPages(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 0)
	for n := range 4 {
		var ops []Op
		for i := range 5 {
			ops = append(ops, Op{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"%d-%d","pk":"p"}`, n, i))})
		}
		if _, err := do(s, c, "p", ops...); err != nil {
			t.Fatal(err)
		}
	}
	after, pages := uint64(0), []int{}
	for {
		page, err := s.ChangesAfter(c, Scope{}, after, 0, 6, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) == 0 {
			break
		}
		pages, after = append(pages, len(page.Items)), page.LSN
	}
	if diff := cmp.Diff([]int{10, 10}, pages); diff != "" {
		t.Errorf("pages of at most 6 rounded up to whole transactions: %s", diff)
	}
	if _, err := s.ChangesAfter(c, Scope{}, after+1, 0, 6, 1<<20); kindOf(err) != BadRequest {
		t.Errorf("a continuation from elsewhere: %v", err)
	}
}

func TestSplitKeepsTheFeed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain, 0)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			pk := fmt.Sprint("k", i)
			if _, err := do(s, c, pk, Op{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"i","pk":"%s"}`, pk))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 10)
	page, err := s.ChangesAfter(c, Scope{Range: c.Ranges[0].Range()}, 0, 0, 100, 1<<20)
	if err != nil || len(page.Items) != 10 {
		t.Fatalf("%d items, %v", len(page.Items), err)
	}
	grown, err := s.Split(context.Background(), "db", "items", "0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := grown.Range("0"); kindOf(err) != Gone {
		t.Errorf("the parent's range: %v, want Gone", err)
	}
	write(10, 30)
	got := 0
	for _, r := range grown.Ranges {
		if diff := cmp.Diff([]string{"0"}, r.Parents); diff != "" {
			t.Errorf("parents: %s", diff)
		}
		next, err := s.ChangesAfter(grown, Scope{Range: r.Range()}, page.LSN, 0, 100, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(next.Items) == 0 {
			t.Errorf("range %s is empty: the halves are uneven", r.ID)
		}
		got += len(next.Items)
	}
	if got != 20 {
		t.Errorf("the children's feeds have %d items after the parent's continuation, want 20", got)
	}
}

func TestExpiry(t *testing.T) {
	cases := map[string]struct {
		props, item string
		lives       int64 // seconds; 0 for ever
		reason      string
	}{
		"off":              {``, `"ttl":5`, 0, "the container does not expire anything"},
		"default":          {`,"defaultTtl":10`, `"x":1`, 10, "the container's"},
		"own":              {`,"defaultTtl":10`, `"ttl":5`, 5, "the item's wins"},
		"own longer":       {`,"defaultTtl":10`, `"ttl":50`, 50, "the item's wins"},
		"own never":        {`,"defaultTtl":10`, `"ttl":-1`, 0, "-1 is never"},
		"only own":         {`,"defaultTtl":-1`, `"ttl":5`, 5, "-1 lets items say"},
		"only own, absent": {`,"defaultTtl":-1`, `"x":1`, 0, "and this one does not"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var now clock
			now.seconds.Store(1_000_000)
			s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
			c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash"},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}`+tc.props+`}`, 0)
			body := parse(t, `{"id":"a","pk":"p","u":1,`+tc.item+`}`)
			if _, err := do(s, c, "p", Op{Verb: Create, Body: body}); err != nil {
				t.Fatal(err)
			}
			alive := func(want bool) {
				t.Helper()
				_, _, err := s.Get(c, key("p"), "a")
				d := dump(t, s, c)
				if (err == nil) != want || (len(d.Scan) == 1) != want || (len(d.Feed) == 1) != want {
					t.Errorf("read %v, scan %d, feed %d; alive should be %v: %s", err, len(d.Scan), len(d.Feed), want, tc.reason)
				}
			}
			life := tc.lives
			if life == 0 {
				life = 1 << 40
			}
			now.seconds.Add(life - 1)
			alive(true)
			now.seconds.Add(1)
			alive(tc.lives == 0)
			if tc.lives == 0 {
				return
			}
			// Its id and unique key are free at once, with or without the reaper.
			if _, err := do(s, c, "p", Op{Verb: Create, Body: parse(t, `{"id":"b","pk":"p","u":1,"ttl":-1}`)}); err != nil {
				t.Errorf("the unique key is still taken: %v", err)
			}
			if err := s.reapContainer(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			if due, err := s.expiryDue(c); err != nil || due {
				t.Errorf("after reaping, due is %v, %v", due, err)
			}
			if _, err := do(s, c, "p", Op{Verb: Create, Body: parse(t, `{"id":"c","pk":"p","u":1}`)}); kindOf(err) != Conflict {
				t.Errorf("the reaper took another item's unique key: %v", err)
			}
			if _, err := do(s, c, "p", Op{Verb: Create, Body: parse(t, `{"id":"a","pk":"p","u":2}`)}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExpiredItemLeavesNoUniqueKey creates an item anew under the id of one that expired and was not removed yet.
func TestExpiredItemLeavesNoUniqueKey(t *testing.T) {
	var now clock
	now.seconds.Store(1_000_000)
	s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
	c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash"},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}`, 0)
	put := func(id string, u, ttl int) Kind {
		t.Helper()
		_, err := do(s, c, "p", Op{Verb: Upsert, Body: parse(t, fmt.Sprintf(`{"id":%q,"pk":"p","u":%d,"ttl":%d}`, id, u, ttl))})
		return kindOf(err)
	}
	put("a", 1, 5)
	now.seconds.Add(5)
	put("a", 2, -1)
	if got := put("b", 1, -1); got != 0 {
		t.Errorf("the expired item's unique key is still taken: kind %d", got)
	}
	if got := put("c", 2, -1); got != Conflict {
		t.Errorf("the new item's unique key is free: kind %d", got)
	}
	put("d", 3, 5)
	now.seconds.Add(5)
	put("e", 3, -1) // takes over
	put("d", 4, -1) // must not free what is e's now
	if got := put("f", 3, -1); got != Conflict {
		t.Errorf("another item's unique key was freed: kind %d", got)
	}
}

func TestChangedDefaultTTLAppliesToOldItems(t *testing.T) {
	var now clock
	now.seconds.Store(1_000_000)
	s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
	c := container(t, s, plain, 0)
	if _, err := do(s, c, "p", Op{Verb: Create, Body: parse(t, `{"id":"a","pk":"p"}`)}); err != nil {
		t.Fatal(err)
	}
	c, err := s.ReplaceContainer(context.Background(), "db", "items", parse(t, strings.Replace(plain, "{", `{"defaultTtl":60,`, 1)), "")
	if err != nil {
		t.Fatal(err)
	}
	now.seconds.Add(60)
	if _, _, err := s.Get(c, key("p"), "a"); kindOf(err) != NotFound {
		t.Errorf("got %v, want not found", err)
	}
	if due, err := s.expiryDue(c); err != nil || !due {
		t.Errorf("the expiry index does not know the item: %v, %v", due, err)
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
