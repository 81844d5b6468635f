package portal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestSignInReturnsToThePage checks a whole sign-in: the request for a page leads to the issuer and back to the page.
func TestSignInReturnsToThePage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.newBrowser()
	response := b.signIn("oncall@example.com", "/me?x=1")
	if response.StatusCode != http.StatusSeeOther || response.location() != "/me?x=1" {
		t.Fatalf("the sign-in leads to %s %q: %s", response.Status, response.location(), response.body)
	}
	for _, cookie := range response.Cookies() {
		if !strings.HasPrefix(cookie.Name, "__Host-") || !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.Domain != "" {
			t.Errorf("the cookie %s has the wrong attributes", cookie.Name)
		}
	}
	page := b.get("/me")
	if page.StatusCode != http.StatusOK || !strings.Contains(page.body, "oncall@example.com") {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	for name, want := range map[string]string{"Content-Security-Policy": securityPolicy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
		if got := page.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if strings.Contains(page.body, tokenStart) || strings.Contains(h.log.String(), tokenStart) {
		t.Error("a token is in the page or in the log")
	}
}

// TestPagesStateAMissingRole checks that a person without a role can sign in, and that every page states what is missing.
func TestPagesStateAMissingRole(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.signedIn("guest@example.com", "/")
	for _, path := range []string{"/", "/me"} {
		if page := b.get(path); page.StatusCode != http.StatusForbidden || !strings.Contains(page.body, "The role reader is required.") {
			t.Errorf("%s: %s", path, page.Status)
		}
	}
}

// TestSignInRefusesForeignAnswers checks the answers of the issuer that start no session.
func TestSignInRefusesForeignAnswers(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	// answer starts a sign-in and returns the URL to which the issuer leads.
	answer := func(b *browser) *url.URL {
		back := b.choose(b.get(b.get("/sign-in?return=/me").location()), "oncall@example.com").location()
		return must.Get(url.Parse(back))(t)
	}
	change := func(u *url.URL, name, value string) string {
		query := u.Query()
		query.Set(name, value)
		return u.Path + "?" + query.Encode()
	}
	for reason, open := range map[string]func(b *browser) reply{
		"another state":        func(b *browser) reply { return b.get(change(answer(b), "state", "other")) },
		"no state":             func(b *browser) reply { return b.get(change(answer(b), "state", "")) },
		"an unknown code":      func(b *browser) reply { return b.get(change(answer(b), "code", "other")) },
		"an error":             func(b *browser) reply { return b.get(change(answer(b), "error", "access_denied")) },
		"another browser":      func(b *browser) reply { return b.get(answer(h.newBrowser()).String()) },
		"a sign-in of another": func(b *browser) reply { answer(b); return b.get(answer(h.newBrowser()).String()) },
		"too late":             func(b *browser) reply { u := answer(b); h.pass(11 * time.Minute); return b.get(u.String()) },
		"nothing asked":        func(b *browser) reply { return b.get("/signed-in?code=a&state=b") },
		"the code again": func(b *browser) reply {
			u := answer(b)
			cookies := b.client.Jar.Cookies(u)
			b.get(u.String())
			other := h.newBrowser()
			other.client.Jar.SetCookies(u, cookies)
			return other.get(u.String())
		},
	} {
		b := h.newBrowser()
		response := open(b)
		if response.StatusCode != http.StatusBadRequest && response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s to %q", reason, response.Status, response.location())
		}
		if reason == "the code again" {
			continue // the first browser has a session
		}
		if page := b.get("/me"); page.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: a session began", reason)
		}
	}
}

// TestSessionsEnd checks that a session ends when nobody uses it, at its limit, and on all replicas when the person signs out.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	signedIn := func(b *browser) bool { return b.get("/me").StatusCode == http.StatusOK }

	idle := h.newBrowser()
	idle.signIn("oncall@example.com", "/me")
	h.pass(SessionIdle - time.Second)
	if !signedIn(idle) {
		t.Fatal("the session ended before its time")
	}
	h.pass(SessionIdle)
	if signedIn(idle) {
		t.Error("the session goes on although nobody used it")
	}

	busy := h.newBrowser()
	busy.signIn("oncall@example.com", "/me")
	for range 7*4 + 3 {
		h.pass(15 * time.Minute)
		if !signedIn(busy) {
			t.Fatal("the session of a busy person ended before its limit")
		}
	}
	h.pass(15 * time.Minute)
	if signedIn(busy) {
		t.Error("the session goes on after its limit")
	}

	out := h.newBrowser()
	out.signIn("oncall@example.com", "/me")
	portalURL := must.Get(url.Parse(h.url))(t)
	cookies := out.client.Jar.Cookies(portalURL)
	if response := out.post("/sign-out", url.Values{}); response.location() != "/signed-out" {
		t.Errorf("signing out leads to %s %q", response.Status, response.location())
	}
	stolen := h.newBrowser()
	stolen.client.Jar.SetCookies(portalURL, cookies)
	if signedIn(out) || signedIn(stolen) {
		t.Error("the session goes on after the person signed out")
	}
	if page := out.get("/signed-out"); page.StatusCode != http.StatusOK || !strings.Contains(page.body, "logout") {
		t.Errorf("the page after signing out: %s", page.Status)
	}
}

