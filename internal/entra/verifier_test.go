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

func TestVerifyFailsWithoutKeys(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	text := must.Get(issuer.Token(audience, time.Now().Add(time.Hour)))(t)
	v := &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient}
	issuer.Close()
	if _, err := v.Verify(t.Context(), text, []string{audience}); !errors.Is(err, entra.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, entra.ErrUnavailable)
	}
}
