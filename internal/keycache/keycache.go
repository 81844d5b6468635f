// Package keycache caches the public keys that an issuer publishes at a URL. It fetches them periodically, and at once for a
// key that it does not have, but not more often than every few seconds. The fetched keys stay in use while the issuer is
// unreachable.
package keycache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// The intervals at which keys are fetched.
const (
	minRetry         = 500 * time.Millisecond
	maxRetry         = 30 * time.Second
	refreshInterval  = time.Hour
	minFetchInterval = 5 * time.Second // between fetches that missing keys cause
	fetchTimeout     = 3 * time.Second
)

// MaxAge is the age of keys from which Ready reports them as outdated.
const MaxAge = 24 * time.Hour

// maxDocument limits the size of a fetched document in bytes.
const maxDocument = 1 << 20

// UnavailableError reports that the current keys could not be fetched, so that nothing can be verified with them.
type UnavailableError struct{ cause error }

// Error returns the text for logs.
func (e *UnavailableError) Error() string {
	if e.cause == nil {
		return "the issuer's keys have not been fetched yet"
	}
	return "the issuer's keys cannot be fetched: " + e.cause.Error()
}

// Cache holds the keys of one issuer. It is safe for concurrent use.
type Cache[K any] struct {
	fetch func(ctx context.Context) (K, error)
	now   func() time.Time

	// fetching is held during a fetch, so that one fetch serves all callers that wait for it.
	fetching sync.Mutex

	mu sync.Mutex
	// keys is nil before the first successful fetch.
	keys *K
	// fetched is the time of the last successful fetch, attempted that of the last attempt, and lastErr its error.
	fetched, attempted time.Time
	lastErr            error
}

// New returns an empty Cache of the keys that fetch returns. now is the clock.
func New[K any](fetch func(ctx context.Context) (K, error), now func() time.Time) *Cache[K] {
	return &Cache[K]{fetch: fetch, now: now}
}

// Run fetches the keys every hour, and more often after failures, until ctx ends.
func (c *Cache[K]) Run(ctx context.Context) {
	retry := backoff.New(minRetry, maxRetry)
	for ctx.Err() == nil {
		if c.refresh(ctx) != nil {
			_ = retry.Wait(ctx)
			continue
		}
		retry.Reset()
		_ = backoff.Sleep(ctx, refreshInterval)
	}
}

// Ready returns an error if there are no keys or if they are older than MaxAge.
func (c *Cache[K]) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		return &UnavailableError{c.lastErr}
	}
	if age := c.now().Sub(c.fetched); age > MaxAge {
		return fmt.Errorf("the issuer's keys were last fetched %s ago: %w", age.Round(time.Minute), &UnavailableError{c.lastErr})
	}
	return nil
}

// Find returns the keys if has returns true for them. Otherwise it fetches them first, but at most every few seconds. found
// is false if the issuer does not publish the key. The error is an *UnavailableError if that cannot be determined now.
func (c *Cache[K]) Find(ctx context.Context, has func(K) bool) (keys K, found bool, err error) {
	keys, found, attempted, err := c.lookup(has)
	if found || c.now().Sub(attempted) < minFetchInterval {
		return keys, found, err
	}
	c.fetching.Lock()
	defer c.fetching.Unlock()
	if keys, found, latest, err := c.lookup(has); found || latest.After(attempted) {
		return keys, found, err
	}
	// Other requests wait for this fetch, so it must not be canceled with the request that started it.
	_ = c.fetchLocked(context.WithoutCancel(ctx))
	keys, found, _, err = c.lookup(has)
	return keys, found, err
}

// lookup returns the cached keys and the time of the last attempt to fetch keys.
func (c *Cache[K]) lookup(has func(K) bool) (keys K, found bool, attempted time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.keys == nil:
		return keys, false, c.attempted, &UnavailableError{c.lastErr}
	case has(*c.keys):
		return *c.keys, true, c.attempted, nil
	case c.lastErr != nil:
		// The issuer may have added the key since the last successful fetch.
		return keys, false, c.attempted, &UnavailableError{c.lastErr}
	}
	return keys, false, c.attempted, nil
}

// refresh fetches the keys.
func (c *Cache[K]) refresh(ctx context.Context) error {
	c.fetching.Lock()
	defer c.fetching.Unlock()
	return c.fetchLocked(ctx)
}

// fetchLocked fetches the keys and stores the result. The caller holds fetching. After a failure the previous keys stay.
func (c *Cache[K]) fetchLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fresh, err := c.fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempted, c.lastErr = c.now(), err
	if err == nil {
		c.keys, c.fetched = &fresh, c.attempted
	}
	return err
}

// Get returns the document at a URL. It returns an error for a status other than 200 and for a document larger than 1 MiB.
func Get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responded with status %d", url, response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err == nil && len(content) > maxDocument {
		err = fmt.Errorf("%s is larger than %d bytes", url, maxDocument)
	}
	return content, err
}
