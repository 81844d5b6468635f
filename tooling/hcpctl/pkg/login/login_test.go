package login_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login/logintest"
)

// claims is the claims request of a challenge.
const claims = `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}`

// newClient returns a client of an issuer.
func newClient(t *testing.T, issuer *logintest.Issuer) *login.Client {
	t.Helper()
	return must.Get(login.NewClient(issuer.Application))(t)
}

// signIn signs a person in with a browser.
func signIn(t *testing.T, issuer *logintest.Issuer, name string, asked login.Request) *login.Login {
	t.Helper()
	var opening sync.WaitGroup
	var opened error
	signedIn, err := newClient(t, issuer).Browser(t.Context(), asked, func(target string) {
		opening.Go(func() { opened = issuer.Browser(name)(target) })
	})
	opening.Wait()
	must.Do(t, errors.Join(err, opened))
	return signedIn
}

// contexts returns the claim acrs of a token.
func contexts(t *testing.T, text string) any {
	t.Helper()
	claims := jwt.MapClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
		t.Fatal(err)
	}
	return claims["acrs"]
}

// TestBrowserSignsIn checks the login of a person, with and without claims.
func TestBrowserSignsIn(t *testing.T) {
	issuer := logintest.New(t)
	l := signIn(t, issuer, "oncall", login.Request{})
	if l.Name != "oncall@example.com" || l.ObjectID != "oncall" || l.TenantID != logintest.Tenant || l.RefreshToken == "" || !l.Is("oncall") || !l.Is("ONCALL@example.com") || !l.Is("") || l.Is("approver") {
		t.Errorf("%s, %s, %s", l.Name, l.ObjectID, l.TenantID)
	}
	if contexts(t, l.AccessToken) != nil {
		t.Error("a sign-in without claims has an authentication context")
	}
	if got := contexts(t, signIn(t, issuer, "oncall", login.Request{Claims: claims, Name: "oncall@example.com"}).AccessToken); got == nil {
		t.Error("a sign-in with claims has no authentication context")
	}
}

// TestOnlyOneRequestIsAccepted sends foreign requests to the redirect URI. They neither end the sign-in nor start a login.
func TestOnlyOneRequestIsAccepted(t *testing.T) {
	issuer := logintest.New(t)
	var opening sync.WaitGroup
	var problems []string
	note := func(text string) { problems = append(problems, text) }
	l, err := newClient(t, issuer).Browser(t.Context(), login.Request{}, func(target string) {
		opening.Go(func() {
			location, err := issuer.Choose(target, "oncall")
			if err != nil {
				note(err.Error())
				return
			}
			returning, err := url.Parse(location)
			if err != nil {
				note(err.Error())
				return
			}
			if returning.Scheme != "http" || returning.Hostname() != "127.0.0.1" || returning.Path != "/signed-in" {
				note("the redirect URI is " + location)
			}
			get := func(reason, host string, want int, change func(u *url.URL, query url.Values)) {
				u, query := *returning, returning.Query()
				change(&u, query)
				u.RawQuery = query.Encode()
				request, err := http.NewRequest(http.MethodGet, u.String(), nil)
				if err != nil {
					note(err.Error())
					return
				}
				request.Host = host
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					note(reason + ": " + err.Error())
					return
				}
				_ = response.Body.Close()
				if response.StatusCode != want {
					note(reason + ": " + response.Status)
				}
			}
			get("another state", "", http.StatusBadRequest, func(_ *url.URL, q url.Values) { q.Set("state", "x") })
			get("no state", "", http.StatusBadRequest, func(_ *url.URL, q url.Values) { q.Del("state") })
			get("another path", "", http.StatusNotFound, func(u *url.URL, _ url.Values) { u.Path = "/favicon.ico" })
			get("another host", "rebound.example", http.StatusNotFound, func(*url.URL, url.Values) {})
			get("the answer", "", http.StatusOK, func(*url.URL, url.Values) {})
		})
	})
	opening.Wait()
	if err != nil || l.Name != "oncall@example.com" || len(problems) > 0 {
		t.Errorf("%v: %s", err, problems)
	}
}

