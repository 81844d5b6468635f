package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// maxNameLength is the service's limit for ids of databases and containers.
const maxNameLength = 255

// defaultRU is what a container gets when nobody asked for throughput.
const defaultRU = 400

func checkName(name string) error {
	switch {
	case name == "":
		return Refuse(BadRequest, "%s", msgMissingID)
	case len(name) > maxNameLength:
		return Refuse(BadRequest, "The id is longer than %d characters.", maxNameLength)
	case strings.ContainsAny(name, `/\#?`) || strings.HasSuffix(name, " "):
		return Refuse(BadRequest, `The id contains one of the characters '/', '\', '#', '?' or ends with a space.`)
	}
	return nil
}

// newRID draws random bytes that begin with prefix; random, so that nothing created again under an old name can be
// mistaken for what was there before.
func newRID(prefix []byte, n int) []byte {
	rid := make([]byte, n)
	copy(rid, prefix)
	_, _ = rand.Read(rid[len(prefix):]) // never fails (crypto/rand)
	return rid
}

func putJSON(b *bolt.Bucket, key []byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}

// CreateDatabase creates a database, with an offer when throughput is asked for.
func (s *Store) CreateDatabase(ctx context.Context, name string, t Throughput) (*Database, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	var d *Database
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		if next.databases[name] != nil {
			return Refuse(Conflict, "%s", msgConflict)
		}
		b := tx.Bucket(bucketDatabases)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		d = &Database{Name: name, RID: newRID(nil, 4), TS: s.timestamp(), Seq: seq, containers: map[string]*Container{}}
		next.databases[name] = d
		if !t.isZero() {
			if err := s.putOffer(tx, next, d.ID(), d.Self(), t); err != nil {
				return err
			}
		}
		return putJSON(b, []byte(name), d)
	})
	return d, err
}

// DeleteDatabase removes a database with everything in it.
func (s *Store) DeleteDatabase(ctx context.Context, name, ifMatch string) error {
	return s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d := next.databases[name]
		if d == nil {
			return Refuse(NotFound, "%s", msgNotFound)
		}
		if !matches(ifMatch, d.ETag()) {
			return Refuse(PreconditionFailed, "%s", msgPrecondition)
		}
		for _, c := range d.containers {
			if err := dropContainer(tx, next, c); err != nil {
				return err
			}
		}
		delete(next.databases, name)
		if err := dropOffer(tx, next, d.ID()); err != nil {
			return err
		}
		return tx.Bucket(bucketDatabases).Delete([]byte(name))
	})
}

// CreateContainer creates a container from the properties a client sent.
func (s *Store) CreateContainer(ctx context.Context, database string, props document.Value, t Throughput) (*Container, error) {
	name := props.Get("id").Str
	if err := checkName(name); err != nil {
		return nil, err
	}
	var c *Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d := next.databases[database]
		if d == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		if d.containers[name] != nil {
			return Refuse(Conflict, "%s", msgConflict)
		}
		b := tx.Bucket(bucketContainers)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		c = &Container{Name: name, RID: newRID(d.RID, 8), TS: s.timestamp(), Seq: seq,
			Raw: document.Append(nil, withContainerDefaults(props))}
		if err := c.complete(); err != nil {
			return err
		}
		shared := next.offers[d.ID()] != nil
		if t.isZero() && !shared {
			t = Throughput{Manual: defaultRU}
		}
		for _, r := range c.PK.Split(t.partitions()) {
			c.Ranges = append(c.Ranges, PhysicalRange{ID: strconv.Itoa(c.RangeSeq), Min: r.Min, Max: r.Max})
			c.RangeSeq++
		}
		d = d.with(c)
		next.databases[database] = d
		if !t.isZero() {
			if err := s.putOffer(tx, next, c.ID(), c.Self(), t); err != nil {
				return err
			}
		}
		for _, name := range c.buckets() {
			if _, err := tx.CreateBucket(name); err != nil {
				return fmt.Errorf("create bucket: %w", err)
			}
		}
		return putJSON(b, c.RID, c)
	})
	return c, err
}

