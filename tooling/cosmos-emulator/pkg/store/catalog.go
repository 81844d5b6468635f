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

// A catalog is the set of databases and containers at one moment. It is never changed: the writer goroutine
// replaces it after a commit, readers load it without a lock.
type catalog struct {
	databases map[string]*Database
	offers    map[string]*Offer // by the RID of the database or container they belong to
}

// Database is a namespace of containers. Immutable.
type Database struct {
	Name string `json:"name"`
	RID  []byte `json:"rid"` // 4 bytes
	TS   int64  `json:"ts"`
	Seq  uint64 `json:"seq"` // makes the ETag

	containers map[string]*Container
}

// Container is a container's description. Immutable; its items are found through key.
type Container struct {
	Database *Database       `json:"-"`
	Name     string          `json:"name"`
	RID      []byte          `json:"rid"` // 8 bytes, the first 4 are the database's
	TS       int64           `json:"ts"`
	Seq      uint64          `json:"seq"`
	Ranges   []PhysicalRange `json:"ranges"`
	// RangeSeq grows with every split: it is the version of the list of ranges and the next range's number.
	RangeSeq int             `json:"rangeSeq"`
	Raw      json.RawMessage `json:"properties"`

	Properties document.Value       `json:"-"` // what the client set, without system properties
	PK         partition.Definition `json:"-"`
	UniqueKeys [][]partition.Path   `json:"-"`
	// DefaultTTL is in seconds: nil switches expiry off, -1 lets only items expire that say so themselves.
	DefaultTTL *int64 `json:"-"`
	key        string
}

// PhysicalRange is one physical partition: an interval of the EPK space. Parents are the ranges it was split from.
type PhysicalRange struct {
	ID      string   `json:"id"`
	Min     string   `json:"min"`
	Max     string   `json:"max"`
	Parents []string `json:"parents,omitempty"`
}

// Offer is the provisioned throughput of a database or container.
type Offer struct {
	RID        string `json:"rid"`
	ResourceID string `json:"resourceId"` // RID of what it belongs to
	Resource   string `json:"resource"`   // self link of what it belongs to
	Manual     int    `json:"manual,omitempty"`
	AutoMax    int    `json:"autoMax,omitempty"`
	Increment  int    `json:"increment,omitempty"`
	TS         int64  `json:"ts"`
	Seq        uint64 `json:"seq"`
}

// Throughput asks for an offer; the zero value asks for none.
type Throughput struct {
	Manual    int // RU/s
	AutoMax   int // RU/s
	Increment int // percent
}

func (t Throughput) isZero() bool { return t.Manual == 0 && t.AutoMax == 0 }

// partitionRU is what one physical partition can serve; more throughput means more partitions.
const partitionRU = 10000

// partitions is how many physical partitions the throughput needs.
func (t Throughput) partitions() int {
	return max(1, (max(t.Manual, t.AutoMax)+partitionRU-1)/partitionRU)
}

func encodeRID(rid []byte) string {
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(rid), "/", "-")
}

// ID is the database's resource id in the service's encoding.
func (d *Database) ID() string { return encodeRID(d.RID) }

// ETag is the database's version.
func (d *Database) ETag() string { return metaETag(d.RID, d.Seq) }

// Self is the database's RID-based link.
func (d *Database) Self() string { return "dbs/" + d.ID() + "/" }

// ID is the container's resource id in the service's encoding.
func (c *Container) ID() string { return encodeRID(c.RID) }

// ETag is the container's version.
func (c *Container) ETag() string { return metaETag(c.RID, c.Seq) }

// Self is the container's RID-based link.
func (c *Container) Self() string { return c.Database.Self() + "colls/" + c.ID() + "/" }

// ETag is the offer's version.
func (o *Offer) ETag() string { return metaETag([]byte(o.RID), o.Seq) }

// Range is the range's interval.
func (r PhysicalRange) Range() partition.Range { return partition.Range{Min: r.Min, Max: r.Max} }

func metaETag(rid []byte, seq uint64) string {
	var head [4]byte
	copy(head[:], rid[max(0, len(rid)-4):])
	return fmt.Sprintf("\"%x-0000-0000-0000-%012x\"", head, seq)
}

// Range finds a physical partition by id; one that was split away is Gone.
func (c *Container) Range(id string) (PhysicalRange, error) {
	for _, r := range c.Ranges {
		if r.ID == id {
			return r, nil
		}
	}
	return PhysicalRange{}, &Error{Kind: Gone, SubStatus: SubStatusPartitionRangeGone,
		Message: fmt.Sprintf("Partition key range %s of container %s is gone or was never there.", id, c.Name)}
}

