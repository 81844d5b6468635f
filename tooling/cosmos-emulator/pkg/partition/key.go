// Package partition places items: it reads partition keys from headers and from documents, encodes them into the
// store's keys, and hashes them to effective partition keys (EPK), the hexadecimal space in which the service
// describes physical partitions and feed ranges. The client computes the same hash to route its requests, so
// these functions follow the service's (MurmurHash3, versions 1 and 2, and MultiHash for hierarchical keys) bit
// for bit. Nothing here does I/O.
package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// The kinds of a partition key definition.
const (
	KindHash      = "Hash"
	KindMultiHash = "MultiHash"
)

// MaxComponentBytes is the longest string the service accepts as a partition key value.
const MaxComponentBytes = 2048

// Definition says which properties of a document are its partition key.
type Definition struct {
	Kind    string
	Paths   []Path
	Version int
}

// Path is a property path such as /tenant/id, split into names.
type Path []string

// Key is a partition key value: one component per path, fewer for the prefix of a hierarchical key.
type Key []document.Value

var errEmptyPath = errors.New("a path must start with '/' and name a property")

// ParsePath splits a path; a segment in double quotes may contain any character.
func ParsePath(s string) (Path, error) {
	if len(s) < 2 || s[0] != '/' {
		return nil, fmt.Errorf("path %q: %w", s, errEmptyPath)
	}
	var out Path
	for rest := s; rest != ""; {
		if rest[0] != '/' {
			return nil, fmt.Errorf("path %q: expected '/' before %q", s, rest)
		}
		rest = rest[1:]
		if strings.HasPrefix(rest, `"`) {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return nil, fmt.Errorf("path %q: a quoted segment is not closed", s)
			}
			out = append(out, rest[1:1+end])
			rest = rest[end+2:]
			continue
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("path %q: %w", s, errEmptyPath)
		}
		out = append(out, rest[:end])
		rest = rest[end:]
	}
	return out, nil
}

// ParseHeader reads the value of x-ms-documentdb-partitionkey: a JSON array of components, in which {} stands for
// a property that is absent.
func ParseHeader(h string) (Key, error) {
	v, err := document.Parse([]byte(h))
	if err != nil {
		return nil, fmt.Errorf("partition key header: %w", err)
	}
	if v.Kind != document.Array {
		return nil, errors.New("partition key header: not a JSON array")
	}
	key := make(Key, 0, len(v.Arr))
	for _, e := range v.Arr {
		if e.Kind == document.Object && len(e.Obj) == 0 {
			e = document.Value{}
		}
		if err := checkComponent(e); err != nil {
			return nil, fmt.Errorf("partition key header: %w", err)
		}
		key = append(key, e)
	}
	return key, nil
}

func checkComponent(v document.Value) error {
	switch {
	case v.Kind == document.Array || v.Kind == document.Object:
		return errors.New("a partition key value must be a string, a number, a boolean or null")
	case v.Kind == document.String && len(v.Str) > MaxComponentBytes:
		return fmt.Errorf("a partition key value is longer than %d bytes", MaxComponentBytes)
	}
	return nil
}

// Extract reads the partition key out of a document.
func (d Definition) Extract(doc document.Value) (Key, error) {
	key := make(Key, len(d.Paths))
	for i, p := range d.Paths {
		key[i] = doc.Path(p)
		if err := checkComponent(key[i]); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// Equal compares component by component.
func (k Key) Equal(other Key) bool {
	if len(k) != len(other) {
		return false
	}
	for i := range k {
		if !document.Equal(k[i], other[i]) {
			return false
		}
	}
	return true
}

// Encode appends the key in a self-delimiting form: the encoding of a prefix of a hierarchical key is a prefix of
// the encoding of the whole, and no key's encoding is a prefix of another's of the same length.
func (k Key) Encode(dst []byte) []byte {
	for _, c := range k {
		dst = append(dst, byte(c.Kind))
		switch c.Kind {
		case document.Bool:
			if c.Bool {
				dst = append(dst, 1)
			} else {
				dst = append(dst, 0)
			}
		case document.Number:
			n := c.Num
			if n == 0 {
				n = 0 // -0 and 0 are the same key
			}
			bits := math.Float64bits(n)
			if bits>>63 == 1 {
				bits = ^bits
			} else {
				bits |= 1 << 63
			}
			dst = binary.BigEndian.AppendUint64(dst, bits)
		case document.String:
			for i := 0; i < len(c.Str); i++ {
				dst = append(dst, c.Str[i])
				if c.Str[i] == 0 {
					dst = append(dst, 0xFF)
				}
			}
			dst = append(dst, 0, 1)
		}
	}
	return dst
}

// JSON is the key as the header spells it.
func (k Key) JSON() string {
	b := []byte{'['}
	for i, c := range k {
		if i > 0 {
			b = append(b, ',')
		}
		if !c.IsDefined() {
			b = append(b, "{}"...)
			continue
		}
		b = document.Append(b, c)
	}
	return string(append(b, ']'))
}
