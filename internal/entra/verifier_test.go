package entra_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const audience = "https://service.example"

func TestVerifyReportsReasons(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	defer issuer.Close()
	now := time.Now()
	changed := func(change func(jwt.MapClaims)) string {
		claims := issuer.Claims(audience, "principal", now.Add(time.Hour))
		change(claims)
		return must.Get(issuer.Sign(claims))(t)
	}
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	signedByOther := func(keyID string) string {
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, issuer.Claims(audience, "principal", now.Add(time.Hour)))
		token.Header["kid"] = keyID
		return must.Get(token.SignedString(key))(t)
	}
	unsigned := must.Get(jwt.NewWithClaims(jwt.SigningMethodNone, issuer.Claims(audience, "principal", now.Add(time.Hour))).SignedString(jwt.UnsafeAllowNoneSignatureType))(t)
	for reason, test := range map[string]struct {
		text string
		want error
	}{
		"valid":                  {changed(func(jwt.MapClaims) {}), nil},
		"audience with a slash":  {changed(func(c jwt.MapClaims) { c["aud"] = audience + "/" }), nil},
		"not a JWT":              {"abc", entra.ErrMalformed},
		"no signature algorithm": {unsigned, entra.ErrSignature},
		"key of somebody else":   {signedByOther("test"), entra.ErrSignature},
		"unknown key":            {signedByOther("other"), entra.ErrUnknownKey},
		"expired":                {changed(func(c jwt.MapClaims) { c["exp"] = now.Add(-2 * time.Minute).Unix() }), entra.ErrExpired},
		"no end":                 {changed(func(c jwt.MapClaims) { delete(c, "exp") }), entra.ErrExpired},
		"not valid yet":          {changed(func(c jwt.MapClaims) { c["nbf"] = now.Add(2 * time.Minute).Unix() }), entra.ErrNotYetValid},
		"other tenant":           {changed(func(c jwt.MapClaims) { c["tid"] = "other" }), entra.ErrIssuer},
		"other issuer":           {changed(func(c jwt.MapClaims) { c["iss"] = "https://issuer.example/" + entratest.Tenant + "/v2.0" }), entra.ErrIssuer},
		"other audience":         {changed(func(c jwt.MapClaims) { c["aud"] = "https://other.example" }), entra.ErrAudience},
		"no principal":           {changed(func(c jwt.MapClaims) { delete(c, "oid") }), entra.ErrNoObjectID},
	} {
		t.Run(reason, func(t *testing.T) {
			// Each test has its own verifier, which fetches the keys at once, so that the interval between fetches does not matter.
			v := &entra.Verifier{Authority: issuer.Authority(), Tenant: entratest.Tenant, Client: http.DefaultClient}
			claims, err := v.Verify(t.Context(), test.text, []string{audience})
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err == nil && (claims.ObjectID != "principal" || claims.TenantID != entratest.Tenant || claims.Expires.Unix() != now.Add(time.Hour).Unix()) {
				t.Errorf("claims: %+v", claims)
			}
		})
	}
}

// TestVerifiedTokensAreCheckedAgain: a token whose signature was verified is refused like a new one when it has expired, for another audience, and
// when the authority has no such key any more.
func TestVerifiedTokensAreCheckedAgain(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	defer issuer.Close()
	now := time.Now()
	text := must.Get(issuer.Token(audience, now.Add(time.Hour)))(t)
	v := &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient, Now: func() time.Time { return now }}
	first := must.Get(v.Verify(t.Context(), text, []string{audience}))(t)
	if second := must.Get(v.Verify(t.Context(), text, []string{audience}))(t); second.ObjectID != first.ObjectID || !second.Expires.Equal(first.Expires) {
		t.Errorf("claims of the second call: %+v, of the first: %+v", second, first)
	}
	if _, err := v.Verify(t.Context(), text, []string{"https://other.example"}); !errors.Is(err, entra.ErrAudience) {
		t.Errorf("another audience: got %v, want %v", err, entra.ErrAudience)
	}
	if _, err := v.Verify(t.Context(), text[:len(text)-4]+"AAAA", []string{audience}); !errors.Is(err, entra.ErrSignature) {
		t.Errorf("another signature: got %v, want %v", err, entra.ErrSignature)
	}
	now = now.Add(2 * time.Hour)
	if _, err := v.Verify(t.Context(), text, []string{audience}); !errors.Is(err, entra.ErrExpired) {
		t.Errorf("expired: got %v, want %v", err, entra.ErrExpired)
	}
}

// TestSignaturesAreVerifiedOnce: a second verification of a token costs a small part of the first one, which a parser and a signature cost.
func TestSignaturesAreVerifiedOnce(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	defer issuer.Close()
	text := must.Get(issuer.Token(audience, time.Now().Add(time.Hour)))(t)
	v := &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient}
	must.Get(v.Verify(t.Context(), text, []string{audience}))(t)
	const limit = 20
	if allocated := testing.AllocsPerRun(100, func() { must.Get(v.Verify(t.Context(), text, []string{audience}))(t) }); allocated > limit {
		t.Errorf("the verification of a known token allocates %.0f objects, more than %d: its signature is verified again", allocated, limit)
	}
}

func TestVerifyFailsWithoutKeys(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	text := must.Get(issuer.Token(audience, time.Now().Add(time.Hour)))(t)
	v := &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient}
	issuer.Close()
	if _, err := v.Verify(t.Context(), text, []string{audience}); !errors.Is(err, entra.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, entra.ErrUnavailable)
	}
}
