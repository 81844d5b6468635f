package frontdoor

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// retryAfter is the header with the seconds after which a client may repeat a request (RFC 9110, section 10.2.3).
const retryAfter = "Retry-After"

// throttle acquires a token from the subscription's bucket and sets the header with the remaining tokens.
func (d *FrontDoor) throttle(r *request, s Subscription) *response {
	kind := RateKindOf(r.Method)
	remaining, after := d.buckets.Acquire(s.ID, kind)
	r.responseHeader.Set("x-ms-ratelimit-remaining-subscription-"+string(kind), strconv.Itoa(remaining))
	if after == 0 {
		return nil
	}
	return tooManyRequests("SubscriptionRequestsThrottled", "Number of "+string(kind)+" for subscription '"+s.ID+"' exceeded.", after)
}

// throttlePrincipal acquires a token of the principal for a request outside of the subscriptions of its tenant, and sets the header with
// the remaining tokens. Requests inside of them use the subscription's bucket.
func (d *FrontDoor) throttlePrincipal(r *request) *response {
	if p, ok := parsePath(r.URL.Path); ok && !isSubscriptionChange(p, r.Method) {
		if s, exists := d.options.Directory.Subscription(p.subscription); exists && asciifold.Equal(s.TenantID, r.caller.TenantID) {
			return nil
		}
	}
	kind := TenantRateKindOf(r.Method)
	remaining, after := d.buckets.Acquire(r.caller.TenantID+"/"+r.caller.ClientID+"/"+r.caller.ObjectID, kind)
	r.responseHeader.Set("x-ms-ratelimit-remaining-"+string(kind), strconv.Itoa(remaining))
	if after == 0 {
		return nil
	}
	return tooManyRequests("TenantRequestsThrottled", "Number of "+string(kind)+" for the client with object id '"+r.caller.ObjectID+"' exceeded.", after)
}

// throttlePeer acquires a token of the peer for a request without a principal.
func (d *FrontDoor) throttlePeer(r *http.Request) *response {
	_, after := d.buckets.Acquire(ratelimit.Peer(r.RemoteAddr), Anonymous)
	if after == 0 {
		return nil
	}
	return tooManyRequests("TooManyRequests", "Number of requests without a valid token exceeded.", after)
}

// tooManyAttempts returns the error response for too many wrong secrets of a client or a person.
func tooManyAttempts(err *token.TooManyAttemptsError) *response {
	return tooManyRequests("TooManyRequests", "Number of wrong secrets exceeded.", err.RetryAfter)
}

// tooManyRequests returns the error response for an empty bucket.
func tooManyRequests(code, text string, after time.Duration) *response {
	seconds := strconv.Itoa(int((after + time.Second - 1) / time.Second))
	failure := newError(http.StatusTooManyRequests, code, "%s Please try again after %s seconds.", text, seconds)
	failure.header = map[string]string{retryAfter: seconds}
	return failure
}
