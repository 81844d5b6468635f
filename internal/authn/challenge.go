package authn

import (
	"encoding/base64"
	"encoding/json"
	"regexp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The claims of a token by which a service can require more than that the token is valid.
const (
	ClaimGroups                 = "groups"
	ClaimRoles                  = "roles"
	ClaimAuthenticationMethods  = "amr"
	ClaimAuthenticationContexts = "acrs"
	ClaimDevice                 = "deviceid"
)

// MissingClaim is a claim that a token lacks.
type MissingClaim struct {
	// Name is the name of the claim, and Value the value that it must contain; empty if any value is sufficient.
	Name, Value string
}

// String returns the claim for messages.
func (m MissingClaim) String() string {
	if m.Value == "" {
		return m.Name
	}
	return m.Name + "=" + m.Value
}

// InsufficientClaims returns an Unauthenticated error for a valid token that lacks claims. Its challenge is the claims challenge of
// Microsoft Entra: the client requests another token with the value of claims, a claims request of OpenID Connect Core 1.0, section
// 5.5, and the person signs in again at authorizationURI. Entra acts on acrs only.
func InsufficientClaims(message, authorizationURI string, missing []MissingClaim) error {
	type request struct {
		Essential bool   `json:"essential"`
		Value     string `json:"value,omitempty"`
	}
	token := map[string]request{}
	for _, claim := range missing {
		token[claim.Name] = request{Essential: true, Value: claim.Value}
	}
	content, err := json.Marshal(map[string]any{"access_token": token})
	if err != nil {
		return err
	}
	return &ChallengeError{
		Response:  apierror.New(apierror.Unauthenticated, "%s", message),
		Challenge: `Bearer realm="", authorization_uri="` + authorizationURI + `", error="insufficient_claims", claims="` + base64.StdEncoding.EncodeToString(content) + `"`,
	}
}

// challengeClaims matches the claims of a claims challenge.
var challengeClaims = regexp.MustCompile(`(?i)^Bearer .*\berror="insufficient_claims".*\bclaims="([A-Za-z0-9+/=]+)"`)

// RequestedClaims returns the claims request in a claims challenge of InsufficientClaims, the value of a WWW-Authenticate header. It returns "" for
// another challenge.
func RequestedClaims(challenge string) string {
	match := challengeClaims.FindStringSubmatch(challenge)
	if match == nil {
		return ""
	}
	content, err := base64.StdEncoding.DecodeString(match[1])
	if err != nil || !json.Valid(content) {
		return ""
	}
	return string(content)
}
