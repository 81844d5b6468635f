package authn

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
)

// leeway is the permitted difference between the clocks of issuer and verifier.
const leeway = time.Minute

// maxTokenSize is the size in bytes above which a token is rejected without parsing.
const maxTokenSize = 16 << 10

// maxCachedTokens bounds the cache of verified tokens. ARM uses a token for an hour.
const maxCachedTokens = 1024

// TokenOptions configure the tokens that a TokenVerifier accepts.
type TokenOptions struct {
	// Issuer is the value of the iss claim and the base URL of the issuer's OpenID configuration.
	Issuer string
	// Audience is the value of the aud claim.
	Audience string
	// ClientIDs lists the applications that may call.
	ClientIDs []string
	// Client fetches the issuer's documents.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log receives the keys of the issuer that cannot be used; nil means none.
	Log *slog.Logger
	// Metrics registers the number of them; nil means none.
	Metrics prometheus.Registerer
}

// TokenVerifier authenticates requests by their JWTs. It verifies signature, issuer, audience, validity period and the
// application that the token was issued to. It is safe for concurrent use.
type TokenVerifier struct {
	options TokenOptions
	keys    *keycache.Cache[map[string]*rsa.PublicKey]
	parser  *jwt.Parser

	mu    sync.Mutex
	cache map[[sha256.Size]byte]cachedToken
}

// cachedToken is a verified token.
type cachedToken struct {
	caller  Caller
	expires time.Time
}

// NewTokenVerifier returns a TokenVerifier. Its Run method refreshes the keys of the issuer.
func NewTokenVerifier(options TokenOptions) *TokenVerifier {
	if options.Now == nil {
		options.Now = time.Now
	}
	documents := issuerKeys{issuer: options.Issuer, client: options.Client, ignored: reportIgnored(options.Log, options.Metrics)}
	return &TokenVerifier{
		options: options,
		keys:    keycache.New(documents.fetch, options.Now),
		parser: jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(options.Issuer), jwt.WithAudience(options.Audience),
			jwt.WithExpirationRequired(), jwt.WithStrictDecoding(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(options.Now)),
		cache: map[[sha256.Size]byte]cachedToken{},
	}
}

// Run fetches the issuer's keys periodically until ctx ends.
func (t *TokenVerifier) Run(ctx context.Context) { t.keys.Run(ctx) }

// Ready implements Authenticator. It returns an error while there are no keys or only outdated ones.
func (t *TokenVerifier) Ready(context.Context) error { return t.keys.Ready() }

// claims are the claims of a token that identify its caller.
type claims struct {
	jwt.RegisteredClaims
	TenantID string `json:"tid"`
	// AppID is the application in version 1 tokens of Entra, AuthorizedParty in version 2 tokens.
	AppID           string `json:"appid"`
	AuthorizedParty string `json:"azp"`
	ObjectID        string `json:"oid"`
	// PreferredName is the caller's name in version 2 tokens, UniqueName in version 1 tokens.
	PreferredName string   `json:"preferred_username"`
	UniqueName    string   `json:"unique_name"`
	Groups        []string `json:"groups"`
	// ClaimNames names the claims that Entra leaves out because they are too large: it contains groups for a caller with more than
	// 200 groups. HasGroups is its form in tokens of the implicit flow.
	ClaimNames map[string]json.RawMessage `json:"_claim_names"`
	HasGroups  bool                       `json:"hasgroups"`
	Roles      []string                   `json:"roles"`
	Methods    []string                   `json:"amr"`
	Contexts   []string                   `json:"acrs"`
	DeviceID   string                     `json:"deviceid"`
}

// groupsOverage reports whether the token lacks the caller's groups because there are too many.
func (c *claims) groupsOverage() bool {
	_, distributed := c.ClaimNames[ClaimGroups]
	return len(c.Groups) == 0 && (distributed || c.HasGroups)
}

