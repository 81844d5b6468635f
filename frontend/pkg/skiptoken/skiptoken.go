// Package skiptoken makes the position of a list the opaque token that its next page is asked for with, and opens it
// again. A token is sealed (package seal) for the list it was given for: one that was made up, changed, or taken to
// another list does not open.
package skiptoken

import (
	"encoding/base64"
	"errors"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// maxToken bounds what Open looks at.
const maxToken = 8192

// ErrInvalid is a token that this list never gave.
var ErrInvalid = errors.New("the skip token is not valid for this list")

// Sealer makes and opens tokens. It is safe for concurrent use.
type Sealer struct {
	keys *seal.Keys
}

// New makes a Sealer of keys.
func New(keys *seal.Keys) *Sealer { return &Sealer{keys} }

// Seal makes a token of a position in a list.
func (s *Sealer) Seal(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(s.keys.Seal(list, []byte(position)))
}

// Open gives the position back, or ErrInvalid.
func (s *Sealer) Open(list, token string) (string, error) {
	if len(token) > maxToken {
		return "", ErrInvalid
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", ErrInvalid
	}
	position, err := s.keys.Open(list, sealed)
	if err != nil {
		return "", ErrInvalid
	}
	return string(position), nil
}