// TestRefusedSignInsAreNamed checks the errors of sign-ins that start no login, and that they contain no code.
func TestRefusedSignInsAreNamed(t *testing.T) {
	issuer := logintest.New(t)
	for reason, test := range map[string]struct {
		change func(url.Values)
		want   string
	}{
		"the person declined": {func(q url.Values) {
			q.Del("code")
			q.Set("error", "access_denied")
			q.Set("error_description", "the person declined")
		}, "access_denied: the person declined"},
		"an unknown code": {func(q url.Values) { q.Set("code", "secret-code") }, "invalid_grant"},
	} {
		var opening sync.WaitGroup
		_, err := newClient(t, issuer).Browser(t.Context(), login.Request{}, func(target string) {
			opening.Go(func() {
				location, _ := issuer.Choose(target, "oncall")
				u, err := url.Parse(location)
				if err != nil {
					return
				}
				query := u.Query()
				test.change(query)
				u.RawQuery = query.Encode()
				if response, err := http.Get(u.String()); err == nil {
					_ = response.Body.Close()
				}
			})
		})
		opening.Wait()
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret-code") {
			t.Errorf("%s: %v", reason, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := newClient(t, issuer).Browser(ctx, login.Request{}, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	issuer.Away.Store(true)
	var unreachable *login.UnreachableError
	if _, err := newClient(t, issuer).Browser(t.Context(), login.Request{}, func(string) { t.Error("a URL is shown") }); !errors.As(err, &unreachable) {
		t.Errorf("without the issuer: %v", err)
	}
	for reason, application := range map[string]login.Application{
		"--issuer": {ClientID: "c", Audience: "a"}, "--client-id": {Issuer: "https://issuer.example/t", Audience: "a"}, "--admin-audience": {Issuer: "https://issuer.example/t", ClientID: "c"},
		"--issuer: must contain the ID of the tenant": {Issuer: "https://issuer.example", ClientID: "c", Audience: "a"}, "--issuer: must be an https URL": {Issuer: "http://issuer.example/t", ClientID: "c", Audience: "a"},
	} {
		if _, err := login.NewClient(application); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
}

// TestDeviceSignsIn checks a sign-in with a browser of another machine, and that a person can decline.
func TestDeviceSignsIn(t *testing.T) {
	issuer := logintest.New(t)
	l, err := newClient(t, issuer).Device(t.Context(), login.Request{Claims: claims}, func(page, code string) {
		if err := issuer.Approve(page, strings.ToLower(code), "approver"); err != nil {
			t.Error(err)
		}
	})
	if err != nil || l.Name != "approver@example.com" || l.RefreshToken == "" || contexts(t, l.AccessToken) == nil {
		t.Fatalf("%v", err)
	}
	var refused *login.RefusedError
	_, err = newClient(t, issuer).Device(t.Context(), login.Request{}, func(page, code string) {
		if err := issuer.Approve(page, code, ""); err != nil {
			t.Error(err)
		}
	})
	if !errors.As(err, &refused) || refused.Code != "access_denied" {
		t.Errorf("declined: %v", err)
	}
}

// TestLoginsAreStored checks the files of logins: one for each person, readable by their owner only, removed at the logout.
func TestLoginsAreStored(t *testing.T) {
	issuer := logintest.New(t)
	dir := filepath.Join(t.TempDir(), "logins")
	store := login.NewStore(dir)
	all := func(*login.Login) bool { return true }
	if found, err := store.List(all); err != nil || len(found) != 0 {
		t.Errorf("without a folder: %d, %v", len(found), err)
	}
	first, second := signIn(t, issuer, "oncall", login.Request{}), signIn(t, issuer, "approver", login.Request{})
	second.SignInTime = first.SignInTime.Add(time.Second)
	for _, l := range []*login.Login{first, second, first} {
		must.Do(t, store.Save(l))
	}
	found, err := store.List(all)
	if err != nil || len(found) != 2 || found[0].Name != "approver@example.com" || found[1].RefreshToken != first.RefreshToken {
		t.Fatalf("%d, %v", len(found), err)
	}
	files := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
	for _, file := range append(files, dir) {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v: %v", file, info.Mode(), err)
		}
		if strings.Contains(file, "oncall") {
			t.Errorf("the name of the file %s contains that of the person", file)
		}
	}
	must.Do(t, store.Remove(second))
	if err := store.Remove(second); err != nil {
		t.Errorf("a second removal: %v", err)
	}
	if found, err = store.List(all); err != nil || len(found) != 1 || found[0].Name != "oncall@example.com" {
		t.Errorf("%d, %v", len(found), err)
	}
	file, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	must.Do(t, os.Chmod(file[0], 0o644))
	if _, err := store.List(all); err == nil || !strings.Contains(err.Error(), "other users") {
		t.Errorf("a file that others can read: %v", err)
	}
	must.Do(t, os.WriteFile(file[0], []byte(`{"accessToken": secret`), 0o600))
	must.Do(t, os.Chmod(file[0], 0o600))
	if _, err := store.List(all); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a file that is no login: %v", err)
	}
}

// TestTokensAreRefreshedOnce checks that processes that share a login refresh its token once, that the current token is used while the issuer is away,
// and that the end of a login is named.
func TestTokensAreRefreshedOnce(t *testing.T) {
	issuer := logintest.New(t)
	store := login.NewStore(t.TempDir())
	l := signIn(t, issuer, "oncall", login.Request{})
	save := func(left time.Duration) {
		t.Helper()
		l.Expires = time.Now().Add(left).UTC()
		must.Do(t, store.Save(l))
	}
	get := func(asked policy.TokenRequestOptions) (string, error) {
		token, err := login.NewCredential(store, l, nil).GetToken(t.Context(), asked)
		return token.Token, err
	}
	save(time.Hour)
	if text, err := get(policy.TokenRequestOptions{}); err != nil || text != l.AccessToken || issuer.Refreshes.Load() != 0 {
		t.Errorf("a valid token is not used: %v", err)
	}
	save(time.Minute)
	tokens := make([]string, 8)
	var getting sync.WaitGroup
	for n := range tokens {
		getting.Go(func() { tokens[n], _ = get(policy.TokenRequestOptions{}) })
	}
	getting.Wait()
	for _, text := range tokens {
		if text == "" || text == l.AccessToken || text != tokens[0] {
			t.Error("a process has another token")
		}
	}
	if n := issuer.Refreshes.Load(); n != 1 {
		t.Errorf("the token was refreshed %d times", n)
	}

	issuer.Away.Store(true)
	save(time.Minute)
	if text, err := get(policy.TokenRequestOptions{}); err != nil || text != l.AccessToken {
		t.Errorf("while the issuer is away: %v", err)
	}
	save(-time.Minute)
	var unreachable *login.UnreachableError
	if _, err := get(policy.TokenRequestOptions{}); !errors.As(err, &unreachable) {
		t.Errorf("while the issuer is away, without a valid token: %v", err)
	}
	issuer.Away.Store(false)
	l.RefreshToken = "secret"
	save(-time.Minute)
	var required *login.RequiredError
	if _, err := get(policy.TokenRequestOptions{}); !errors.As(err, &required) || !strings.Contains(err.Error(), "hcpctl login") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a login that has ended: %v", err)
	}
	must.Do(t, store.Remove(l))
	if _, err := get(policy.TokenRequestOptions{}); !errors.As(err, &required) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the logout: %v", err)
	}
}

