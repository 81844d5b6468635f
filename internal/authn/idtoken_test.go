package authn_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestIDTokensProveWhoSignedIn checks which ID tokens are accepted.
func TestIDTokensProveWhoSignedIn(t *testing.T) {
	const application, nonce = "portal", "a nonce"
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	other := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	var issuer string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document := map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys", "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token"}
		if r.URL.Path == "/"+tenant+"/v2.0/keys" {
			document = map[string]any{"keys": []any{map[string]any{"kty": "RSA", "use": "sig", "kid": "one",
				"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())}}}
		}
		_ = json.NewEncoder(w).Encode(document)
	}))
	defer server.Close()
	issuer = server.URL + "/" + tenant + "/v2.0"
	verifier := must.Get(authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: issuer, ClientID: application, Client: server.Client()}))(t)
	endpoints, err := verifier.Endpoints(t.Context())
	if want := (authn.Endpoints{Authorization: issuer + "/authorize", Token: issuer + "/token"}); err != nil || endpoints != want {
		t.Errorf("the endpoints are %+v, %v", endpoints, err)
	}
	signClaims := func(key *rsa.PrivateKey, method jwt.SigningMethod, claims jwt.Claims) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = "one"
		var secret any = key
		if method == jwt.SigningMethodNone {
			secret = jwt.UnsafeAllowNoneSignatureType
		}
		return must.Get(token.SignedString(secret))(t)
	}
	claims := func(changes jwt.MapClaims) jwt.MapClaims {
		now := time.Now()
		all := jwt.MapClaims{"iss": issuer, "aud": application, "oid": object, "tid": tenant, "nonce": nonce, "preferred_username": "alice@example.com",
			"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
		for name, value := range changes {
			all[name] = value
			if value == nil {
				delete(all, name)
			}
		}
		return all
	}
	sign := func(key *rsa.PrivateKey, method jwt.SigningMethod, changes jwt.MapClaims) string {
		return signClaims(key, method, claims(changes))
	}
	rs := jwt.SigningMethodRS256
	twice := signClaims(key, rs, repeated{claims(nil)})
	for reason, test := range map[string]struct {
		token, nonce string
		valid        bool
	}{
		"valid":               {sign(key, rs, nil), nonce, true},
		"another nonce":       {sign(key, rs, nil), "another", false},
		"no expected nonce":   {sign(key, rs, jwt.MapClaims{"nonce": ""}), "", false},
		"no nonce":            {sign(key, rs, jwt.MapClaims{"nonce": nil}), nonce, false},
		"another issuer":      {sign(key, rs, jwt.MapClaims{"iss": "https://attacker.example/" + tenant + "/v2.0"}), nonce, false},
		"another application": {sign(key, rs, jwt.MapClaims{"aud": "other"}), nonce, false},
		"several audiences":   {sign(key, rs, jwt.MapClaims{"aud": []string{application, "other"}}), nonce, false},
		"another tenant":      {sign(key, rs, jwt.MapClaims{"tid": "00000000-0000-0000-0000-000000000000"}), nonce, false},
		"no tenant":           {sign(key, rs, jwt.MapClaims{"tid": nil}), nonce, false},
		"no object":           {sign(key, rs, jwt.MapClaims{"oid": nil}), nonce, false},
		"expired":             {sign(key, rs, jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()}), nonce, false},
		"no expiration":       {sign(key, rs, jwt.MapClaims{"exp": nil}), nonce, false},
		"another key":         {sign(other, rs, nil), nonce, false},
		"no signature":        {sign(key, jwt.SigningMethodNone, nil), nonce, false},
		"claim twice":         {twice, nonce, false},
		"no token":            {"", nonce, false},
	} {
		person, err := verifier.Verify(t.Context(), test.token, test.nonce)
		if test.valid != (err == nil) || err != nil && !errors.Is(err, authn.ErrInvalidIDToken) {
			t.Errorf("%s: %v", reason, err)
		}
		if want := (authn.Person{Name: "alice@example.com", ObjectID: object, TenantID: tenant}); test.valid && person != want {
			t.Errorf("%s: the person is %+v", reason, person)
		}
	}
	// The request of a device has no nonce. Everything else is checked.
	for reason, test := range map[string]struct {
		token string
		valid bool
	}{
		"without a nonce":     {sign(key, rs, jwt.MapClaims{"nonce": nil}), true},
		"another application": {sign(key, rs, jwt.MapClaims{"nonce": nil, "aud": "other"}), false},
		"another key":         {sign(other, rs, jwt.MapClaims{"nonce": nil}), false},
	} {
		if _, err := verifier.VerifyDevice(t.Context(), test.token); test.valid != (err == nil) || err != nil && !errors.Is(err, authn.ErrInvalidIDToken) {
			t.Errorf("device, %s: %v", reason, err)
		}
	}

	for _, invalid := range []string{"http://issuer.example/" + tenant + "/v2.0", "https://issuer.example", "https:///" + tenant} {
		if _, err := authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: invalid}); err == nil {
			t.Errorf("the issuer %q is accepted", invalid)
		}
	}
	server.Close()
	away := must.Get(authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: issuer, ClientID: application, Client: server.Client()}))(t)
	var unavailable *keycache.UnavailableError
	if _, err := away.Verify(t.Context(), sign(key, rs, nil), nonce); !errors.As(err, &unavailable) {
		t.Errorf("without the issuer: %v, want that the keys are unavailable", err)
	}
}
