package server

import (
	"encoding/base64"
	"errors"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// maxSkipToken is the longest token that Open accepts.
const maxSkipToken = 8192

// ErrInvalidSkipToken is the error for a token that was not returned for the list.
var ErrInvalidSkipToken = errors.New("the skip token is not valid for this list")

// SkipTokens encodes positions in lists as opaque skip tokens and decodes them. A token is sealed for one list
// (package seal). Forged or modified tokens, and tokens of another list, are rejected. It is safe for concurrent use.
type SkipTokens struct {
	keys *seal.Keys
}

// NewSkipTokens returns a SkipTokens that uses keys.
func NewSkipTokens(keys *seal.Keys) *SkipTokens { return &SkipTokens{keys} }

// Seal returns the token of a position in a list.
func (s *SkipTokens) Seal(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(s.keys.Seal(list, []byte(position)))
}

// Open returns the position in a token, or ErrInvalidSkipToken.
func (s *SkipTokens) Open(list, token string) (string, error) {
	if len(token) > maxSkipToken {
		return "", ErrInvalidSkipToken
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores the unused bits of the last character and line breaks. Only one encoding of a token is valid.
	if err != nil || base64.RawURLEncoding.EncodeToString(sealed) != token {
		return "", ErrInvalidSkipToken
	}
	position, err := s.keys.Open(list, sealed)
	if err != nil {
		return "", ErrInvalidSkipToken
	}
	return string(position), nil
}
