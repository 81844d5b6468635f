package emulator

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
)

// anyAccount is the audience of tokens for all accounts.
const anyAccount = "https://cosmos.azure.com"

// maxCachedTokens bounds the cache of verified tokens.
const maxCachedTokens = 1024

// tokenCache caches the callers of verified tokens, so that a request costs one hash and one look-up. The keys are digests of
// Authorization headers. A nil cache is empty.
type tokenCache struct {
	policy *account.Policy

	mu       sync.Mutex
	byHeader map[[sha256.Size]byte]cachedCaller
}

// cachedCaller is the caller of a verified token.
type cachedCaller struct {
	caller  caller
	expires time.Time
}

func newTokenCache(policy *account.Policy) *tokenCache {
	return &tokenCache{policy: policy, byHeader: map[[sha256.Size]byte]cachedCaller{}}
}

// cached returns the caller of a header whose token was verified and has not expired.
func (c *tokenCache) cached(header string, now time.Time) (caller, bool) {
	if c == nil {
		return caller{}, false
	}
	digest := sha256.Sum256([]byte(header))
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.byHeader[digest]
	if !ok || !now.Before(known.expires) {
		return caller{}, false
	}
	return known.caller, true
}

// store caches a caller until its token expires. If the cache is full, it removes expired tokens first, then arbitrary ones.
func (c *tokenCache) store(header string, known cachedCaller, now time.Time) {
	digest := sha256.Sum256([]byte(header))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byHeader) >= maxCachedTokens {
		for other, cached := range c.byHeader {
			if !now.Before(cached.expires) {
				delete(c.byHeader, other)
			}
		}
	}
	for other := range c.byHeader {
		if len(c.byHeader) < maxCachedTokens {
			break
		}
		delete(c.byHeader, other)
	}
	c.byHeader[digest] = known
}

// authenticateToken verifies a token of Entra ID and sets the caller.
func (s *Server) authenticateToken(req *request, header, token string) error {
	claims, err := s.opts.Tokens.Verify(req.r.Context(), token, s.audiences(req.r))
	if err != nil {
		return tokenError(err)
	}
	req.caller = caller{objectID: claims.ObjectID, permissions: s.tokens.policy.Of(claims.ObjectID, claims.Groups)}
	s.tokens.store(header, cachedCaller{req.caller, claims.Expires}, s.now())
	return nil
}

// audiences returns the audiences of accepted tokens: the account, which clients derive from their endpoint, and all accounts.
func (s *Server) audiences(r *http.Request) []string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if endpoint, err := url.Parse(s.opts.Endpoint); s.opts.Endpoint != "" && err == nil {
		scheme, host = endpoint.Scheme, endpoint.Host
	}
	name := (&url.URL{Host: host}).Hostname()
	return []string{anyAccount, scheme + "://" + name}
}

// tokenError returns the error response for a rejected token.
func tokenError(err error) error {
	if errors.Is(err, entra.ErrUnavailable) {
		return &statusError{status: http.StatusServiceUnavailable, message: "Tokens cannot be verified: " + err.Error()}
	}
	rejected := &statusError{status: http.StatusUnauthorized, subStatus: subStatusMalformedToken, message: "The AAD token is not accepted: " + err.Error() + "."}
	for known, subStatus := range map[error]int{
		entra.ErrUnknownKey: subStatusUnknownSigningKey, entra.ErrSignature: subStatusInvalidSignature, entra.ErrNotYetValid: subStatusTokenNotYetValid,
		entra.ErrExpired: subStatusTokenExpired, entra.ErrIssuer: subStatusInvalidIssuer, entra.ErrAudience: subStatusInvalidAudience,
		entra.ErrNoObjectID: subStatusNoObjectID,
	} {
		if errors.Is(err, known) {
			rejected.subStatus = subStatus
		}
	}
	return rejected
}
