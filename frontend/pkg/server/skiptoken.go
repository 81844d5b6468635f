// Package skiptoken encodes positions in lists as opaque skip tokens and decodes them. A token is sealed for one list
// (package seal). Forged or modified tokens, and tokens of another list, are rejected.
package skiptoken

import (
	"encoding/base64"
	"errors"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// maxToken is the longest token that Open accepts.
const maxToken = 8192

// ErrInvalid is the error for a token that was not returned for the list.
var ErrInvalid = errors.New("the skip token is not valid for this list")

// Sealer creates and opens tokens. It is safe for concurrent use.
type Sealer struct {
	keys *seal.Keys
}

// New returns a Sealer that uses keys.
func New(keys *seal.Keys) *Sealer { return &Sealer{keys} }

// Seal returns the token of a position in a list.
func (s *Sealer) Seal(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(s.keys.Seal(list, []byte(position)))
}

// Open returns the position in a token, or ErrInvalid.
func (s *Sealer) Open(list, token string) (string, error) {
	if len(token) > maxToken {
		return "", ErrInvalid
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores the unused bits of the last character and line breaks. Only one encoding of a token is valid.
	if err != nil || base64.RawURLEncoding.EncodeToString(sealed) != token {
		return "", ErrInvalid
	}
	position, err := s.keys.Open(list, sealed)
	if err != nil {
		return "", ErrInvalid
	}
	return string(position), nil
}
