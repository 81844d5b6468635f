// Package partition implements partition keys of one string: it reads them from headers and documents, encodes them for the store's
// keys, and hashes them to effective partition keys (EPK).
//
// The EPK space is the hexadecimal space in which the service describes physical partitions and feed ranges. Clients
// compute the same hashes to route requests, so the functions must equal those of the service: MurmurHash3 of version 2. The package
// does no I/O.
package partition

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// maxBytes is the maximum length of a partition key.
const maxBytes = 2048

// Path is the property path of a partition key, such as /tenant/id, split into names.
type Path []string

// Key is the value of a partition key. The empty key means none.
type Key string

// ParsePath parses a path.
func ParsePath(s string) (Path, error) {
	rest, ok := strings.CutPrefix(s, "/")
	if path := strings.Split(rest, "/"); ok && !strings.Contains(rest, `"`) && !strings.Contains("/"+rest+"/", "//") {
		return path, nil
	}
	return nil, fmt.Errorf("path %q: it must be names of properties without quotes, each after a '/'", s)
}

// ParseHeader parses the header x-ms-documentdb-partitionkey: a JSON array of one string.
func ParseHeader(h string) (Key, error) {
	v, err := document.Parse([]byte(h))
	if err != nil || v.Kind != document.Array || len(v.Arr) != 1 {
		return "", fmt.Errorf("the partition key header %q is not supported: it must be a JSON array with one string", h)
	}
	return newKey(v.Arr[0])
}

// Extract returns the partition key of a document.
func (p Path) Extract(doc document.Value) (Key, error) { return newKey(doc.Path(p)) }

func newKey(v document.Value) (Key, error) {
	switch {
	case v.Kind != document.String || v.Str == "":
		return "", errors.New("the partition key value is not supported: it must be a string that is not empty")
	case len(v.Str) > maxBytes:
		return "", fmt.Errorf("the partition key value is longer than %d bytes", maxBytes)
	}
	return Key(v.Str), nil
}

// Encode appends the key in a self-delimiting form: no encoding is a prefix of that of another key.
func (k Key) Encode(dst []byte) []byte {
	dst = append(dst, byte(document.String))
	for i := range len(k) {
		if dst = append(dst, k[i]); k[i] == 0 {
			dst = append(dst, 0xFF)
		}
	}
	return append(dst, 0, 1)
}
