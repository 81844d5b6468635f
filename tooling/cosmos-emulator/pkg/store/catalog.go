package store

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// catalog is the set of databases by their names at one time. It is immutable: the writer replaces it after a
// commit, and readers load it without a lock.
type catalog map[string]*Database

// Database is a namespace of containers. It is immutable.
type Database struct {
	Name string `json:"name"`
	RID  []byte `json:"rid"` // 4 bytes
	TS   int64  `json:"ts"`
	Seq  uint64 `json:"seq"` // for the ETag

	containers map[string]*Container
}

// Container describes a container. It is immutable. key is the prefix of the buckets with its items.
type Container struct {
	Database *Database       `json:"-"`
	Name     string          `json:"name"`
	RID      []byte          `json:"rid"` // 8 bytes, the first 4 are the database's
	TS       int64           `json:"ts"`
	Seq      uint64          `json:"seq"`
	Ranges   []PhysicalRange `json:"ranges"`
	// RangeSeq grows with every split. It is the version of the list of ranges and the number of the next range.
	RangeSeq int             `json:"rangeSeq"`
	Raw      json.RawMessage `json:"properties"`

	Properties document.Value `json:"-"` // as set by the client, without system properties
	PK         partition.Path `json:"-"`
	// DefaultTTL is in seconds. nil disables expiry, and -1 expires only items with their own TTL.
	DefaultTTL *int64 `json:"-"`
	key        string
}

// PhysicalRange is a physical partition: an interval of the EPK space. Parents lists the ranges from which it was split.
type PhysicalRange struct {
	ID      string   `json:"id"`
	Min     string   `json:"min"`
	Max     string   `json:"max"`
	Parents []string `json:"parents,omitempty"`
}

// encodeRID returns a resource ID in the encoding of the service.
func encodeRID(rid []byte) string {
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(rid), "/", "-")
}

// ID returns the resource ID in the encoding of the service.
func (d *Database) ID() string { return encodeRID(d.RID) }

// ETag returns the version of the database.
func (d *Database) ETag() string { return metaETag(d.RID, d.Seq) }

// Self returns the link of the database, made of resource IDs.
func (d *Database) Self() string { return "dbs/" + d.ID() + "/" }

// ID returns the resource ID in the encoding of the service.
func (c *Container) ID() string { return encodeRID(c.RID) }

// ETag returns the version of the container.
func (c *Container) ETag() string { return metaETag(c.RID, c.Seq) }

// Self returns the link of the container, made of resource IDs.
func (c *Container) Self() string { return c.Database.Self() + "colls/" + c.ID() + "/" }

// Range returns the interval of the range.
func (r PhysicalRange) Range() partition.Range { return partition.Range{Min: r.Min, Max: r.Max} }

// metaETag returns the ETag of a resource that is not an item.
func metaETag(rid []byte, seq uint64) string {
	var head [4]byte
	copy(head[:], rid[max(0, len(rid)-4):])
	return fmt.Sprintf("\"%x-0000-0000-0000-%012x\"", head, seq)
}

// Range returns the physical partition with an ID. The error is Gone if the partition was split or never existed.
func (c *Container) Range(id string) (PhysicalRange, error) {
	for _, r := range c.Ranges {
		if r.ID == id {
			return r, nil
		}
	}
	return PhysicalRange{}, &Error{Kind: Gone, SubStatus: SubStatusPartitionRangeGone,
		Message: fmt.Sprintf("Partition key range %s of container %s does not exist or was split.", id, c.Name)}
}

// RangeOf returns the physical partition that contains an EPK.
func (c *Container) RangeOf(epk string) PhysicalRange {
	for _, r := range c.Ranges {
		if r.Range().Contains(epk) {
			return r
		}
	}
	return c.Ranges[len(c.Ranges)-1] // unreachable: the ranges cover the space
}

// parseProperties sets the fields that are derived from Raw and RID.
func (c *Container) parseProperties() error {
	c.key = string(c.RID)
	v, err := document.Parse(c.Raw)
	if err != nil {
		return fmt.Errorf("container properties: %w", err)
	}
	if v.Kind != document.Object {
		return NewError(BadRequest, "The container's properties are not a JSON object.")
	}
	c.Properties = v
	if c.PK, err = parseDefinition(v.Get("partitionKey")); err != nil {
		return err
	}
	if ttl := v.Get("defaultTtl"); ttl.IsDefined() && ttl.Kind != document.Null {
		n, ok := ttlSeconds(ttl)
		if !ok {
			return NewError(BadRequest, "The value of defaultTtl must be -1 or a positive number of seconds.")
		}
		c.DefaultTTL = &n
	}
	return nil
}

// ttlSeconds returns a TTL, which must be -1 or a positive integer.
func ttlSeconds(v document.Value) (int64, bool) {
	n := int64(v.Num)
	ok := v.Kind == document.Number && float64(n) == v.Num && (n == -1 || n > 0) && n <= 1<<31-1
	return n, ok
}

// parseDefinition parses a partition key definition. The service's default version is 1; here it is 2, the only supported one.
func parseDefinition(v document.Value) (partition.Path, error) {
	paths, kind, version := v.Get("paths").Arr, v.Get("kind"), v.Get("version")
	if len(paths) != 1 || kind.IsDefined() && kind.Str != "Hash" || version.IsDefined() && version.Num != 2 {
		return nil, NewError(BadRequest, "The partition key definition is not supported: it must have one path, the kind Hash and the version 2.")
	}
	path, err := partition.ParsePath(paths[0].Str)
	if err != nil {
		return nil, NewError(BadRequest, "The partition key definition is invalid: %v", err)
	}
	return path, nil
}

// Database returns the database with a name.
func (s *Store) Database(name string) (*Database, error) {
	if d := (*s.catalog.Load())[name]; d != nil {
		return d, nil
	}
	return nil, &Error{Kind: NotFound, Message: msgNotFound}
}

// Container returns a container by the names of itself and its database.
func (s *Store) Container(database, name string) (*Container, error) {
	if d := (*s.catalog.Load())[database]; d != nil && d.containers[name] != nil {
		return d.containers[name], nil
	}
	return nil, &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
}
