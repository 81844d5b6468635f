package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestChangeFeedIsComplete reads the feed of every physical partition during concurrent writes. The feed must return the
// last version of every item, versions of an item in order, and no part of a transaction.
func TestChangeFeedIsComplete(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	container(t, s, plain)
	c := must.Get(s.Split(t.Context(), "db", "items", "0"))(t)
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
				var ops []Operation
				for i := range 1 + r.IntN(3) {
					ops = append(ops, Operation{Verb: Upsert, Body: parse(t, fmt.Sprintf(`{"id":"%d-%d","pk":"%s","n":%d,"tx":"%d/%d"}`, w, i, pk, n, w, n))})
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
						t.Errorf("%s: version %v after %v", id, v.Get("n").Num, old)
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
					last = true // read once more after the last write
				default:
				}
			}
		}()
	}
	reading.Wait()
	missing := 0
	final.Range(func(id, n any) bool {
		if got, ok := seen.Load(id); !ok || got != n {
			t.Errorf("%v: the feed ended at version %v, the item has version %v", id, got, n)
			missing++
		}
		return missing < 10
	})
}

func TestPagesContainWholeTransactions(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain)
	for n := range 4 {
		var ops []Operation
		for i := range 5 {
			ops = append(ops, Operation{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"%d-%d","pk":"p"}`, n, i))})
		}
		must.Get(do(s, c, "p", ops...))(t)
	}
	after, pages := uint64(0), []int{}
	for {
		page := must.Get(s.ChangesAfter(c, Scope{}, after, 0, 6, 1<<20))(t)
		if len(page.Items) == 0 {
			break
		}
		pages, after = append(pages, len(page.Items)), page.LSN
	}
	if diff := cmp.Diff([]int{10, 10}, pages); diff != "" {
		t.Errorf("pages of at most 6 rounded up to whole transactions: %s", diff)
	}
	if _, err := s.ChangesAfter(c, Scope{}, after+1, 0, 6, 1<<20); kindOf(err) != BadRequest {
		t.Errorf("a continuation of another container: %v", err)
	}
}

func TestChangeFeedContinuesAfterSplit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"), nil)
	c := container(t, s, plain)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			pk := fmt.Sprint("k", i)
			must.Get(do(s, c, pk, Operation{Verb: Create, Body: parse(t, fmt.Sprintf(`{"id":"i","pk":"%s"}`, pk))}))(t)
		}
	}
	write(0, 10)
	page, err := s.ChangesAfter(c, Scope{Range: c.Ranges[0].Range()}, 0, 0, 100, 1<<20)
	if err != nil || len(page.Items) != 10 {
		t.Fatalf("%d items, %v", len(page.Items), err)
	}
	grown := must.Get(s.Split(context.Background(), "db", "items", "0"))(t)
	if _, err := grown.Range("0"); kindOf(err) != Gone {
		t.Errorf("the parent's range: %v, want Gone", err)
	}
	write(10, 30)
	got := 0
	for _, r := range grown.Ranges {
		if diff := cmp.Diff([]string{"0"}, r.Parents); diff != "" {
			t.Errorf("parents: %s", diff)
		}
		next := must.Get(s.ChangesAfter(grown, Scope{Range: r.Range()}, page.LSN, 0, 100, 1<<20))(t)
		if len(next.Items) == 0 {
			t.Errorf("range %s is empty: the halves are uneven", r.ID)
		}
		got += len(next.Items)
	}
	if got != 20 {
		t.Errorf("the children's feeds have %d items after the parent's continuation, want 20", got)
	}
}