// with is the database with the container added or replaced. Every container points at the new value.
func (d *Database) with(c *Container) *Database {
	next := *d
	next.containers = maps.Clone(d.containers)
	next.containers[c.Name] = c
	for name, old := range next.containers {
		moved := *old
		moved.Database = &next
		if old == c {
			*c = moved
			continue
		}
		next.containers[name] = &moved
	}
	return &next
}

// withContainerDefaults fills in what the service reports for properties a client left out.
func withContainerDefaults(props document.Value) document.Value {
	props = props.Without(systemProperties...)
	if !props.Get("indexingPolicy").IsDefined() {
		policy, err := document.Parse([]byte(`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`))
		if err == nil {
			props = props.With("indexingPolicy", policy)
		}
	}
	if !props.Get("conflictResolutionPolicy").IsDefined() {
		policy, err := document.Parse([]byte(`{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}`))
		if err == nil {
			props = props.With("conflictResolutionPolicy", policy)
		}
	}
	return props
}

// ReplaceContainer changes a container's properties; its partition key and unique keys cannot change.
func (s *Store) ReplaceContainer(ctx context.Context, database, name string, props document.Value, ifMatch string) (*Container, error) {
	var c *Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, old, err := next.container(database, name)
		if err != nil {
			return err
		}
		if !matches(ifMatch, old.ETag()) {
			return Refuse(PreconditionFailed, "%s", msgPrecondition)
		}
		if props.Get("id").Str != old.Name {
			return Refuse(BadRequest, "The container's id cannot be changed.")
		}
		if !props.Get("uniqueKeyPolicy").IsDefined() && old.Properties.Get("uniqueKeyPolicy").IsDefined() {
			props = props.With("uniqueKeyPolicy", old.Properties.Get("uniqueKeyPolicy"))
		}
		b := tx.Bucket(bucketContainers)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		copied := *old
		c = &copied
		c.Raw, c.TS, c.Seq, c.UniqueKeys, c.DefaultTTL = document.Append(nil, withContainerDefaults(props)), s.timestamp(), seq, nil, nil
		if err := c.complete(); err != nil {
			return err
		}
		if !document.Equal(c.Properties.Get("partitionKey").Get("paths"), old.Properties.Get("partitionKey").Get("paths")) ||
			c.PK.Version != old.PK.Version {
			return Refuse(BadRequest, "The container's partition key definition cannot be changed.")
		}
		if !document.Equal(c.Properties.Get("uniqueKeyPolicy"), old.Properties.Get("uniqueKeyPolicy")) {
			return Refuse(BadRequest, "The container's unique key policy cannot be changed.")
		}
		if err := rebuildExpiry(tx, c); err != nil {
			return err
		}
		next.databases[d.Name] = d.with(c)
		return putJSON(b, c.RID, c)
	})
	return c, err
}

// DeleteContainer removes a container with its items.
func (s *Store) DeleteContainer(ctx context.Context, database, name, ifMatch string) error {
	return s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, c, err := next.container(database, name)
		if err != nil {
			return err
		}
		if !matches(ifMatch, c.ETag()) {
			return Refuse(PreconditionFailed, "%s", msgPrecondition)
		}
		if err := dropContainer(tx, next, c); err != nil {
			return err
		}
		changed := *d
		changed.containers = maps.Clone(d.containers)
		delete(changed.containers, name)
		next.databases[d.Name] = &changed
		return nil
	})
}

func (cat *catalog) container(database, name string) (*Database, *Container, error) {
	d := cat.databases[database]
	if d == nil || d.containers[name] == nil {
		return nil, nil, Refuse(NotFound, "%s", msgNotFound)
	}
	return d, d.containers[name], nil
}

func dropContainer(tx *bolt.Tx, next *catalog, c *Container) error {
	for _, name := range c.buckets() {
		if err := tx.DeleteBucket(name); err != nil {
			return fmt.Errorf("delete bucket: %w", err)
		}
	}
	if err := dropOffer(tx, next, c.ID()); err != nil {
		return err
	}
	return tx.Bucket(bucketContainers).Delete(c.RID)
}

