// Package throttle limits the requests of each subscription with token buckets, as ARM does: one bucket for reads, one for
// writes and one for deletes. A request acquires a token, and tokens are refilled at a constant rate. If a bucket is empty,
// the caller learns when the next token will be available.
package throttle

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is the class of a request that shares a bucket.
type Kind string

// The kinds, named as in ARM's headers.
const (
	Reads   Kind = "reads"
	Writes  Kind = "writes"
	Deletes Kind = "deletes"
)

// KindOf returns the kind of a request with an HTTP method.
func KindOf(method string) Kind {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Reads
	case http.MethodDelete:
		return Deletes
	}
	return Writes
}

// Limit is the size of a bucket and the number of tokens that are refilled per second.
type Limit struct {
	Size      int
	PerSecond float64
}

// Limits holds the limit of each kind.
type Limits map[Kind]Limit

// Default returns limits far above those of Azure, so that load tests of a local region are not throttled. Azure's buckets
// have 250, 200 and 200 tokens with refills of 25, 10 and 10 per second.
func Default() Limits {
	return Limits{Reads: {100_000, 10_000}, Writes: {20_000, 2_000}, Deletes: {20_000, 2_000}}
}

// Parse parses limits of the form KIND=SIZE:PER_SECOND, separated by commas. Kinds that are not listed have their defaults.
func Parse(text string) (Limits, error) {
	limits := Default()
	if text == "" {
		return limits, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		kind, rest, _ := strings.Cut(strings.TrimSpace(part), "=")
		size, perSecond, ok := strings.Cut(rest, ":")
		if _, known := limits[Kind(kind)]; !known || !ok {
			return nil, fmt.Errorf("%q: must be KIND=SIZE:PER_SECOND with the kind reads, writes or deletes", part)
		}
		limit := Limit{}
		var err error
		if limit.Size, err = strconv.Atoi(size); err != nil || limit.Size < 1 {
			return nil, fmt.Errorf("%q: the size of a bucket must be a positive integer", part)
		}
		if limit.PerSecond, err = strconv.ParseFloat(perSecond, 64); err != nil || !(limit.PerSecond > 0) || math.IsInf(limit.PerSecond, 0) {
			return nil, fmt.Errorf("%q: the refill per second must be a positive number", part)
		}
		limits[Kind(kind)] = limit
	}
	return limits, nil
}

// Buckets holds the buckets of all subscriptions. It grows with the number of subscriptions. It is safe for concurrent use.
type Buckets struct {
	limits Limits
	now    func() time.Time

	mu      sync.Mutex
	buckets map[key]*bucket
}

// key identifies a bucket.
type key struct {
	subscription string
	kind         Kind
}

// bucket holds the tokens at the time of the last refill.
type bucket struct {
	tokens   float64
	refilled time.Time
}

// New returns Buckets in which all buckets are full. now is the clock.
func New(limits Limits, now func() time.Time) *Buckets {
	return &Buckets{limits: limits, now: now, buckets: map[key]*bucket{}}
}

// Acquire removes a token from a bucket and returns the number of remaining tokens. If the bucket is empty, it returns the
// time until the next token is available in after, which is 0 otherwise.
func (b *Buckets) Acquire(subscription string, kind Kind) (remaining int, after time.Duration) {
	limit, now := b.limits[kind], b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	id := key{strings.ToLower(subscription), kind}
	found := b.buckets[id]
	if found == nil {
		found = &bucket{tokens: float64(limit.Size), refilled: now}
		b.buckets[id] = found
	}
	if elapsed := now.Sub(found.refilled); elapsed > 0 {
		found.tokens, found.refilled = min(float64(limit.Size), found.tokens+elapsed.Seconds()*limit.PerSecond), now
	}
	if found.tokens < 1 {
		return 0, time.Duration((1 - found.tokens) / limit.PerSecond * float64(time.Second))
	}
	found.tokens--
	return int(found.tokens), 0
}