// RangeOf is the physical partition that holds an EPK.
func (c *Container) RangeOf(epk string) PhysicalRange {
	for _, r := range c.Ranges {
		if r.Range().Contains(epk) {
			return r
		}
	}
	return c.Ranges[len(c.Ranges)-1] // unreachable: the ranges cover the space
}

// complete derives the fields that are not stored.
func (c *Container) complete() error {
	c.key = string(c.RID)
	v, err := document.Parse(c.Raw)
	if err != nil {
		return fmt.Errorf("container properties: %w", err)
	}
	if v.Kind != document.Object {
		return Refuse(BadRequest, "The container's properties are not a JSON object.")
	}
	c.Properties = v
	pk := v.Get("partitionKey")
	if c.PK, err = parseDefinition(pk); err != nil {
		return err
	}
	if ttl := v.Get("defaultTtl"); ttl.IsDefined() && ttl.Kind != document.Null {
		n, ok := ttlSeconds(ttl)
		if !ok {
			return Refuse(BadRequest, "The value of defaultTtl must be -1 or a positive number of seconds.")
		}
		c.DefaultTTL = &n
	}
	for _, uk := range v.Get("uniqueKeyPolicy").Get("uniqueKeys").Arr {
		var paths []partition.Path
		for _, p := range uk.Get("paths").Arr {
			path, err := partition.ParsePath(p.Str)
			if err != nil {
				return Refuse(BadRequest, "uniqueKeyPolicy: %v", err)
			}
			paths = append(paths, path)
		}
		if len(paths) == 0 {
			return Refuse(BadRequest, "uniqueKeyPolicy: a unique key needs at least one path")
		}
		c.UniqueKeys = append(c.UniqueKeys, paths)
	}
	return nil
}

// ttlSeconds reads a TTL: a whole number that is -1 or positive.
func ttlSeconds(v document.Value) (int64, bool) {
	n := int64(v.Num)
	ok := v.Kind == document.Number && float64(n) == v.Num && (n == -1 || n > 0) && n <= 1<<31-1
	return n, ok
}

// maxPathsPerKey is the service's limit for hierarchical partition keys.
const maxPathsPerKey = 3

func parseDefinition(v document.Value) (partition.Definition, error) {
	d := partition.Definition{Kind: v.Get("kind").Str, Version: 1}
	if ver := v.Get("version"); ver.IsDefined() {
		if ver.Kind != document.Number || ver.Num != 1 && ver.Num != 2 {
			return d, Refuse(BadRequest, "The partition key definition's version must be 1 or 2.")
		}
		d.Version = int(ver.Num)
	}
	for _, p := range v.Get("paths").Arr {
		path, err := partition.ParsePath(p.Str)
		if err != nil {
			return d, Refuse(BadRequest, "The partition key definition is invalid: %v", err)
		}
		d.Paths = append(d.Paths, path)
	}
	if d.Kind == "" {
		d.Kind = partition.KindHash
	}
	switch {
	case len(d.Paths) == 0:
		return d, Refuse(BadRequest, "The container needs a partition key definition with at least one path.")
	case d.Kind == partition.KindHash && len(d.Paths) > 1:
		return d, Refuse(BadRequest, "A partition key of the kind Hash has exactly one path; use MultiHash for a hierarchical key.")
	case d.Kind == partition.KindMultiHash && len(d.Paths) > maxPathsPerKey:
		return d, Refuse(BadRequest, "A hierarchical partition key has at most %d paths.", maxPathsPerKey)
	case d.Kind == partition.KindMultiHash:
		d.Version = 2
	case d.Kind != partition.KindHash:
		return d, Refuse(BadRequest, "Partition key kind %q is not supported.", d.Kind)
	}
	return d, nil
}

// Databases lists the databases by name.
func (s *Store) Databases() []*Database {
	all := slices.Collect(maps.Values(s.catalog.Load().databases))
	slices.SortFunc(all, func(a, b *Database) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Containers lists the database's containers by name.
func (d *Database) Containers() []*Container {
	all := slices.Collect(maps.Values(d.containers))
	slices.SortFunc(all, func(a, b *Container) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Database finds a database by name or, failing that, by RID.
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

// Container finds a container by the names or the RIDs of it and its database.
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

// Offers lists the offers in the order of their ids.
func (s *Store) Offers() []*Offer {
	all := slices.Collect(maps.Values(s.catalog.Load().offers))
	slices.SortFunc(all, func(a, b *Offer) int { return strings.Compare(a.RID, b.RID) })
	return all
}

// Offer finds an offer by its id, which clients may have folded to lower case.
func (s *Store) Offer(rid string) (*Offer, error) {
	for _, o := range s.catalog.Load().offers {
		if strings.EqualFold(o.RID, rid) {
			return o, nil
		}
	}
	return nil, &Error{Kind: NotFound, Message: msgNotFound}
}
