// Package authn decides in whose name a request comes: to the frontend in Azure Resource Manager's, to admin in an
// engineer's. The mesh says which process holds the other end of a connection; this says whom it speaks for, from the
// token that it sends along.
//
// In production a sidecar decides (Sidecar): the request's head goes to its HTTP check endpoint, and its answer is the
// decision, as with Envoy's ext_authz. In the local region Tokens decides: it verifies the JWTs of the region's own issuer,
// with keys from where the issuer publishes them. Both fail closed. No token and no claim but the caller's ids ever gets
// into a log, a metric or an error.
package authn

import (
	"context"
	"errors"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Caller is in whose name a request was sent, as far as it is known.
type Caller struct {
	TenantID string
	// AppID is the application, ObjectID its service principal in the tenant.
	AppID    string
	ObjectID string
	// Name is what people call it, as in an address; empty where the token says none. It decides nothing.
	Name string
	// Groups are the ids of the groups that it is a member of, as the token says them.
	Groups []string
}

// Authenticator decides on requests. An error is an *apierror.Error of the kinds Unauthenticated (nobody, or nobody that
// can be believed), PermissionDenied (somebody who may not) or Unavailable (it cannot be decided now), and may be Refused.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (Caller, error)
	// Ready says what keeps it from deciding.
	Ready(ctx context.Context) error
}

// Refused is an error with a challenge for the header WWW-Authenticate (RFC 9110, section 11.6.1).
type Refused struct {
	// Answer is what the caller is told.
	Answer    *apierror.Error
	Challenge string
}

// Error is the text for logs.
func (r *Refused) Error() string { return r.Answer.Error() }

// Unwrap gives what the caller is told.
func (r *Refused) Unwrap() error { return r.Answer }

// Challenge is what err asks the caller for, or empty.
func Challenge(err error) string {
	var refused *Refused
	if errors.As(err, &refused) {
		return refused.Challenge
	}
	return ""
}

// refuse is an Unauthenticated error. code is of RFC 6750, section 3.1; empty where nothing was presented.
func refuse(code, message string, cause error) error {
	challenge := `Bearer realm="Microsoft.RedHatOpenShift"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	return &Refused{Answer: apierror.New(apierror.Unauthenticated, "%s", message).WithCause(cause), Challenge: challenge}
}
