package frontdoor

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// RateKind is the class of a request that shares a bucket.
type RateKind string

// The kinds, named as in ARM's headers.
const (
	Reads   RateKind = "reads"
	Writes  RateKind = "writes"
	Deletes RateKind = "deletes"
	// TenantReads and TenantWrites are those of a principal outside of the subscriptions of its tenant.
	TenantReads  RateKind = "tenant-reads"
	TenantWrites RateKind = "tenant-writes"
	// Anonymous are requests for tokens and public documents, and those whose authentication fails.
	Anonymous RateKind = "anonymous"
)

// TenantRateKindOf returns the kind of a request outside of subscriptions with an HTTP method.
func TenantRateKindOf(method string) RateKind {
	if RateKindOf(method) == Reads {
		return TenantReads
	}
	return TenantWrites
}

// RateKindOf returns the kind of a request with an HTTP method.
func RateKindOf(method string) RateKind {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Reads
	case http.MethodDelete:
		return Deletes
	}
	return Writes
}

// RateLimit is the size of a bucket and the number of tokens that are refilled per second.
type RateLimit = ratelimit.Limit

// RateLimits holds the limit of each kind. A subscription has one bucket for reads, one for writes and one for deletes, as in ARM. A principal has two
// for requests outside of its subscriptions. A peer has one for requests without a principal.
type RateLimits map[RateKind]RateLimit

// DefaultRateLimits returns limits far above those of Azure, so that load tests of a local region are not throttled. Azure's buckets
// have 250, 200 and 200 tokens with refills of 25, 10 and 10 per second.
func DefaultRateLimits() RateLimits {
	return RateLimits{
		Reads: {Size: 100_000, PerSecond: 10_000}, Writes: {Size: 20_000, PerSecond: 2_000}, Deletes: {Size: 20_000, PerSecond: 2_000},
		TenantReads: {Size: 5_000, PerSecond: 500}, TenantWrites: {Size: 5_000, PerSecond: 500},
		// Each token costs a signature.
		Anonymous: {Size: 2_000, PerSecond: 200},
	}
}

// ParseRateLimits parses limits of the form KIND=SIZE:PER_SECOND, separated by commas. Kinds that are not listed have their defaults.
func ParseRateLimits(text string) (RateLimits, error) {
	limits := DefaultRateLimits()
	if text == "" {
		return limits, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		kind, rest, _ := strings.Cut(strings.TrimSpace(part), "=")
		size, perSecond, ok := strings.Cut(rest, ":")
		if _, known := limits[RateKind(kind)]; !known || !ok {
			return nil, fmt.Errorf("%q: must be KIND=SIZE:PER_SECOND with the kind reads, writes, deletes, tenant-reads, tenant-writes or anonymous", part)
		}
		limit := RateLimit{}
		var err error
		if limit.Size, err = strconv.Atoi(size); err != nil || limit.Size < 1 {
			return nil, fmt.Errorf("%q: the size of a bucket must be a positive integer", part)
		}
		if limit.PerSecond, err = strconv.ParseFloat(perSecond, 64); err != nil || !(limit.PerSecond > 0) || math.IsInf(limit.PerSecond, 0) {
			return nil, fmt.Errorf("%q: the refill per second must be a positive number", part)
		}
		limits[RateKind(kind)] = limit
	}
	return limits, nil
}

// RateBuckets holds the buckets of all kinds. It is safe for concurrent use.
type RateBuckets struct {
	kinds map[RateKind]*ratelimit.Buckets
}

// NewRateBuckets returns RateBuckets in which all buckets are full. now is the clock.
func NewRateBuckets(limits RateLimits, now func() time.Time) *RateBuckets {
	b := &RateBuckets{kinds: map[RateKind]*ratelimit.Buckets{}}
	for kind, limit := range limits {
		b.kinds[kind] = ratelimit.New(limit, now)
	}
	return b
}

// Acquire removes a token from the bucket of a subscription, principal or peer, and returns the number of remaining tokens. If the
// bucket is empty, it returns the time until the next token is available in after, which is 0 otherwise.
func (b *RateBuckets) Acquire(key string, kind RateKind) (remaining int, after time.Duration) {
	return b.kinds[kind].Take(strings.ToLower(key))
}
