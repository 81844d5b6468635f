package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

const (
	adminAudience = "https://admin.example"
	returnURI     = "https://portal.example/signed-in"
	verifier      = "a-verifier-of-more-than-forty-three-characters"
)

// password is that of alice.
const password = "a"

// signInIssuer returns an issuer with a web application, its workload's assertion, and two people, one with access to the application.
func signInIssuer(t *testing.T) (issuer *token.Issuer, assertion func(subject string) string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.MarshalPKIXPublicKey(&key.PublicKey))(t)
	file := filepath.Join(t.TempDir(), "issuer.pub")
	must.Do(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	issuer = must.Get(token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{
		{TenantID: "t", ClientID: "portal", Name: "SRE portal", ObjectID: "p", Workload: "sa:admin", Audiences: []string{adminAudience}, RedirectURIs: []string{returnURI}},
		{TenantID: "t", ClientID: "other", Name: "Other", ObjectID: "x", Workload: "sa:other", Audiences: []string{adminAudience}, RedirectURIs: []string{returnURI}},
		{TenantID: "t", ClientID: "hcpctl", ClientSecret: password, ObjectID: "alice", Name: "alice@example.com", Groups: []string{"readers"}, Audiences: []string{adminAudience}},
		{TenantID: "t", ClientID: "customer", ClientSecret: "b", ObjectID: "bob", Name: "bob@example.com"},
	}, adminAudience))(t)
	issuer.Workloads = must.Get(token.OpenFederation("https://cluster.example", file))(t)
	return issuer, func(subject string) string {
		text := must.Get(jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{Issuer: "https://cluster.example", Subject: subject,
			Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}).SignedString(key))(t)
		return text
	}
}

