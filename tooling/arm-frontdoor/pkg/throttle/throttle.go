// Package throttle is how ARM keeps one subscription from taking everything: a bucket of tokens for its reads, one for its
// writes and one for its deletes. A request takes a token; tokens come back at a steady pace; an empty bucket says when the
// next one will be there.
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

// Kind is what a request is counted as.
type Kind string

// The kinds, in ARM's words.
const (
	Reads   Kind = "reads"
	Writes  Kind = "writes"
	Deletes Kind = "deletes"
)

// KindOf is what a method is counted as.
func KindOf(method string) Kind {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Reads
	case http.MethodDelete:
		return Deletes
	}
	return Writes
}

// Limit is the size of a bucket, and how many tokens come back in a second.
type Limit struct {
	Size      int
	PerSecond float64
}

// Limits are those of each kind.
type Limits map[Kind]Limit

// Default is far above Azure's limits, which are 250, 200 and 200 tokens at 25, 10 and 10 a second: a region on one machine
// is there to be worked hard.
func Default() Limits {
	return Limits{Reads: {100_000, 10_000}, Writes: {20_000, 2_000}, Deletes: {20_000, 2_000}}
}

// Parse reads limits as KIND=SIZE:PER_SECOND, separated by commas; kinds that are not named keep their defaults.
func Parse(text string) (Limits, error) {
	limits := Default()
	if text == "" {
		return limits, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		kind, rest, _ := strings.Cut(strings.TrimSpace(part), "=")
		size, perSecond, ok := strings.Cut(rest, ":")
		if _, known := limits[Kind(kind)]; !known || !ok {
			return nil, fmt.Errorf("%q is not reads, writes or deletes=SIZE:PER_SECOND", part)
		}
		limit := Limit{}
		var err error
		if limit.Size, err = strconv.Atoi(size); err != nil || limit.Size < 1 {
			return nil, fmt.Errorf("%q: the size of a bucket is a whole number above 0", part)
		}
		if limit.PerSecond, err = strconv.ParseFloat(perSecond, 64); err != nil || !(limit.PerSecond > 0) || math.IsInf(limit.PerSecond, 0) {
			return nil, fmt.Errorf("%q: tokens come back at a pace above 0", part)
		}
		limits[Kind(kind)] = limit
	}
	return limits, nil
}

// Buckets are those of all subscriptions. There are as many as the subscriptions that its user asks about.
type Buckets struct {
	limits Limits
	now    func() time.Time

	mu      sync.Mutex
	buckets map[key]*bucket
}

type key struct {
	subscription string
	kind         Kind
}

type bucket struct {
	tokens float64
	at     time.Time
}

// New makes full buckets; now is the clock.
func New(limits Limits, now func() time.Time) *Buckets {
	return &Buckets{limits: limits, now: now, buckets: map[key]*bucket{}}
}

// Take takes a token, and says how many are left. When there is none, after is how long until there is one.
func (b *Buckets) Take(subscription string, kind Kind) (left int, after time.Duration) {
	limit, now := b.limits[kind], b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	of := key{strings.ToLower(subscription), kind}
	found := b.buckets[of]
	if found == nil {
		found = &bucket{tokens: float64(limit.Size), at: now}
		b.buckets[of] = found
	}
	if passed := now.Sub(found.at); passed > 0 {
		found.tokens, found.at = min(float64(limit.Size), found.tokens+passed.Seconds()*limit.PerSecond), now
	}
	if found.tokens < 1 {
		return 0, time.Duration((1 - found.tokens) / limit.PerSecond * float64(time.Second))
	}
	found.tokens--
	return int(found.tokens), 0
}
