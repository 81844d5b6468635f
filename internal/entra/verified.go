package entra

import (
	"crypto/rsa"
	"crypto/sha256"
	"sync"
)

// maxVerified bounds the tokens in a verifiedTokens. It exceeds the number of workloads and people that call an emulator.
const maxVerified = 1024

// verifiedTokens stores the claims of tokens with a verified signature, by the digest of the token. It says nothing about their validity period.
type verifiedTokens struct {
	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]verifiedToken
}

// verifiedToken has the claims of a token, and the key of its signature. The claims are not changed.
type verifiedToken struct {
	claims *claims
	keyID  string
	key    *rsa.PublicKey
}

// find returns the claims of a token that was verified with a key that the authority still has.
func (v *verifiedTokens) find(text string, keys *keySet) (_ *claims, known bool) {
	v.mu.Lock()
	token, known := v.byDigest[sha256.Sum256([]byte(text))]
	v.mu.Unlock()
	if !known || !keys.has(token.keyID, token.key) {
		return nil, false
	}
	return token.claims, true
}

// add stores a verified token. If there are maxVerified, it forgets all others, and they are verified again.
func (v *verifiedTokens) add(text string, token verifiedToken) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byDigest == nil || len(v.byDigest) >= maxVerified {
		v.byDigest = map[[sha256.Size]byte]verifiedToken{}
	}
	v.byDigest[sha256.Sum256([]byte(text))] = token
}
