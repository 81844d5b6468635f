package authn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// leeway is how far the clocks of issuer and verifier may differ.
const leeway = time.Minute

// maxToken bounds a token; a larger one is not looked at.
const maxToken = 16 << 10

// maxVerified is how many verified tokens are remembered. ARM uses one for an hour.
const maxVerified = 1024

// TokenOptions say which tokens count.
type TokenOptions struct {
	// Issuer is the value of iss, and the URL below which the issuer's OpenID configuration is.
	Issuer string
	// Audience is who the tokens are for.
	Audience string
	// ClientIDs are the applications that may call.
	ClientIDs []string
	// Client reads the issuer's documents.
	Client *http.Client
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Tokens verifies JWTs: signature, issuer, audience, life, and the application that they were issued to.
type Tokens struct {
	options TokenOptions
	keys    *keys
	parser  *jwt.Parser

	mu       sync.Mutex
	verified map[[sha256.Size]byte]verified
}

type verified struct {
	caller Caller
	until  time.Time
}

// NewTokens makes a Tokens; Run keeps its keys fresh.
func NewTokens(options TokenOptions) *Tokens {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Tokens{
		options: options,
		keys:    &keys{issuer: options.Issuer, client: options.Client, now: options.Now},
		parser: jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(options.Issuer), jwt.WithAudience(options.Audience),
			jwt.WithExpirationRequired(), jwt.WithStrictDecoding(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(options.Now)),
		verified: map[[sha256.Size]byte]verified{},
	}
}

// Run reads the issuer's keys, and reads them again from time to time, until ctx ends.
func (t *Tokens) Run(ctx context.Context) { t.keys.run(ctx) }

// Ready implements Authenticator: it is while there are keys that are not too old.
func (t *Tokens) Ready(context.Context) error { return t.keys.ready() }

type claims struct {
	jwt.RegisteredClaims
	TenantID string `json:"tid"`
	// AppID is the application in Entra's tokens of version 1, AuthorizedParty in those of version 2.
	AppID           string `json:"appid"`
	AuthorizedParty string `json:"azp"`
	ObjectID        string `json:"oid"`
	// PreferredName is the caller's name in tokens of version 2, UniqueName in those of version 1.
	PreferredName string   `json:"preferred_username"`
	UniqueName    string   `json:"unique_name"`
	Groups        []string `json:"groups"`
}

// Authenticate implements Authenticator.
func (t *Tokens) Authenticate(ctx context.Context, r *http.Request) (Caller, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme == "" {
		return Caller{}, refuse("", "The request carries no token.", nil)
	}
	if !strings.EqualFold(scheme, "Bearer") || text == "" || len(text) > maxToken {
		return Caller{}, refuse("invalid_request", "The request carries no bearer token that can be read.", nil)
	}
	digest, now := sha256.Sum256([]byte(text)), t.options.Now()
	t.mu.Lock()
	known, ok := t.verified[digest]
	t.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.caller, nil
	}
	caller, until, err := t.verify(ctx, text)
	if err != nil {
		return Caller{}, err
	}
	t.remember(digest, verified{caller, until}, now)
	return caller, nil
}

func (t *Tokens) verify(ctx context.Context, text string) (Caller, time.Time, error) {
	var found claims
	_, err := t.parser.ParseWithClaims(text, &found, func(token *jwt.Token) (any, error) {
		id, _ := token.Header["kid"].(string)
		return t.keys.find(ctx, id)
	})
	var missing *keysMissing
	if errors.As(err, &missing) {
		return Caller{}, time.Time{}, undecided(missing)
	}
	if err != nil {
		return Caller{}, time.Time{}, refuse("invalid_token", "The request's token is not accepted.", reason(err))
	}
	caller := Caller{TenantID: found.TenantID, AppID: found.AppID, ObjectID: found.ObjectID,
		Name: cmp.Or(found.PreferredName, found.UniqueName), Groups: found.Groups}
	if caller.AppID == "" {
		caller.AppID = found.AuthorizedParty
	}
	if caller.ObjectID == "" {
		return Caller{}, time.Time{}, refuse("invalid_token", "The request's token is not accepted.", errors.New("the token has no oid"))
	}
	for _, allowed := range t.options.ClientIDs {
		if strings.EqualFold(allowed, caller.AppID) {
			return caller, found.ExpiresAt.Time, nil
		}
	}
	return Caller{}, time.Time{}, apierror.New(apierror.PermissionDenied, "The caller may not use this service.").
		WithCause(fmt.Errorf("the token was issued to another application"))
}

// reason is why a token is not accepted, in words of ours: those of the parser may repeat what the token says.
func reason(err error) error {
	for known, text := range map[error]string{
		jwt.ErrTokenMalformed: "it is malformed", jwt.ErrTokenSignatureInvalid: "its signature is wrong", jwt.ErrTokenExpired: "it has expired",
		jwt.ErrTokenNotValidYet: "it is not valid yet", jwt.ErrTokenInvalidAudience: "it is for another audience",
		jwt.ErrTokenInvalidIssuer: "it is of another issuer", jwt.ErrTokenRequiredClaimMissing: "it lacks a claim",
		jwt.ErrTokenUnverifiable: "its key is not known",
	} {
		if errors.Is(err, known) {
			return errors.New(text)
		}
	}
	return errors.New("it is not valid")
}

// remember keeps a verified token until it ends. When there are too many those that have ended go first, then any.
func (t *Tokens) remember(digest [sha256.Size]byte, v verified, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified) >= maxVerified {
		for other, known := range t.verified {
			if !now.Before(known.until) {
				delete(t.verified, other)
			}
		}
	}
	for other := range t.verified {
		if len(t.verified) < maxVerified {
			break
		}
		delete(t.verified, other)
	}
	t.verified[digest] = v
}
