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

// maxNameLength is the service's limit for IDs of databases and containers.
const maxNameLength = 255

// defaultThroughput is the throughput in RU/s of a container that is created without one.
const defaultThroughput = 400

// validateName returns an error if name is not a valid ID of a database or container.
func validateName(name string) error {
	switch {
	case name == "":
		return NewError(BadRequest, "%s", msgMissingID)
	case len(name) > maxNameLength:
		return NewError(BadRequest, "The id is longer than %d characters.", maxNameLength)
	case strings.ContainsAny(name, `/\#?`) || strings.HasSuffix(name, " "):
		return NewError(BadRequest, `The id contains one of the characters '/', '\', '#', '?' or ends with a space.`)
	}
	return nil
}

// newRID returns a random resource ID with a prefix. It is random, so that a recreated resource never has the ID of its
// predecessor.
func newRID(prefix []byte, n int) []byte {
	rid := make([]byte, n)
	copy(rid, prefix)
	_, _ = rand.Read(rid[len(prefix):]) // never fails (crypto/rand)
	return rid
}

// putJSON stores v as JSON.
func putJSON(b *bolt.Bucket, key []byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}

// CreateDatabase creates a database, with an offer if throughput is requested.
func (s *Store) CreateDatabase(ctx context.Context, name string, t Throughput) (*Database, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	var d *Database
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		if next.databases[name] != nil {
			return NewError(Conflict, "%s", msgConflict)
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

// DeleteDatabase deletes a database with all of its containers.
func (s *Store) DeleteDatabase(ctx context.Context, name, ifMatch string) error {
	return s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d := next.databases[name]
		if d == nil {
			return NewError(NotFound, "%s", msgNotFound)
		}
		if !matchesETag(ifMatch, d.ETag()) {
			return NewError(PreconditionFailed, "%s", msgPrecondition)
		}
		for _, c := range d.containers {
			if err := deleteContainerData(tx, next, c); err != nil {
				return err
			}
		}
		delete(next.databases, name)
		if err := deleteOffer(tx, next, d.ID()); err != nil {
			return err
		}
		return tx.Bucket(bucketDatabases).Delete([]byte(name))
	})
}

// CreateContainer creates a container with the properties of a client's request.
func (s *Store) CreateContainer(ctx context.Context, database string, props document.Value, t Throughput) (*Container, error) {
	name := props.Get("id").Str
	if err := validateName(name); err != nil {
		return nil, err
	}
	var c *Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d := next.databases[database]
		if d == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		if d.containers[name] != nil {
			return NewError(Conflict, "%s", msgConflict)
		}
		b := tx.Bucket(bucketContainers)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		c = &Container{Name: name, RID: newRID(d.RID, 8), TS: s.timestamp(), Seq: seq,
			Raw: document.Append(nil, withContainerDefaults(props))}
		if err := c.parseProperties(); err != nil {
			return err
		}
		shared := next.offers[d.ID()] != nil
		if t.isZero() && !shared {
			t = Throughput{Manual: defaultThroughput}
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
				return fmt.Errorf("creating a bucket: %w", err)
			}
		}
		return putJSON(b, c.RID, c)
	})
	return c, err
}

// with returns a copy of the database with a container added or replaced. All of its containers refer to the copy.
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

// withContainerDefaults adds the properties that the service sets by default.
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