// Authenticate implements Authenticator.
func (t *TokenVerifier) Authenticate(ctx context.Context, r *http.Request) (Caller, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme == "" {
		return Caller{}, reject("", "The request carries no token.", nil)
	}
	if !strings.EqualFold(scheme, "Bearer") || text == "" || len(text) > maxTokenSize {
		return Caller{}, reject("invalid_request", "The request carries no valid bearer token.", nil)
	}
	digest, now := sha256.Sum256([]byte(text)), t.options.Now()
	t.mu.Lock()
	cached, ok := t.cache[digest]
	t.mu.Unlock()
	if ok && now.Before(cached.expires) {
		return cached.caller, nil
	}
	caller, expires, err := t.verify(ctx, text)
	if err != nil {
		return Caller{}, err
	}
	t.store(digest, cachedToken{caller, expires}, now)
	return caller, nil
}

func (t *TokenVerifier) verify(ctx context.Context, text string) (Caller, time.Time, error) {
	var parsed claims
	_, err := t.parser.ParseWithClaims(text, &parsed, func(token *jwt.Token) (any, error) {
		id, _ := token.Header["kid"].(string)
		return findKey(ctx, t.keys, id)
	})
	if err == nil {
		err = checkClaims(t.parser, text)
	}
	var keysErr *keycache.UnavailableError
	if errors.As(err, &keysErr) {
		return Caller{}, time.Time{}, unavailable(keysErr)
	}
	if err != nil {
		return Caller{}, time.Time{}, reject("invalid_token", "The request's token is not accepted.", rejectionCause(err))
	}
	caller := Caller{TenantID: parsed.TenantID, AppID: parsed.AppID, ObjectID: parsed.ObjectID,
		Name: cmp.Or(parsed.PreferredName, parsed.UniqueName), Groups: parsed.Groups, GroupsOverage: parsed.groupsOverage(),
		Roles: parsed.Roles, AuthenticationMethods: parsed.Methods, AuthenticationContexts: parsed.Contexts, DeviceID: parsed.DeviceID}
	if caller.AppID == "" {
		caller.AppID = parsed.AuthorizedParty
	}
	if caller.ObjectID == "" {
		return Caller{}, time.Time{}, reject("invalid_token", "The request's token is not accepted.", errors.New("the token has no oid"))
	}
	for _, allowed := range t.options.ClientIDs {
		if strings.EqualFold(allowed, caller.AppID) {
			return caller, parsed.ExpiresAt.Time, nil
		}
	}
	return Caller{}, time.Time{}, apierror.New(apierror.PermissionDenied, "The caller may not use this service.").
		WithCause(errors.New("the token was issued to another application"))
}

// errDuplicateClaim is the error for a token with a claim that is given more than once.
var errDuplicateClaim = errors.New("the token has a claim twice")

// checkClaims returns an error if a verified token has a claim twice. Other services might use the other value.
func checkClaims(parser *jwt.Parser, token string) error {
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, _ := strings.Cut(rest, ".")
	content, err := parser.DecodeSegment(encoded)
	if err != nil {
		return err
	}
	if wire.CheckDuplicates(content) != nil {
		return errDuplicateClaim // the names of claims are parts of the token
	}
	return nil
}

// rejectionCause returns a fixed text for a parser's error, because the parser's text may contain parts of the token.
func rejectionCause(err error) error {
	for known, text := range map[error]string{
		jwt.ErrTokenMalformed: "the token is malformed", jwt.ErrTokenSignatureInvalid: "the token has an invalid signature", jwt.ErrTokenExpired: "the token has expired",
		jwt.ErrTokenNotValidYet: "the token is not valid yet", jwt.ErrTokenInvalidAudience: "the token has another audience",
		jwt.ErrTokenInvalidIssuer: "the token has another issuer", jwt.ErrTokenRequiredClaimMissing: "the token lacks a required claim",
		jwt.ErrTokenUnverifiable: "the token has an unknown key", errDuplicateClaim: errDuplicateClaim.Error(),
	} {
		if errors.Is(err, known) {
			return errors.New(text)
		}
	}
	return errors.New("the token is invalid")
}

// store caches a verified token until it expires. If the cache is full, it removes expired tokens first, then arbitrary
// ones.
func (t *TokenVerifier) store(digest [sha256.Size]byte, v cachedToken, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.cache) >= maxCachedTokens {
		for other, known := range t.cache {
			if !now.Before(known.expires) {
				delete(t.cache, other)
			}
		}
	}
	for other := range t.cache {
		if len(t.cache) < maxCachedTokens {
			break
		}
		delete(t.cache, other)
	}
	t.cache[digest] = v
}
