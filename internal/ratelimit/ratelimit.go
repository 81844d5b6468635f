// Package ratelimit limits how often each of many keys does something, with token buckets. A key is a principal, a peer or a
// subscription. Each key has a bucket that is full at first. An action takes a token, and tokens are refilled at a constant rate. If a
// bucket is empty, the caller learns when the next token is available.
package ratelimit

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limit is the size of a bucket and the number of tokens that are refilled per second. Both are positive.
type Limit struct {
	Size      int
	PerSecond float64
}

const (
	// maxKeys is the most buckets. Callers invent keys, so that the number of keys has no other bound.
	maxKeys = 10_000
	// sweepEvery is the shortest time between two searches for buckets that are full.
	sweepEvery = time.Second
)

// Buckets holds the buckets of keys. A full bucket is the same as none, and is removed when there are too many. If that is not
// enough, all further keys share one bucket. It is safe for concurrent use.
type Buckets struct {
	limit Limit
	now   func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
	shared  *bucket
	swept   time.Time
}

// bucket holds the tokens at the time of the last refill.
type bucket struct {
	tokens   float64
	refilled time.Time
}

// New returns Buckets in which all buckets are full. now is the clock.
func New(limit Limit, now func() time.Time) *Buckets {
	return &Buckets{limit: limit, now: now, buckets: map[string]*bucket{}, shared: &bucket{tokens: float64(limit.Size), refilled: now()}}
}

// Take removes a token from the bucket of a key and returns the number of remaining tokens. If the bucket is empty, it returns the
// time until the next token is available in after, which is 0 otherwise.
func (b *Buckets) Take(key string) (remaining int, after time.Duration) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.find(key, now)
	b.refill(found, now)
	if after := b.untilNext(found); after > 0 {
		return 0, after
	}
	found.tokens--
	return int(found.tokens), 0
}

// Wait returns the time until Take gets a token for a key, which is 0 if it gets one now. It takes none.
func (b *Buckets) Wait(key string) time.Duration {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.find(key, now)
	b.refill(found, now)
	return b.untilNext(found)
}

// untilNext returns the time until a refilled bucket has a token.
func (b *Buckets) untilNext(each *bucket) time.Duration {
	if each.tokens >= 1 {
		return 0
	}
	return time.Duration((1 - each.tokens) / b.limit.PerSecond * float64(time.Second))
}

// find returns the bucket of a key.
func (b *Buckets) find(key string, now time.Time) *bucket {
	if found := b.buckets[key]; found != nil {
		return found
	}
	if len(b.buckets) >= maxKeys && now.Sub(b.swept) >= sweepEvery {
		b.swept = now
		for key, each := range b.buckets {
			if b.refill(each, now); each.tokens >= float64(b.limit.Size) {
				delete(b.buckets, key)
			}
		}
	}
	if len(b.buckets) >= maxKeys {
		return b.shared
	}
	added := &bucket{tokens: float64(b.limit.Size), refilled: now}
	b.buckets[key] = added
	return added
}

func (b *Buckets) refill(each *bucket, now time.Time) {
	if elapsed := now.Sub(each.refilled); elapsed > 0 {
		each.tokens, each.refilled = min(float64(b.limit.Size), each.tokens+elapsed.Seconds()*b.limit.PerSecond), now
	}
}

// network is the length of the prefix of IPv6 addresses that one peer is assumed to have.
const network = 64

// Peer returns the key of the peer with an address of the form host:port: the IPv4 address, or the network of the IPv6 address.
func Peer(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if address = address.Unmap(); address.Is4() {
		return address.String()
	}
	prefix, err := address.WithZone("").Prefix(network)
	if err != nil {
		return host
	}
	return prefix.String()
}