// ReplaceContainer changes the properties of a container. The partition key and the unique keys are immutable.
func (s *Store) ReplaceContainer(ctx context.Context, database, name string, props document.Value, ifMatch string) (*Container, error) {
	var c *Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, old, err := next.container(database, name)
		if err != nil {
			return err
		}
		if !matchesETag(ifMatch, old.ETag()) {
			return NewError(PreconditionFailed, "%s", msgPrecondition)
		}
		if props.Get("id").Str != old.Name {
			return NewError(BadRequest, "The container's id cannot be changed.")
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
		if err := c.parseProperties(); err != nil {
			return err
		}
		if !document.Equal(c.Properties.Get("partitionKey").Get("paths"), old.Properties.Get("partitionKey").Get("paths")) ||
			c.PK.Version != old.PK.Version {
			return NewError(BadRequest, "The container's partition key definition cannot be changed.")
		}
		if !document.Equal(c.Properties.Get("uniqueKeyPolicy"), old.Properties.Get("uniqueKeyPolicy")) {
			return NewError(BadRequest, "The container's unique key policy cannot be changed.")
		}
		if err := rebuildExpiry(tx, c); err != nil {
			return err
		}
		next.databases[d.Name] = d.with(c)
		return putJSON(b, c.RID, c)
	})
	return c, err
}

// DeleteContainer deletes a container with its items.
func (s *Store) DeleteContainer(ctx context.Context, database, name, ifMatch string) error {
	return s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, c, err := next.container(database, name)
		if err != nil {
			return err
		}
		if !matchesETag(ifMatch, c.ETag()) {
			return NewError(PreconditionFailed, "%s", msgPrecondition)
		}
		if err := deleteContainerData(tx, next, c); err != nil {
			return err
		}
		changed := *d
		changed.containers = maps.Clone(d.containers)
		delete(changed.containers, name)
		next.databases[d.Name] = &changed
		return nil
	})
}

// container returns a container and its database.
func (cat *catalog) container(database, name string) (*Database, *Container, error) {
	d := cat.databases[database]
	if d == nil || d.containers[name] == nil {
		return nil, nil, NewError(NotFound, "%s", msgNotFound)
	}
	return d, d.containers[name], nil
}

// deleteContainerData deletes the buckets, the offer and the description of a container.
func deleteContainerData(tx *bolt.Tx, next *catalog, c *Container) error {
	for _, name := range c.buckets() {
		if err := tx.DeleteBucket(name); err != nil {
			return fmt.Errorf("deleting a bucket: %w", err)
		}
	}
	if err := deleteOffer(tx, next, c.ID()); err != nil {
		return err
	}
	return tx.Bucket(bucketContainers).Delete(c.RID)
}

// deleteOffer deletes the offer of a resource, if it has one.
func deleteOffer(tx *bolt.Tx, next *catalog, resourceID string) error {
	o := next.offers[resourceID]
	if o == nil {
		return nil
	}
	delete(next.offers, resourceID)
	return tx.Bucket(bucketOffers).Delete([]byte(o.RID))
}

// putOffer creates or replaces the offer of a resource.
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

// ReplaceOffer changes the throughput. If it requires more physical partitions, the container is split, as in the
// service. Items do not move; only the reported ranges change.
func (s *Store) ReplaceOffer(ctx context.Context, rid string, t Throughput, ifMatch string) (*Offer, error) {
	if t.isZero() {
		return nil, NewError(BadRequest, "The offer has no throughput.")
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
			return NewError(NotFound, "%s", msgNotFound)
		}
		if !matchesETag(ifMatch, out.ETag()) {
			return NewError(PreconditionFailed, "%s", msgPrecondition)
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

// Split divides a physical partition of a container in two, as the service does when a partition grows.
func (s *Store) Split(ctx context.Context, database, name, rangeID string) (*Container, error) {
	var grown Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next *catalog) error {
		d, c, err := next.container(database, name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(c.Ranges, func(r PhysicalRange) bool { return r.ID == rangeID })
		if at < 0 {
			return NewError(NotFound, "Container %s has no partition key range %s.", name, rangeID)
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

// widest returns the index of the first of the widest ranges, which is split next.
func (c *Container) widest() int {
	at := 0
	for i, r := range c.Ranges {
		if c.PK.Width(r.Range()) > c.PK.Width(c.Ranges[at].Range()) {
			at = i
		}
	}
	return at
}

// split replaces the range at index at by two ranges with new IDs, at the same position of the list.
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
