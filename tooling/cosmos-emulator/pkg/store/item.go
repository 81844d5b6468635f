package store

import (
	"encoding/binary"
	"fmt"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// Item is a stored item. Body is the document with its system properties and must not be modified.
type Item struct {
	Body []byte
	ETag string
	LSN  uint64
	TS   int64 // seconds
}

// systemProperties lists the properties that the store adds to every document and ignores in requests.
var systemProperties = []string{"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"}

// The buckets of a container, by the first letter of their names:
//
//	d  partition key + id                -> record
//	o  document number                   -> reference   (the order of a scan over all partitions)
//	p  partition key + document number   -> reference   (the order of a scan over one partition)
//	c  LSN + index in its transaction    -> reference   (the change feed; one entry per item, for its last change)
//
// A reference is the item's EPK and its record key. Bucket d's sequence is the container's LSN, bucket o's the
// last document number.
func (c *Container) buckets() [][]byte {
	out := make([][]byte, 0, 4)
	for _, b := range []byte("dopc") {
		out = append(out, c.bucket(b))
	}
	return out
}

// bucket returns the name of one of the container's buckets.
func (c *Container) bucket(kind byte) []byte { return append([]byte{kind}, c.key...) }

// record is the stored form of an item.
type record struct {
	lsn    uint64
	index  uint16 // index in its transaction
	ts     int64
	number uint64 // document number: unique in a container, part of the RID
	ttl    int32  // the item's own TTL; 0 if it has none
	body   []byte
}

const recordHeader = 8 + 2 + 8 + 8 + 4

// encode returns the stored form of the record.
func (r *record) encode() []byte {
	b := make([]byte, 0, recordHeader+len(r.body))
	b = binary.BigEndian.AppendUint64(b, r.lsn)
	b = binary.BigEndian.AppendUint16(b, r.index)
	b = binary.BigEndian.AppendUint64(b, uint64(r.ts))
	b = binary.BigEndian.AppendUint64(b, r.number)
	b = binary.BigEndian.AppendUint32(b, uint32(r.ttl))
	return append(b, r.body...)
}

// decodeRecord decodes a record. The body refers to b and must be copied before the transaction ends.
func decodeRecord(b []byte) (record, error) {
	if len(b) < recordHeader {
		return record{}, fmt.Errorf("record of %d bytes is too short", len(b))
	}
	return record{
		lsn:    binary.BigEndian.Uint64(b),
		index:  binary.BigEndian.Uint16(b[8:]),
		ts:     int64(binary.BigEndian.Uint64(b[10:])),
		number: binary.BigEndian.Uint64(b[18:]),
		ttl:    int32(binary.BigEndian.Uint32(b[26:])),
		body:   b[recordHeader:],
	}, nil
}

// expires returns the time in seconds at which the item expires. ok is false if it never expires.
func (r *record) expires(c *Container) (at int64, ok bool) {
	if c.DefaultTTL == nil {
		return 0, false
	}
	ttl := *c.DefaultTTL
	if r.ttl != 0 {
		ttl = int64(r.ttl)
	}
	return r.ts + ttl, ttl > 0
}

// expired reports whether the item has expired.
func (r *record) expired(c *Container, now int64) bool {
	at, ok := r.expires(c)
	return ok && at <= now
}

// etag returns the ETag of this version. It is unique, because the container's RID is random and (lsn, index) is unique
// in the container.
func (r *record) etag(c *Container) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 38)
	hex := func(v uint64, n int) {
		for n--; n >= 0; n-- {
			b = append(b, digits[v>>(4*n)&15])
		}
	}
	b = append(b, '"')
	hex(uint64(binary.BigEndian.Uint32([]byte(c.key)[4:8])), 8)
	b = append(b, '-')
	hex(uint64(r.index), 4)
	b = append(b, '-')
	hex(r.lsn>>48, 4)
	b = append(b, "-0000-"...)
	hex(r.lsn, 12)
	return string(append(b, '"'))
}

// item returns the item with a copy of the body.
func (r *record) item(c *Container) Item {
	return Item{Body: append([]byte(nil), r.body...), ETag: r.etag(c), LSN: r.lsn, TS: r.ts}
}

// build sets the stored body: the client's properties in their order, then the system properties.
func (r *record) build(c *Container, doc document.Value) {
	self := make([]byte, 0, 16)
	self = binary.BigEndian.AppendUint64(append(self, c.key...), r.number)
	rid := encodeRID(self)
	clean := doc.Without(systemProperties...)
	clean.Obj = append(clean.Obj,
		document.Member{Name: "_rid", Value: document.FromString(rid)},
		document.Member{Name: "_self", Value: document.FromString(c.Self() + "docs/" + rid + "/")},
		document.Member{Name: "_etag", Value: document.FromString(r.etag(c))},
		document.Member{Name: "_attachments", Value: document.FromString("attachments/")},
		document.Member{Name: "_ts", Value: document.Value{Kind: document.Number, Num: float64(r.ts), Str: strconv.FormatInt(r.ts, 10)}},
	)
	r.body = document.Append(make([]byte, 0, 1024), clean)
}

// recordKey returns the key of an item in bucket d.
func recordKey(pk partition.Key, id string) []byte {
	return append(pk.Encode(make([]byte, 0, 64)), id...)
}

// u64 encodes n in big-endian order, which sorts like the number.
func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// changeKey returns the key of a change in bucket c.
func changeKey(lsn uint64, index uint16) []byte {
	return binary.BigEndian.AppendUint16(u64(lsn), index)
}

// partitionOrderKey returns the key of an item in bucket p.
func partitionOrderKey(pk partition.Key, number uint64) []byte {
	return binary.BigEndian.AppendUint64(pk.Encode(make([]byte, 0, 64)), number)
}

// encodeReference encodes an EPK and a record key.
func encodeReference(epk string, key []byte) []byte {
	b := make([]byte, 0, 1+len(epk)+len(key))
	b = append(b, byte(len(epk)))
	return append(append(b, epk...), key...)
}

// decodeReference decodes an EPK and a record key.
func decodeReference(b []byte) (epk string, key []byte, err error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, fmt.Errorf("reference of %d bytes is too short", len(b))
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}

// lastItemTS returns the timestamp of the last change of a container.
func lastItemTS(tx *bolt.Tx, c *Container) int64 {
	changes, docs := tx.Bucket(c.bucket('c')), tx.Bucket(c.bucket('d'))
	if changes == nil || docs == nil {
		return 0
	}
	_, ref := changes.Cursor().Last()
	if ref == nil {
		return 0
	}
	_, key, err := decodeReference(ref)
	if err != nil {
		return 0
	}
	r, err := decodeRecord(docs.Get(key))
	if err != nil {
		return 0
	}
	return r.ts
}

// matchesETag reports whether an If-Match condition holds: "" always does, and "*" matches every existing resource.
func matchesETag(condition, etag string) bool {
	return condition == "" || condition == "*" || sameETag(condition, etag)
}

// sameETag compares ETags with or without their quotes, which some clients omit.
func sameETag(a, b string) bool {
	trim := func(s string) string {
		if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
			return s[1 : len(s)-1]
		}
		return s
	}
	return trim(a) == trim(b)
}