// TestTheDatabaseHoldsNoUsableSession checks that who reads the database can neither use a session nor read its tokens.
func TestTheDatabaseHoldsNoUsableSession(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	portalURL := must.Get(url.Parse(h.url))(t)
	var value string
	for _, cookie := range b.client.Jar.Cookies(portalURL) {
		if cookie.Name == sessionCookie {
			value = cookie.Value
		}
	}
	secret, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(secret) != 32 {
		t.Fatalf("the secret has %d bytes: %v", len(secret), err)
	}
	item := must.Get(h.db.Sessions().Get(t.Context(), database.SessionKey(sessionID(secret))))(t)
	stored := must.Get(json.Marshal(item.Value))(t)
	for _, leak := range [][]byte{[]byte(value), secret, []byte(tokenStart)} {
		if bytes.Contains(stored, leak) || bytes.Contains(item.Value.Sealed, leak) || strings.Contains(item.Key.ResourceID, string(leak)) {
			t.Error("the document contains the secret or a token")
		}
	}
	// A document that was copied to another session opens with neither secret.
	copied := &session{SessionDocument: item.Value, secret: bytes.Repeat([]byte{1}, 32)}
	if err := copied.open(); err == nil {
		t.Error("the tokens open with another secret")
	}
}

// TestTokensAreRenewed checks that an access token is renewed before it ends, and that a session ends if the issuer does not renew it.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	for range 3 {
		h.pass(29 * time.Minute)
		if page := b.get("/me"); page.StatusCode != http.StatusOK {
			t.Fatalf("%s", page.Status)
		}
	}
	// Without the token of its workload, the portal gets no tokens. It uses the current one while that is valid.
	must.Do(t, os.WriteFile(h.workload, nil, 0o600))
	h.pass(20 * time.Minute)
	if page := b.get("/me"); page.StatusCode != http.StatusOK {
		t.Fatalf("%s", page.Status)
	}
	h.pass(10 * time.Minute)
	if page := b.get("/me"); page.StatusCode != http.StatusOK {
		t.Errorf("with a token that is valid for a minute: %s", page.Status)
	}
	h.pass(2 * time.Minute)
	if page := b.get("/me"); page.StatusCode != http.StatusInternalServerError {
		t.Errorf("without a valid token: %s", page.Status)
	}
}

// TestReturnsStayLocal checks that no parameter leads to another site.
func TestReturnsStayLocal(t *testing.T) {
	for text, want := range map[string]string{
		"/clusters?q=a&b=c": "/clusters?q=a&b=c", "/": "/", "": "/", "clusters": "/", "//evil.example": "/", "https://evil.example/": "/", "/\\evil.example": "/", "\\\\evil.example": "/",
		"/%2f/evil.example": "/", "/\t/evil.example": "/", "javascript:alert(1)": "/", "/sign-in": "/", "/signed-out": "/", "///evil.example": "/", "/a\r\nSet-Cookie: x": "/",
		"/" + strings.Repeat("a", 3000): "/",
	} {
		if got := localPath(text); got != want {
			t.Errorf("localPath(%q) is %q, want %q", text, got, want)
		}
	}
}

// TestFormsOfOtherSitesAreRefused checks that forms of other sites change nothing, and that a form without a session leads to the sign-in.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}}, {"Sec-Fetch-Site": {"same-site"}}} {
		if response := b.do(http.MethodPost, "/sign-out", url.Values{}, header); response.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %s", header, response.Status)
		}
	}
	if page := b.get("/me"); page.StatusCode != http.StatusOK {
		t.Error("another site ended the session")
	}
	if response := b.post("/theme", url.Values{"theme": {"dark"}, "return": {"//evil.example"}}); response.location() != "/" {
		t.Errorf("the theme leads to %q", response.location())
	}
	if page := b.get("/me"); !strings.Contains(page.body, `class="pf-v6-theme-dark"`) {
		t.Error("the page has not the chosen theme")
	}
	if response := b.post("/theme", url.Values{"theme": {"<script>"}}); response.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown theme: %s", response.Status)
	}
	other := h.newBrowser()
	if response := other.do(http.MethodPost, "/", url.Values{}, http.Header{"Referer": {h.url + "/me"}}); response.location() != "/sign-in?return=%2Fme" {
		t.Errorf("a form without a session leads to %s %q", response.Status, response.location())
	}
	if response := other.do(http.MethodGet, "/me", nil, http.Header{"Hx-Request": {"true"}}); response.StatusCode != http.StatusUnauthorized || response.Header.Get("HX-Redirect") == "" {
		t.Errorf("a part of a page without a session: %s", response.Status)
	}
}