func dropOffer(tx *bolt.Tx, next *catalog, resourceID string) error {
	o := next.offers[resourceID]
	if o == nil {
		return nil
	}
	delete(next.offers, resourceID)
	return tx.Bucket(bucketOffers).Delete([]byte(o.RID))
}

func (s *Store) putOffer(tx *bolt.Tx, next *catalog, resourceID, self string, t Throughput) error {
	b := tx.Bucket(bucketOffers)
	seq, err := b.NextSequence()
	if err != nil {
		return err
	}
	rid := encodeRID(newRID(nil, 6))
	if old := next.offers[resourceID]; old != nil {
		rid = old.RID
	}
	o := &Offer{RID: rid, ResourceID: resourceID, Resource: self, Manual: t.Manual, AutoMax: t.AutoMax,
		Increment: t.Increment, TS: s.timestamp(), Seq: seq}
	next.offers[resourceID] = o
	return putJSON(b, []byte(rid), o)
}

// ReplaceOffer changes throughput. A container whose new throughput needs more physical partitions than it has is
// split, as the service does; the items do not move, only the ranges they are reported under.
func (s *Store) ReplaceOffer(ctx context.Context, rid string, t Throughput, ifMatch string) (*Offer, error) {
	if t.isZero() {
		return nil, Refuse(BadRequest, "The offer names no throughput.")
	}
	var resourceID string
	var out *Offer
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		for id, o := range next.offers {
			if strings.EqualFold(o.RID, rid) {
				resourceID, out = id, o
			}
		}
		if out == nil {
			return Refuse(NotFound, "%s", msgNotFound)
		}
		if !matches(ifMatch, out.ETag()) {
			return Refuse(PreconditionFailed, "%s", msgPrecondition)
		}
		if err := s.putOffer(tx, next, resourceID, out.Resource, t); err != nil {
			return err
		}
		out = next.offers[resourceID]
		for _, d := range next.databases {
			for _, c := range d.containers {
				if c.ID() != resourceID || len(c.Ranges) >= t.partitions() {
					continue
				}
				grown := *c
				for len(grown.Ranges) < t.partitions() {
					if err := grown.split(grown.widest()); err != nil {
						return err
					}
				}
				next.databases[d.Name] = d.with(&grown)
				return putJSON(tx.Bucket(bucketContainers), grown.RID, &grown)
			}
		}
		return nil
	})
	return out, err
}

// Split divides one physical partition of a container in two, as the service does when it grows.
func (s *Store) Split(ctx context.Context, database, name, rangeID string) (*Container, error) {
	var grown Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, c, err := next.container(database, name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(c.Ranges, func(r PhysicalRange) bool { return r.ID == rangeID })
		if at < 0 {
			return Refuse(NotFound, "Container %s has no partition key range %s.", name, rangeID)
		}
		grown = *c
		if err := grown.split(at); err != nil {
			return err
		}
		next.databases[d.Name] = d.with(&grown)
		return putJSON(tx.Bucket(bucketContainers), grown.RID, &grown)
	})
	return &grown, err
}

var errTooNarrow = errors.New("the partition key range is too narrow to be split")

// widest is the index of the first of the widest ranges: the one to split next.
func (c *Container) widest() int {
	at := 0
	for i, r := range c.Ranges {
		if c.PK.Width(r.Range()) > c.PK.Width(c.Ranges[at].Range()) {
			at = i
		}
	}
	return at
}

// split replaces the range at index at by two. The children get new ids and take the parent's place in the order
// of the space.
func (c *Container) split(at int) error {
	old := c.Ranges[at]
	left, right, ok := c.PK.Halve(old.Range())
	if !ok {
		return errTooNarrow
	}
	parents := append(slices.Clone(old.Parents), old.ID)
	children := []PhysicalRange{
		{ID: strconv.Itoa(c.RangeSeq), Min: left.Min, Max: left.Max, Parents: parents},
		{ID: strconv.Itoa(c.RangeSeq + 1), Min: right.Min, Max: right.Max, Parents: parents},
	}
	c.RangeSeq += 2
	c.Ranges = slices.Concat(c.Ranges[:at], children, c.Ranges[at+1:])
	return nil
}
