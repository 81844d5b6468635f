package authn

import (
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// LimitFailure returns the error of a failed authentication, or a Throttled one if the peer with a remote address has too many of them. Other errors count
// nothing. A valid token is accepted from every peer, because engineers may share an address with the attacker.
func LimitFailure(failures *ratelimit.Buckets, remote string, failure error) error {
	if apierror.KindOf(failure) != apierror.Unauthenticated {
		return failure
	}
	if _, after := failures.Take(ratelimit.Peer(remote)); after > 0 {
		return apierror.New(apierror.Throttled, "Too many failed authentications. Try again later.").WithRetryAfter(after).WithCause(failure)
	}
	return failure
}
