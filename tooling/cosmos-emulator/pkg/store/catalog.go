package store

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// catalog is the set of databases, containers and offers at one time. It is immutable: the writer replaces it after a
// commit, and readers load it without a lock.
type catalog struct {
	databases map[string]*Database
	offers    map[string]*Offer // by the RID of their database or container
}

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

	Properties document.Value       `json:"-"` // as set by the client, without system properties
	PK         partition.Definition `json:"-"`
	UniqueKeys [][]partition.Path   `json:"-"`
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

// Offer is the provisioned throughput of a database or container.
type Offer struct {
	RID        string `json:"rid"`
	ResourceID string `json:"resourceId"` // RID of its database or container
	Resource   string `json:"resource"`   // self link of its database or container
	Manual     int    `json:"manual,omitempty"`
	AutoMax    int    `json:"autoMax,omitempty"`
	Increment  int    `json:"increment,omitempty"`
	TS         int64  `json:"ts"`
	Seq        uint64 `json:"seq"`
}

// Throughput is a requested throughput; the zero value requests none.
type Throughput struct {
	Manual    int // RU/s
	AutoMax   int // RU/s
	Increment int // percent
}

func (t Throughput) isZero() bool { return t.Manual == 0 && t.AutoMax == 0 }

// throughputPerPartition is the throughput of one physical partition in RU/s. More throughput requires more partitions.
const throughputPerPartition = 10000

// partitions returns the number of physical partitions that the throughput requires.
func (t Throughput) partitions() int {
	return max(1, (max(t.Manual, t.AutoMax)+throughputPerPartition-1)/throughputPerPartition)
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

// ETag returns the version of the offer.
func (o *Offer) ETag() string { return metaETag([]byte(o.RID), o.Seq) }

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
	pk := v.Get("partitionKey")
	if c.PK, err = parseDefinition(pk); err != nil {
		return err
	}
	if ttl := v.Get("defaultTtl"); ttl.IsDefined() && ttl.Kind != document.Null {
		n, ok := ttlSeconds(ttl)
		if !ok {
			return NewError(BadRequest, "The value of defaultTtl must be -1 or a positive number of seconds.")
		}
		c.DefaultTTL = &n
	}
	for _, uk := range v.Get("uniqueKeyPolicy").Get("uniqueKeys").Arr {
		var paths []partition.Path
		for _, p := range uk.Get("paths").Arr {
			path, err := partition.ParsePath(p.Str)
			if err != nil {
				return NewError(BadRequest, "uniqueKeyPolicy: %v", err)
			}
			paths = append(paths, path)
		}
		if len(paths) == 0 {
			return NewError(BadRequest, "uniqueKeyPolicy: a unique key needs at least one path")
		}
		c.UniqueKeys = append(c.UniqueKeys, paths)
	}
	return nil
}

// ttlSeconds returns a TTL, which must be -1 or a positive integer.
func ttlSeconds(v document.Value) (int64, bool) {
	n := int64(v.Num)
	ok := v.Kind == document.Number && float64(n) == v.Num && (n == -1 || n > 0) && n <= 1<<31-1
	return n, ok
}

// maxPathsPerKey is the service's limit for hierarchical partition keys.
const maxPathsPerKey = 3

// parseDefinition parses a partition key definition.
func parseDefinition(v document.Value) (partition.Definition, error) {
	d := partition.Definition{Kind: v.Get("kind").Str, Version: 1}
	if ver := v.Get("version"); ver.IsDefined() {
		if ver.Kind != document.Number || ver.Num != 1 && ver.Num != 2 {
			return d, NewError(BadRequest, "The partition key definition's version must be 1 or 2.")
		}
		d.Version = int(ver.Num)
	}
	for _, p := range v.Get("paths").Arr {
		path, err := partition.ParsePath(p.Str)
		if err != nil {
			return d, NewError(BadRequest, "The partition key definition is invalid: %v", err)
		}
		d.Paths = append(d.Paths, path)
	}
	if d.Kind == "" {
		d.Kind = partition.KindHash
	}
	switch {
	case len(d.Paths) == 0:
		return d, NewError(BadRequest, "The container needs a partition key definition with at least one path.")
	case d.Kind == partition.KindHash && len(d.Paths) > 1:
		return d, NewError(BadRequest, "A partition key of the kind Hash has exactly one path; use MultiHash for a hierarchical key.")
	case d.Kind == partition.KindMultiHash && len(d.Paths) > maxPathsPerKey:
		return d, NewError(BadRequest, "A hierarchical partition key has at most %d paths.", maxPathsPerKey)
	case d.Kind == partition.KindMultiHash:
		d.Version = 2
	case d.Kind != partition.KindHash:
		return d, NewError(BadRequest, "Partition key kind %q is not supported.", d.Kind)
	}
	return d, nil
}

// Databases returns the databases, sorted by name.
func (s *Store) Databases() []*Database {
	all := slices.Collect(maps.Values(s.catalog.Load().databases))
	slices.SortFunc(all, func(a, b *Database) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Containers returns the containers of the database, sorted by name.
func (d *Database) Containers() []*Container {
	all := slices.Collect(maps.Values(d.containers))
	slices.SortFunc(all, func(a, b *Container) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Database returns the database with a name or a resource ID.
func (s *Store) Database(name string) (*Database, error) {
	cat := s.catalog.Load()
	if d := cat.databases[name]; d != nil {
		return d, nil
	}
	for _, d := range cat.databases {
		if d.ID() == name {
			return d, nil
		}
	}
	return nil, &Error{Kind: NotFound, Message: msgNotFound}
}

// Container returns a container by the names or the resource IDs of itself and its database.
func (s *Store) Container(database, name string) (*Container, error) {
	d, err := s.Database(database)
	if err != nil {
		return nil, &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
	}
	if c := d.containers[name]; c != nil {
		return c, nil
	}
	for _, c := range d.containers {
		if c.ID() == name {
			return c, nil
		}
	}
	return nil, &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
}

// Offers returns the offers, sorted by ID.
func (s *Store) Offers() []*Offer {
	all := slices.Collect(maps.Values(s.catalog.Load().offers))
	slices.SortFunc(all, func(a, b *Offer) int { return strings.Compare(a.RID, b.RID) })
	return all
}

// Offer returns the offer with an ID. Clients may have changed the ID to lower case.
func (s *Store) Offer(rid string) (*Offer, error) {
	for _, o := range s.catalog.Load().offers {
		if strings.EqualFold(o.RID, rid) {
			return o, nil
		}
	}
	return nil, &Error{Kind: NotFound, Message: msgNotFound}
}
