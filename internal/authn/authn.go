// Package authn authenticates the caller of an HTTP request from its token: Azure Resource Manager at the frontend, an
// engineer at admin. Package mesh authenticates the process at the other end of the connection; the token identifies the
// principal that the process acts for.
//
// In production, Sidecar sends the head of each request to the check endpoint of a sidecar, as Envoy's ext_authz does, and
// the response is the decision. In the local region, TokenVerifier verifies the JWTs of the region's issuer with the keys
// that the issuer publishes. Both reject requests that they cannot decide. Tokens never appear in logs, metrics or errors,
// and neither do claims other than the caller's IDs.
package authn

import (
	"context"
	"errors"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Caller is the principal that sent a request. Fields that the token does not contain are empty.
type Caller struct {
	TenantID string
	// AppID is the application. ObjectID is its service principal in the tenant, or the user.
	AppID    string
	ObjectID string
	// Name is for display, for example an e-mail address. It must not be used for authorization.
	Name string
	// Groups lists the IDs of the caller's groups. GroupsOverage reports that the caller has so many groups that the token does not
	// contain them; Groups is empty then.
	Groups        []string
	GroupsOverage bool
	// Roles lists the values of the app roles that the caller has in the application.
	Roles []string
	// AuthenticationMethods lists how the caller signed in (amr, RFC 8176), for example mfa. AuthenticationContexts lists the
	// authentication contexts of Conditional Access that the sign-in satisfies (acrs), for example c1.
	AuthenticationMethods  []string
	AuthenticationContexts []string
	// DeviceID is the device that the caller signed in on, if the identity provider knows it.
	DeviceID string
}

// Authenticator authenticates requests. The chain of each error contains an *apierror.Error of one of these kinds:
// Unauthenticated (no token, or an invalid one), PermissionDenied (a valid token of a caller without permission) or
// Unavailable (the token cannot be verified now). It may also contain a *ChallengeError.
type Authenticator interface {
	Authenticate(ctx context.Context, r *http.Request) (Caller, error)
	// Ready returns an error while requests cannot be authenticated.
	Ready(ctx context.Context) error
}

// ChallengeError is an error with a challenge for the WWW-Authenticate header (RFC 9110, section 11.6.1).
type ChallengeError struct {
	// Response is the error for the caller.
	Response  *apierror.Error
	Challenge string
}

// Error returns the text for logs.
func (e *ChallengeError) Error() string { return e.Response.Error() }

// Unwrap returns the error for the caller.
func (e *ChallengeError) Unwrap() error { return e.Response }

// Challenge returns the challenge of a ChallengeError in the chain of err, or "".
func Challenge(err error) string {
	var challengeErr *ChallengeError
	if errors.As(err, &challengeErr) {
		return challengeErr.Challenge
	}
	return ""
}

// reject returns an Unauthenticated error. code is an error code of RFC 6750, section 3.1, or "" if the request has no
// token.
func reject(code, message string, cause error) error {
	challenge := `Bearer realm="Microsoft.RedHatOpenShift"`
	if code != "" {
		challenge += `, error="` + code + `"`
	}
	return &ChallengeError{Response: apierror.New(apierror.Unauthenticated, "%s", message).WithCause(cause), Challenge: challenge}
}
