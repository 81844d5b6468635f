package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

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
