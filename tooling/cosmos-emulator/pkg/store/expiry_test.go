package store

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
			path := filepath.Join(t.TempDir(), "db")
			s := open(t, path, now.now)
			c := container(t, s, `{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash"}`+tc.props+`}`)
			body := parse(t, `{"id":"a","pk":"p",`+tc.item+`}`)
			must.Get(do(s, c, "p", Operation{Verb: Create, Body: body}))(t)
			checkVisible := func(want bool) {
				t.Helper()
				_, _, err := s.Get(c, "p", "a")
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
			must.Do(t, s.Close())
			s = open(t, path, now.now)
			c = must.Get(s.Container(c.Database.Name, c.Name))(t)
			must.Do(t, s.db.View(func(tx *bolt.Tx) error {
				for _, bucket := range c.buckets() {
					if n := tx.Bucket(bucket).Stats().KeyN; n > 0 {
						t.Errorf("the bucket %c has %d entries of expired items", bucket[0], n)
					}
				}
				return nil
			}))
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: body}); err != nil {
				t.Error(err)
			}
			now.seconds.Add(ttl)
			// The ID is available at once, before the item is removed.
			if _, err := do(s, c, "p", Operation{Verb: Create, Body: parse(t, `{"id":"a","pk":"p","ttl":-1}`)}); err != nil {
				t.Errorf("the ID of the expired item is not available: %v", err)
			}
			checkVisible(true) // its expiry was that of its predecessor
		})
	}
}
