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
		expiresIn   int64 // seconds; 0 means never
		reason      string
	}{
		"off":              {``, `"ttl":5`, 0, "the container has no expiry"},
		"default":          {`,"defaultTtl":10`, `"x":1`, 10, "the TTL of the container"},
		"own":              {`,"defaultTtl":10`, `"ttl":5`, 5, "the TTL of the item takes precedence"},
		"own longer":       {`,"defaultTtl":10`, `"ttl":50`, 50, "the TTL of the item takes precedence"},
		"own never":        {`,"defaultTtl":10`, `"ttl":-1`, 0, "-1 disables expiry"},
		"only own":         {`,"defaultTtl":-1`, `"ttl":5`, 5, "-1 expires only items with a TTL"},
		"only own, absent": {`,"defaultTtl":-1`, `"x":1`, 0, "the item has no TTL"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var now clock
			now.seconds.Store(1_000_000)
			s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
			c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash"},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}`+tc.props+`}`, 0)
			body := parse(t, `{"id":"a","pk":"p","u":1,`+tc.item+`}`)
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: body}); err != nil {
				t.Fatal(err)
			}
			checkVisible := func(want bool) {
				t.Helper()
				_, _, err := s.Get(c, key("p"), "a")
				d := dump(t, s, c)
				if (err == nil) != want || (len(d.Scan) == 1) != want || (len(d.Feed) == 1) != want {
					t.Errorf("read %v, scan %d, feed %d; want visible %v: %s", err, len(d.Scan), len(d.Feed), want, tc.reason)
				}
			}
			ttl := tc.expiresIn
			if ttl == 0 {
				ttl = 1 << 40
			}
			now.seconds.Add(ttl - 1)
			checkVisible(true)
			now.seconds.Add(1)
			checkVisible(tc.expiresIn == 0)
			if tc.expiresIn == 0 {
				return
			}
			// The ID and the unique key are available at once, before the item is removed.
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: parse(t, `{"id":"b","pk":"p","u":1,"ttl":-1}`)}); err != nil {
				t.Errorf("the unique key is not available: %v", err)
			}
			if err := s.removeAllExpired(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			if due, err := s.hasExpired(c); err != nil || due {
				t.Errorf("after the removal, hasExpired is %v, %v", due, err)
			}
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: parse(t, `{"id":"c","pk":"p","u":1}`)}); kindOf(err) != Conflict {
				t.Errorf("the removal deleted the unique key of another item: %v", err)
			}
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: parse(t, `{"id":"a","pk":"p","u":2}`)}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUniqueKeysOfExpiredItems recreates items with the ID of an expired item that was not removed yet.
func TestUniqueKeysOfExpiredItems(t *testing.T) {
	var now clock
	now.seconds.Store(1_000_000)
	s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
	c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash"},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}`, 0)
	put := func(id string, u, ttl int) Kind {
		t.Helper()
		_, err := do(s, c, "p", Operation{Verb: Upsert, Body: parse(t, fmt.Sprintf(`{"id":%q,"pk":"p","u":%d,"ttl":%d}`, id, u, ttl))})
		return kindOf(err)
	}
	put("a", 1, 5)
	now.seconds.Add(5)
	put("a", 2, -1)
	if got := put("b", 1, -1); got != 0 {
		t.Errorf("the unique key of the expired item is not available: kind %d", got)
	}
	if got := put("c", 2, -1); got != Conflict {
		t.Errorf("the unique key of the new item is available: kind %d", got)
	}
	put("d", 3, 5)
	now.seconds.Add(5)
	put("e", 3, -1) // reuses the unique key of d
	put("d", 4, -1) // must not delete the unique key of e
	if got := put("f", 3, -1); got != Conflict {
		t.Errorf("the unique key of another item was deleted: kind %d", got)
	}
}

func TestChangedDefaultTTLAppliesToExistingItems(t *testing.T) {
	var now clock
	now.seconds.Store(1_000_000)
	s := open(t, filepath.Join(t.TempDir(), "db"), now.now)
	c := container(t, s, plain, 0)
	if _, err := do(s, c, "p", Operation{Verb: Create, Body: parse(t, `{"id":"a","pk":"p"}`)}); err != nil {
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
	if due, err := s.hasExpired(c); err != nil || !due {
		t.Errorf("the item is not in the expiry index: %v, %v", due, err)
	}
}
