// Package partition implements partition keys: it reads them from headers and documents, encodes them for the store's
// keys, and hashes them to effective partition keys (EPK).
//
// The EPK space is the hexadecimal space in which the service describes physical partitions and feed ranges. Clients
// compute the same hashes to route requests, so the functions must equal those of the service: MurmurHash3, versions 1
// and 2, and MultiHash for hierarchical keys. The package does no I/O.
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

// MaxComponentBytes is the maximum length of a string in a partition key.
const MaxComponentBytes = 2048

// Definition defines which properties of a document are its partition key.
type Definition struct {
	Kind    string
	Paths   []Path
	Version int
}

// Path is a property path such as /tenant/id, split into names.
type Path []string

// Key is the value of a partition key: one component per path, or fewer for a prefix of a hierarchical key.
type Key []document.Value

var errEmptyPath = errors.New("a path must start with '/' and name a property")

// ParsePath parses a path. A segment in double quotes may contain any character.
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

// ParseHeader parses the header x-ms-documentdb-partitionkey: a JSON array of components, in which {} represents a
// missing property.
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
		if err := validateComponent(e); err != nil {
			return nil, fmt.Errorf("partition key header: %w", err)
		}
		key = append(key, e)
	}
	return key, nil
}

// validateComponent returns an error if v cannot be a component of a partition key.
func validateComponent(v document.Value) error {
	switch {
	case v.Kind == document.Array || v.Kind == document.Object:
		return errors.New("a partition key value must be a string, a number, a boolean or null")
	case v.Kind == document.String && len(v.Str) > MaxComponentBytes:
		return fmt.Errorf("a partition key value is longer than %d bytes", MaxComponentBytes)
	}
	return nil
}

// Extract returns the partition key of a document.
func (d Definition) Extract(doc document.Value) (Key, error) {
	key := make(Key, len(d.Paths))
	for i, p := range d.Paths {
		key[i] = doc.Path(p)
		if err := validateComponent(key[i]); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// Equal reports whether two keys have equal components.
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

// Encode appends the key in a self-delimiting form. The encoding of a prefix of a hierarchical key is a prefix of the
// encoding of the whole key. No other encoding of a key is a prefix of another one of the same length.
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

// JSON returns the key in the form of the header.
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
