package authn

import (
	"context"
	"crypto/rsa"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/keycache"
)

// Endpoints are the endpoints of an issuer that people use to sign in to an application.
type Endpoints struct {
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	// EndSession and Device are empty if the issuer has none.
	EndSession string `json:"end_session_endpoint"`
	Device     string `json:"device_authorization_endpoint"`
}

// Person is someone who signed in.
type Person struct {
	// Name is for display. ObjectID identifies the person in the tenant.
	Name     string
	ObjectID string
	TenantID string
}

// ErrInvalidIDToken is the error for an ID token that does not prove who signed in. Its cause in the chain contains no part of the token.
var ErrInvalidIDToken = errors.New("the ID token is not accepted")

// IDTokenOptions configure an IDTokenVerifier.
type IDTokenOptions struct {
	// Issuer is the value of the iss claim and the base URL of the issuer's OpenID configuration. Its path begins with the ID of the tenant.
	Issuer string
	// ClientID is the web application.
	ClientID string
	// Client fetches the issuer's documents.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// IDTokenVerifier verifies the ID tokens of people who signed in to a web application (OpenID Connect Core 1.0, section 3.1.3.7). It is safe
// for concurrent use.
type IDTokenVerifier struct {
	options IDTokenOptions
	tenant  string
	keys    *keycache.Cache[map[string]*rsa.PublicKey]
	known   *keycache.Cache[Endpoints]
	parser  *jwt.Parser
}

// NewIDTokenVerifier returns an IDTokenVerifier. It returns an error unless the issuer is an https URL with a tenant.
func NewIDTokenVerifier(options IDTokenOptions) (*IDTokenVerifier, error) {
	if options.Now == nil {
		options.Now = time.Now
	}
	issuer, err := url.Parse(options.Issuer)
	if err != nil || issuer.Scheme != "https" || issuer.Host == "" {
		return nil, errors.New("must be an https URL")
	}
	tenant, _, _ := strings.Cut(strings.TrimPrefix(issuer.Path, "/"), "/")
	if tenant == "" {
		return nil, errors.New("must contain the ID of the tenant, as in https://login.microsoftonline.com/TENANT/v2.0")
	}
	documents := issuerKeys{issuer: options.Issuer, client: options.Client}
	return &IDTokenVerifier{
		options: options, tenant: tenant,
		keys: keycache.New(documents.fetch, options.Now),
		known: keycache.New(func(ctx context.Context) (Endpoints, error) {
			c, err := documents.configuration(ctx)
			if err == nil && (c.Authorization == "" || c.Token == "") {
				err = errors.New("the issuer's OpenID configuration has no endpoints for people")
			}
			return c.Endpoints, err
		}, options.Now),
		parser: jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(options.Issuer), jwt.WithAudience(options.ClientID),
			jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithStrictDecoding(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(options.Now)),
	}, nil
}

// Endpoints returns the endpoints of the issuer. The error is a *keycache.UnavailableError if the issuer cannot be reached.
func (v *IDTokenVerifier) Endpoints(ctx context.Context) (Endpoints, error) {
	known, _, err := v.known.Find(ctx, func(Endpoints) bool { return true })
	return known, err
}

// Verify returns the person of an ID token that was issued for a nonce. The error is a *keycache.UnavailableError if the token cannot be
// verified now, and else ErrInvalidIDToken.
func (v *IDTokenVerifier) Verify(ctx context.Context, text, nonce string) (Person, error) {
	return v.verify(ctx, text, func(got string) bool {
		return nonce != "" && subtle.ConstantTimeCompare([]byte(got), []byte(nonce)) == 1
	})
}

// VerifyDevice is Verify for the ID token of a device authorization (RFC 8628), whose request has no nonce. The caller must have received it from the
// token endpoint.
func (v *IDTokenVerifier) VerifyDevice(ctx context.Context, text string) (Person, error) {
	return v.verify(ctx, text, func(string) bool { return true })
}

// verify is Verify for a nonce that a function accepts.
func (v *IDTokenVerifier) verify(ctx context.Context, text string, accepts func(nonce string) bool) (Person, error) {
	if len(text) > maxTokenSize {
		return Person{}, invalidIDToken("the token is too large")
	}
	var parsed struct {
		claims
		Nonce string `json:"nonce"`
	}
	_, err := v.parser.ParseWithClaims(text, &parsed, func(token *jwt.Token) (any, error) {
		id, _ := token.Header["kid"].(string)
		return findKey(ctx, v.keys, id)
	})
	if err == nil {
		err = checkClaims(v.parser, text)
	}
	var unavailable *keycache.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return Person{}, unavailable
	case err != nil:
		return Person{}, errors.Join(ErrInvalidIDToken, rejectionCause(err))
	case len(parsed.Audience) != 1:
		return Person{}, invalidIDToken("the token has several audiences")
	case !accepts(parsed.Nonce):
		return Person{}, invalidIDToken("the token has another nonce")
	case !strings.EqualFold(parsed.TenantID, v.tenant):
		return Person{}, invalidIDToken("the token has another tenant")
	case parsed.ObjectID == "":
		return Person{}, invalidIDToken("the token has no oid")
	}
	name := parsed.PreferredName
	if name == "" {
		name = parsed.UniqueName
	}
	return Person{Name: name, ObjectID: parsed.ObjectID, TenantID: parsed.TenantID}, nil
}

func invalidIDToken(cause string) error { return errors.Join(ErrInvalidIDToken, errors.New(cause)) }
