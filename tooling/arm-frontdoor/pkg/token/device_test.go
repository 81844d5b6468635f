package token_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// publicIssuer returns the issuer of signInIssuer with a public application.
func publicIssuer(t *testing.T) (*token.Issuer, func(subject string) string) {
	t.Helper()
	issuer, assertion := signInIssuer(t)
	issuer.AddClients(token.Client{TenantID: "t", ClientID: "cli", Name: "hcpctl", ObjectID: "c", Public: true, Audiences: []string{adminAudience},
		RedirectURIs: []string{"http://127.0.0.1/signed-in"}})
	return issuer, assertion
}

// deviceForm returns the parameters of a valid device authorization.
func deviceForm() url.Values {
	return url.Values{"client_id": {"cli"}, "scope": {"openid profile offline_access " + adminAudience + "/.default"}}
}

// TestPublicApplicationsUseLoopback checks the redirect URIs of a public application, and that it gets tokens with its code and verifier alone, while the
// codes of another application need its authentication.
func TestPublicApplicationsUseLoopback(t *testing.T) {
	issuer, assertion := publicIssuer(t)
	for uri, accepted := range map[string]bool{
		"http://127.0.0.1:5123/signed-in": true, "http://127.0.0.1:1/signed-in": true, "http://127.0.0.1/signed-in": true,
		"http://127.0.0.1:5123/other": false, "https://127.0.0.1:5123/signed-in": false, "http://localhost:5123/signed-in": false,
		"http://127.0.0.1.example:5123/signed-in": false, "http://u@127.0.0.1:5123/signed-in": false, "http://127.0.0.1:5123/signed-in?x=1": false,
	} {
		if _, err := issuer.SignIn("t", signInQuery(func(q url.Values) { q.Set("client_id", "cli"); q.Set("redirect_uri", uri) })); (err == nil) != accepted {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if _, err := issuer.SignIn("t", signInQuery(func(q url.Values) { q.Set("redirect_uri", strings.Replace(returnURI, "example", "example:444", 1)) })); err == nil {
		t.Error("a web application returns to another port")
	}
	const uri = "http://127.0.0.1:5123/signed-in"
	signIn := must.Get(issuer.SignIn("t", signInQuery(func(q url.Values) { q.Set("client_id", "cli"); q.Set("redirect_uri", uri) })))(t)
	newCode := func(s token.SignIn) string {
		return must.Get(issuer.Code(s, "alice", password))(t)
	}
	if _, err := issuer.Redeem("t", "cli", "", newCode(signIn), uri, verifier+"x"); !errors.Is(err, token.ErrInvalidGrant) {
		t.Errorf("another verifier: %v", err)
	}
	tokens := must.Get(issuer.Redeem("t", "cli", "", newCode(signIn), uri, verifier))(t)
	if _, err := issuer.Refresh("t", "cli", "", tokens.RefreshToken); err != nil {
		t.Error(err)
	}
	if _, err := issuer.Refresh("t", "portal", assertion("sa:admin"), tokens.RefreshToken); !errors.Is(err, token.ErrInvalidGrant) {
		t.Errorf("the refresh token of another application: %v", err)
	}
	if _, err := issuer.Issue("t", "cli", "", adminAudience+"/.default"); !errors.Is(err, token.ErrInvalidClient) {
		t.Errorf("a public application without a person: %v", err)
	}
}

// TestDevicesAreDecidedOnce checks what a device gets before and after a person decides.
func TestDevicesAreDecidedOnce(t *testing.T) {
	issuer, _ := publicIssuer(t)
	begin := func() token.Device {
		t.Helper()
		return must.Get(issuer.AuthorizeDevice("t", deviceForm()))(t)
	}
	device := begin()
	if !regexp.MustCompile(`^[B-Z]{4}-[B-Z]{4}$`).MatchString(device.UserCode) || len(device.Code) < 20 {
		t.Errorf("%+v", device)
	}
	redeem := func(d token.Device) error {
		_, err := issuer.RedeemDevice("t", "cli", d.Code)
		return err
	}
	for _, want := range []error{token.ErrPending, token.ErrSlowDown} {
		if err := redeem(device); !errors.Is(err, want) {
			t.Errorf("before the person decides: %v, want %v", err, want)
		}
	}
	if _, _, err := issuer.DeviceSignIn("t", "BBBB-BBBB"); err == nil && device.UserCode != "BBBB-BBBB" {
		t.Error("an unknown user code is accepted")
	}
	if _, _, err := issuer.DeviceSignIn("u", device.UserCode); err == nil {
		t.Error("a user code of another tenant is accepted")
	}
	entered := strings.ToLower(strings.Replace(device.UserCode, "-", " ", 1))
	signIn, shown, err := issuer.DeviceSignIn("t", entered)
	if err != nil || shown != device.UserCode || len(signIn.People) != 1 {
		t.Errorf("%q: %q, %v, %v", entered, shown, signIn.People, err)
	}
	if err := issuer.DecideDevice("t", entered, "alice", "wrong"); !errors.Is(err, token.ErrWrongPassword) {
		t.Errorf("a wrong password: %v", err)
	}
	if err := issuer.DecideDevice("t", entered, "bob", password); err == nil {
		t.Error("a person without access signed in")
	}
	must.Do(t, issuer.DecideDevice("t", entered, "alice", password))
	if err := issuer.DecideDevice("t", entered, "alice", password); err == nil {
		t.Error("a device is decided twice")
	}
	if _, err := issuer.RedeemDevice("t", "portal", device.Code); !errors.Is(err, token.ErrInvalidClient) {
		t.Errorf("another application: %v", err)
	}
	tokens := must.Get(issuer.RedeemDevice("t", "cli", device.Code))(t)
	checkClaims(t, "access token", tokens.AccessToken, map[string]any{"aud": []any{adminAudience}, "appid": "cli", "oid": "alice"})
	checkClaims(t, "ID token", tokens.IDToken, map[string]any{"aud": []any{"cli"}, "oid": "alice"})
	if err := redeem(device); !errors.Is(err, token.ErrInvalidGrant) {
		t.Errorf("a device code is redeemed twice: %v", err)
	}

	declined := begin()
	must.Do(t, issuer.DecideDevice("t", declined.UserCode, "", ""))
	if err := redeem(declined); !errors.Is(err, token.ErrDeclined) {
		t.Errorf("declined: %v", err)
	}
	for reason, change := range map[string]func(url.Values){
		"a web application":   func(f url.Values) { f.Set("client_id", "portal") },
		"no OpenID scope":     func(f url.Values) { f.Set("scope", adminAudience+"/.default") },
		"another resource":    func(f url.Values) { f.Set("scope", "openid https://management.azure.com/.default") },
		"claims without JSON": func(f url.Values) { f.Set("claims", "c1") },
	} {
		form := deviceForm()
		change(form)
		if _, err := issuer.AuthorizeDevice("t", form); err == nil {
			t.Errorf("%s is accepted", reason)
		}
	}
}

// TestAuthenticationContextsAreConfirmed checks that the contexts of a claims request are in the tokens of a sign-in and after a refresh, and that other
// sign-ins do not have them.
func TestAuthenticationContextsAreConfirmed(t *testing.T) {
	issuer, _ := publicIssuer(t)
	const uri, claims = "http://127.0.0.1:5123/signed-in", `{"access_token":{"acrs":{"essential":true,"value":"c1"},"deviceid":{"essential":true}}}`
	signIn := func(claims string) token.UserTokens {
		t.Helper()
		asked := must.Get(issuer.SignIn("t", signInQuery(func(q url.Values) { q.Set("client_id", "cli"); q.Set("redirect_uri", uri); q.Set("claims", claims) })))(t)
		code := must.Get(issuer.Code(asked, "alice", password))(t)
		return must.Get(issuer.Redeem("t", "cli", "", code, uri, verifier))(t)
	}
	stepped := signIn(claims)
	refreshed := must.Get(issuer.Refresh("t", "cli", "", stepped.RefreshToken))(t)
	for name, text := range map[string]string{"access token": stepped.AccessToken, "refreshed access token": refreshed.AccessToken} {
		checkClaims(t, name, text, map[string]any{"acrs": []any{"c1"}, "amr": []any{"mfa"}})
	}
	got := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(signIn("").AccessToken, got); err != nil {
		t.Fatal(err)
	}
	if got["acrs"] != nil || got["amr"] != nil {
		t.Errorf("a sign-in without claims has %v", got)
	}
	sum := sha256.Sum256([]byte(verifier))
	for _, wrong := range []string{"{", `{"access_token":{"acrs":{"value":"<script>"}}}`, `{"access_token":{"acrs":{"values":["c1","c100"]}}}`} {
		_, err := issuer.SignIn("t", signInQuery(func(q url.Values) {
			q.Set("claims", wrong)
			q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]))
		}))
		if failure := (*token.SignInError)(nil); !errors.As(err, &failure) || failure.Code != "invalid_request" {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
