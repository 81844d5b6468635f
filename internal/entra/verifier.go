// Package entra verifies access tokens of one authority like Entra ID. The emulators of Azure's services authenticate their
// callers with it.
//
// A Verifier fetches the authority's keys when a token names an unknown key, with a minimum interval between fetches. No claim
// of a token is used before its signature is verified, except for the tenant, which is part of the URL of the keys. A signature is
// verified once as long as the authority has its key, because clients send a token with many requests. Errors never contain a part
// of a token.
package entra

import (
	"context"
	"crypto/rsa"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// leeway is the permitted difference between the clocks of issuer and verifier.
const leeway = time.Minute

// The reasons for which a Verifier rejects a token. Each service maps them to its own codes.
var (
	ErrMalformed    = errors.New("the token is malformed")
	ErrUnknownKey   = errors.New("the token is signed with an unknown key")
	ErrSignature    = errors.New("the token's signature is invalid")
	ErrNotYetValid  = errors.New("the token is not valid yet")
	ErrExpired      = errors.New("the token has expired or has no end")
	ErrIssuer       = errors.New("the token has another issuer")
	ErrAudience     = errors.New("the token has another audience")
	ErrNoObjectID   = errors.New("the token has no object ID")
	ErrUnauthorized = errors.New("the token is invalid")
)

// ErrUnavailable is returned if the authority's keys cannot be fetched.
var ErrUnavailable = errors.New("the keys of the token authority cannot be fetched")

// Claims are the claims of a verified token that identify its principal.
type Claims struct {
	TenantID string
	// ObjectID is the service principal or the user. AppID is the application.
	ObjectID string
	AppID    string
	// Groups lists the IDs of the principal's groups.
	Groups  []string
	Expires time.Time
}

// Verifier verifies the tokens of one authority. It is safe for concurrent use.
type Verifier struct {
	// Authority is the base URL of the tenants.
	Authority string
	// Tenant is the only tenant whose tokens are accepted; "" accepts all tenants of the authority.
	Tenant string
	// Client fetches the authority's documents.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	keys     keySet
	verified verifiedTokens
}

// claims are the claims as they are in a token.
type claims struct {
	jwt.RegisteredClaims
	TenantID string `json:"tid"`
	ObjectID string `json:"oid"`
	// AppID is the application in version 1 tokens, AuthorizedParty in version 2 tokens.
	AppID           string   `json:"appid"`
	AuthorizedParty string   `json:"azp"`
	Groups          []string `json:"groups"`
}

// Verify verifies the signature, validity period, issuer and audience of a token. The error is one of this package's.
func (v *Verifier) Verify(ctx context.Context, text string, audiences []string) (Claims, error) {
	now := v.Now
	if now == nil {
		now = time.Now
	}
	options := []jwt.ParserOption{jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(now)}
	parsed, known := v.verified.find(text, &v.keys)
	if known {
		if err := jwt.NewValidator(options...).Validate(parsed); err != nil {
			return Claims{}, reason(err)
		}
	} else {
		var key *rsa.PublicKey
		parsed = &claims{}
		token, err := jwt.ParseWithClaims(text, parsed, func(t *jwt.Token) (_ any, err error) {
			if v.Tenant != "" && !strings.EqualFold(parsed.TenantID, v.Tenant) {
				return nil, ErrIssuer
			}
			key, err = v.keys.find(ctx, v, keyID(t), parsed.TenantID)
			return key, err
		}, options...)
		if err != nil {
			return Claims{}, reason(err)
		}
		v.verified.add(text, verifiedToken{parsed, keyID(token), key})
	}
	switch {
	case parsed.Issuer != v.base()+parsed.TenantID+"/v2.0":
		return Claims{}, ErrIssuer
	case !slices.ContainsFunc(parsed.Audience, func(a string) bool { return slices.Contains(audiences, strings.TrimSuffix(a, "/")) }):
		return Claims{}, ErrAudience
	case parsed.ObjectID == "":
		return Claims{}, ErrNoObjectID
	}
	app := parsed.AppID
	if app == "" {
		app = parsed.AuthorizedParty
	}
	return Claims{TenantID: parsed.TenantID, ObjectID: parsed.ObjectID, AppID: app, Groups: parsed.Groups, Expires: parsed.ExpiresAt.Time}, nil
}

// keyID returns the ID of the key that a token names.
func keyID(t *jwt.Token) string {
	id, _ := t.Header["kid"].(string)
	return id
}

// base returns the authority's URL with a slash at its end.
func (v *Verifier) base() string { return strings.TrimSuffix(v.Authority, "/") + "/" }

// reason returns the error of this package for an error of the parser.
func reason(err error) error {
	for _, known := range []error{ErrUnavailable, ErrUnknownKey, ErrIssuer} {
		if errors.Is(err, known) {
			return err
		}
	}
	for _, known := range []struct{ parser, ours error }{
		{jwt.ErrTokenMalformed, ErrMalformed}, {jwt.ErrTokenSignatureInvalid, ErrSignature}, {jwt.ErrTokenExpired, ErrExpired},
		{jwt.ErrTokenRequiredClaimMissing, ErrExpired}, {jwt.ErrTokenNotValidYet, ErrNotYetValid},
	} {
		if errors.Is(err, known.parser) {
			return known.ours
		}
	}
	return ErrUnauthorized
}