// TestClaimsNeedAnotherSignIn checks a claims challenge with and without a terminal, and that another person cannot answer it.
func TestClaimsNeedAnotherSignIn(t *testing.T) {
	issuer := logintest.New(t)
	store := login.NewStore(t.TempDir())
	l := signIn(t, issuer, "oncall", login.Request{})
	must.Do(t, store.Save(l))
	asked := policy.TokenRequestOptions{Claims: claims}
	var required *login.RequiredError
	if _, err := login.NewCredential(store, l, nil).GetToken(t.Context(), asked); !errors.As(err, &required) || !strings.Contains(err.Error(), "--claims-challenge eyJ") {
		t.Errorf("without a terminal: %v", err)
	}
	as := func(name string) func(context.Context, login.Request) (*login.Login, error) {
		return func(_ context.Context, asked login.Request) (*login.Login, error) {
			return signIn(t, issuer, name, asked), nil
		}
	}
	if _, err := login.NewCredential(store, l, as("approver")).GetToken(t.Context(), asked); !errors.As(err, &required) || !strings.Contains(err.Error(), "sign in as oncall") {
		t.Errorf("another person: %v", err)
	}
	token, err := login.NewCredential(store, l, as("oncall")).GetToken(t.Context(), asked)
	if err != nil || contexts(t, token.Token) == nil {
		t.Fatal(err)
	}
	stored, err := store.List(func(*login.Login) bool { return true })
	if err != nil || len(stored) != 1 || stored[0].AccessToken != token.Token {
		t.Errorf("the token with the claims is not stored: %v", err)
	}
}