// signInQuery returns the parameters of a valid authorization request, after a change.
func signInQuery(change func(url.Values)) url.Values {
	sum := sha256.Sum256([]byte(verifier))
	query := url.Values{"client_id": {"portal"}, "redirect_uri": {returnURI}, "response_type": {"code"}, "scope": {"openid profile offline_access " + adminAudience + "/.default"},
		"state": {"s"}, "nonce": {"n"}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	if change != nil {
		change(query)
	}
	return query
}

// TestSignInChecksTheRequest checks which authorization requests are refused, and which of the errors the application receives.
func TestSignInChecksTheRequest(t *testing.T) {
	issuer, _ := signInIssuer(t)
	for reason, test := range map[string]struct {
		tenant string
		change func(url.Values)
		// code is the code of the error that the application receives; "shown" means that it receives none.
		code string
	}{
		"valid":                  {"t", nil, ""},
		"another tenant":         {"u", nil, "shown"},
		"an unknown application": {"t", func(q url.Values) { q.Set("client_id", "none") }, "shown"},
		"a person's client":      {"t", func(q url.Values) { q.Set("client_id", "hcpctl") }, "shown"},
		"another redirect URI":   {"t", func(q url.Values) { q.Set("redirect_uri", returnURI+"/x") }, "shown"},
		"no redirect URI":        {"t", func(q url.Values) { q.Del("redirect_uri") }, "shown"},
		"the implicit flow":      {"t", func(q url.Values) { q.Set("response_type", "token") }, "unsupported_response_type"},
		"no challenge":           {"t", func(q url.Values) { q.Del("code_challenge") }, "invalid_request"},
		"a plain challenge":      {"t", func(q url.Values) { q.Set("code_challenge_method", "plain") }, "invalid_request"},
		"a short challenge":      {"t", func(q url.Values) { q.Set("code_challenge", "abcd") }, "invalid_request"},
		"no nonce":               {"t", func(q url.Values) { q.Del("nonce") }, "invalid_request"},
		"no OpenID scope":        {"t", func(q url.Values) { q.Set("scope", adminAudience+"/.default") }, "invalid_scope"},
		"another resource":       {"t", func(q url.Values) { q.Set("scope", "openid https://management.azure.com/.default") }, "invalid_scope"},
	} {
		signIn, err := issuer.SignIn(test.tenant, signInQuery(test.change))
		got := ""
		if failure := (*token.SignInError)(nil); errors.As(err, &failure) {
			got = failure.Code
			if signIn.RedirectURI != returnURI || signIn.State != "s" {
				t.Errorf("%s: the application receives the error at %q with the state %q", reason, signIn.RedirectURI, signIn.State)
			}
		} else if err != nil {
			got = "shown"
		}
		if got != test.code {
			t.Errorf("%s: %q (%v), want %q", reason, got, err, test.code)
		}
		if err == nil && (len(signIn.People) != 1 || signIn.People[0].ObjectID != "alice") {
			t.Errorf("%s: these may sign in: %v", reason, signIn.People)
		}
	}
}

// TestCodesAreRedeemedOnce checks the tokens of a code, and that a code is redeemed once, by its application, with its verifier.
func TestCodesAreRedeemedOnce(t *testing.T) {
	issuer, assertion := signInIssuer(t)
	signIn := must.Get(issuer.SignIn("t", signInQuery(nil)))(t)
	for _, wrong := range []string{"", "wrong"} {
		if _, err := issuer.Code(signIn, "alice", wrong); !errors.Is(err, token.ErrWrongPassword) {
			t.Errorf("the password %q: %v", wrong, err)
		}
	}
	if _, err := issuer.Code(signIn, "bob", password); err == nil {
		t.Error("a person without access got a code")
	}
	newCode := func() string {
		return must.Get(issuer.Code(signIn, "alice", password))(t)
	}
	for reason, test := range map[string]struct {
		client, assertion, redirectURI, verifier string
		want                                     error
	}{
		"another application":   {"other", assertion("sa:other"), returnURI, verifier, token.ErrInvalidGrant},
		"another workload":      {"portal", assertion("sa:other"), returnURI, verifier, token.ErrInvalidClient},
		"no authentication":     {"portal", "", returnURI, verifier, token.ErrInvalidClient},
		"another redirect URI":  {"portal", assertion("sa:admin"), returnURI + "/x", verifier, token.ErrInvalidGrant},
		"another verifier":      {"portal", assertion("sa:admin"), returnURI, verifier + "x", token.ErrInvalidGrant},
		"an empty verifier":     {"portal", assertion("sa:admin"), returnURI, "", token.ErrInvalidGrant},
		"the right application": {"portal", assertion("sa:admin"), returnURI, verifier, nil},
	} {
		code := newCode()
		if _, err := issuer.Redeem("t", test.client, test.assertion, code, test.redirectURI, test.verifier); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", reason, err, test.want)
		}
		if test.want != nil {
			continue
		}
		if _, err := issuer.Redeem("t", test.client, test.assertion, code, test.redirectURI, test.verifier); !errors.Is(err, token.ErrInvalidGrant) {
			t.Errorf("%s, twice: %v, want %v", reason, err, token.ErrInvalidGrant)
		}
	}

	tokens := must.Get(issuer.Redeem("t", "portal", assertion("sa:admin"), newCode(), returnURI, verifier))(t)
	checkClaims(t, "access token", tokens.AccessToken, map[string]any{"aud": []any{adminAudience}, "appid": "portal", "oid": "alice", "tid": "t", "groups": []any{"readers"}})
	checkClaims(t, "ID token", tokens.IDToken, map[string]any{"iss": "https://issuer.example/t/v2.0", "aud": []any{"portal"}, "oid": "alice", "tid": "t", "nonce": "n", "preferred_username": "alice@example.com"})

	refreshed := must.Get(issuer.Refresh("t", "portal", assertion("sa:admin"), tokens.RefreshToken))(t)
	checkClaims(t, "refreshed access token", refreshed.AccessToken, map[string]any{"aud": []any{adminAudience}, "appid": "portal", "oid": "alice"})
	for reason, test := range map[string]struct {
		client, assertion, token string
		want                     error
	}{
		"another application": {"other", assertion("sa:other"), tokens.RefreshToken, token.ErrInvalidGrant},
		"no authentication":   {"portal", "", tokens.RefreshToken, token.ErrInvalidClient},
		"an access token":     {"portal", assertion("sa:admin"), tokens.AccessToken, token.ErrInvalidGrant},
		"an ID token":         {"portal", assertion("sa:admin"), tokens.IDToken, token.ErrInvalidGrant},
	} {
		if _, err := issuer.Refresh("t", test.client, test.assertion, test.token); !errors.Is(err, test.want) {
			t.Errorf("refresh by %s: %v, want %v", reason, err, test.want)
		}
	}
}

// checkClaims compares claims of a token.
func checkClaims(t *testing.T, name, text string, want map[string]any) {
	t.Helper()
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for claim, value := range want {
		switch value := value.(type) {
		case []any:
			got, _ := claims[claim].([]any)
			if len(got) != 1 || got[0] != value[0] {
				t.Errorf("%s: %s is %v, want %v", name, claim, claims[claim], value)
			}
		default:
			if claims[claim] != value {
				t.Errorf("%s: %s is %v, want %v", name, claim, claims[claim], value)
			}
		}
	}
}
