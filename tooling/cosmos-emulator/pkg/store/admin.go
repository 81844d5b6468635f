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
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// maxNameLength is the service's limit for IDs of databases and containers.
const maxNameLength = 255

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

// CreateDatabase creates a database.
func (s *Store) CreateDatabase(ctx context.Context, name string) (*Database, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	var d *Database
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next catalog) error {
		if next[name] != nil {
			return NewError(Conflict, "%s", msgConflict)
		}
		b := tx.Bucket(bucketDatabases)
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		d = &Database{Name: name, RID: newRID(nil, 4), TS: s.timestamp(), Seq: seq, containers: map[string]*Container{}}
		next[name] = d
		return putJSON(b, []byte(name), d)
	})
	return d, err
}

// DeleteDatabase deletes a database with all of its containers.
func (s *Store) DeleteDatabase(ctx context.Context, name string) error {
	return s.changeCatalog(ctx, func(tx *bolt.Tx, next catalog) error {
		d := next[name]
		if d == nil {
			return NewError(NotFound, "%s", msgNotFound)
		}
		for _, c := range d.containers {
			for _, bucket := range c.buckets() {
				if err := tx.DeleteBucket(bucket); err != nil {
					return fmt.Errorf("deleting a bucket: %w", err)
				}
			}
			if err := tx.Bucket(bucketContainers).Delete(c.RID); err != nil {
				return err
			}
		}
		delete(next, name)
		return tx.Bucket(bucketDatabases).Delete([]byte(name))
	})
}

// CreateContainer creates a container with the properties of a client's request.
func (s *Store) CreateContainer(ctx context.Context, database string, props document.Value) (*Container, error) {
	name := props.Get("id").Str
	if err := validateName(name); err != nil {
		return nil, err
	}
	supported := append([]string{"id", "partitionKey", "defaultTtl", "indexingPolicy"}, systemProperties...)
	for _, m := range props.Obj {
		if !slices.Contains(supported, m.Name) {
			return nil, NewError(BadRequest, "The property '%s' of a container is not supported.", m.Name)
		}
	}
	var c *Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next catalog) error {
		d := next[database]
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
		c = &Container{Name: name, RID: newRID(d.RID, 8), TS: s.timestamp(), Seq: seq, Raw: document.Append(nil, withContainerDefaults(props)),
			Ranges: []PhysicalRange{{ID: "0", Max: partition.MaxEPK}}, RangeSeq: 1}
		if err := c.parseProperties(); err != nil {
			return err
		}
		next[database] = d.with(c)
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
	return props
}

// Split divides a physical partition of a container in two, as the service does when a partition grows.
func (s *Store) Split(ctx context.Context, database, name, rangeID string) (*Container, error) {
	var grown Container
	err := s.changeCatalog(ctx, func(tx *bolt.Tx, next catalog) error {
		d := next[database]
		if d == nil || d.containers[name] == nil {
			return NewError(NotFound, "%s", msgNotFound)
		}
		c := d.containers[name]
		at := slices.IndexFunc(c.Ranges, func(r PhysicalRange) bool { return r.ID == rangeID })
		if at < 0 {
			return NewError(NotFound, "Container %s has no partition key range %s.", name, rangeID)
		}
		grown = *c
		if err := grown.split(at); err != nil {
			return err
		}
		next[d.Name] = d.with(&grown)
		return putJSON(tx.Bucket(bucketContainers), grown.RID, &grown)
	})
	return &grown, err
}

var errTooNarrow = errors.New("the partition key range is too narrow to be split")

// split replaces the range at index at by two ranges with new IDs, at the same position of the list.
func (c *Container) split(at int) error {
	old := c.Ranges[at]
	left, right, ok := old.Range().Halve()
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
