package token

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// wrongSecrets limits the wrong secrets of a client, and the wrong passwords of a person: 10 at once, and 10 in a minute.
func wrongSecrets() ratelimit.Limit { return ratelimit.Limit{Size: 10, PerSecond: 10.0 / 60} }

// TooManyAttemptsError is the error after too many wrong secrets of a client or a person. The secret of the request was not compared.
type TooManyAttemptsError struct {
	// RetryAfter is the time until the issuer compares a secret again.
	RetryAfter time.Duration
}

// Error implements error.
func (e *TooManyAttemptsError) Error() string {
	return fmt.Sprintf("too many wrong secrets; retry after %s", e.RetryAfter)
}

// attempts counts wrong secrets. It has a bucket only for clients and people that exist: names that callers invent use none. It is safe for
// concurrent use.
type attempts struct {
	// mu makes a comparison and its count one step, so that requests at the same time do not exceed the limit.
	mu    sync.Mutex
	wrong *ratelimit.Buckets
}

func newAttempts(now func() time.Time) *attempts {
	return &attempts{wrong: ratelimit.New(wrongSecrets(), now)}
}

// compare calls matches, which compares the secret of a client or a person with that of a request, and returns its result. If there were too many wrong
// ones, it returns a *TooManyAttemptsError instead: otherwise the right secret would still be found.
func (a *attempts) compare(key string, matches func() bool) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if after := a.wrong.Wait(key); after > 0 {
		return false, &TooManyAttemptsError{after}
	}
	if matches() {
		return true, nil
	}
	a.wrong.Take(key)
	return false, nil
}

// attemptsKey returns the key of the client, or of the person that it is. It has the IDs of the configuration, which requests can spell in many ways.
func (c *Client) attemptsKey(kind, id string) string {
	return strings.ToLower(kind + "/" + c.TenantID + "/" + id)
}
