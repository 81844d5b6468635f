// Package throttle limits the rates of requests with token buckets, as ARM does. A subscription has one bucket for reads, one for
// writes and one for deletes. A principal has two for requests outside of its subscriptions. A peer has one for requests without a
// principal. If a bucket is empty, the caller learns when the next token will be available.
package throttle

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// Kind is the class of a request that shares a bucket.
type Kind string

// The kinds, named as in ARM's headers.
const (
	Reads   Kind = "reads"
	Writes  Kind = "writes"
	Deletes Kind = "deletes"
	// TenantReads and TenantWrites are those of a principal outside of the subscriptions of its tenant.
	TenantReads  Kind = "tenant-reads"
	TenantWrites Kind = "tenant-writes"
	// Anonymous are requests for tokens and public documents, and those whose authentication fails.
	Anonymous Kind = "anonymous"
)

// TenantKindOf returns the kind of a request outside of subscriptions with an HTTP method.
func TenantKindOf(method string) Kind {
	if KindOf(method) == Reads {
		return TenantReads
	}
	return TenantWrites
}

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
type Limit = ratelimit.Limit

// Limits holds the limit of each kind.
type Limits map[Kind]Limit

// Default returns limits far above those of Azure, so that load tests of a local region are not throttled. Azure's buckets
// have 250, 200 and 200 tokens with refills of 25, 10 and 10 per second.
func Default() Limits {
	return Limits{
		Reads: {Size: 100_000, PerSecond: 10_000}, Writes: {Size: 20_000, PerSecond: 2_000}, Deletes: {Size: 20_000, PerSecond: 2_000},
		TenantReads: {Size: 5_000, PerSecond: 500}, TenantWrites: {Size: 5_000, PerSecond: 500},
		// Each token costs a signature.
		Anonymous: {Size: 2_000, PerSecond: 200},
	}
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
			return nil, fmt.Errorf("%q: must be KIND=SIZE:PER_SECOND with the kind reads, writes, deletes, tenant-reads, tenant-writes or anonymous", part)
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

// Buckets holds the buckets of all kinds. It is safe for concurrent use.
type Buckets struct {
	kinds map[Kind]*ratelimit.Buckets
}

// New returns Buckets in which all buckets are full. now is the clock.
func New(limits Limits, now func() time.Time) *Buckets {
	b := &Buckets{kinds: map[Kind]*ratelimit.Buckets{}}
	for kind, limit := range limits {
		b.kinds[kind] = ratelimit.New(limit, now)
	}
	return b
}

// Acquire removes a token from the bucket of a subscription, principal or peer, and returns the number of remaining tokens. If the
// bucket is empty, it returns the time until the next token is available in after, which is 0 otherwise.
func (b *Buckets) Acquire(key string, kind Kind) (remaining int, after time.Duration) {
	return b.kinds[kind].Take(strings.ToLower(key))
}
