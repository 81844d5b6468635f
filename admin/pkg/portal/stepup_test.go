package portal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// newStepUpHarness returns a harness whose API requires the authentication context c1 to pause a cluster and to activate an elevation.
func newStepUpHarness(t *testing.T) (h *harness, action string, form url.Values) {
	t.Helper()
	h = newHarness(t)
	h.api.fill("orders")
	h.api.conditions = map[string]string{"/clusters/" + testUID + "/pause": "c1", "/elevations/" + testElevation + "/activate": "c1"}
	h.api.responses["POST /clusters/"+testUID+"/pause"] = adminv1.Operation{ID: testOperation}
	return h, "/clusters/" + testUID + "/actions/pause", url.Values{"key": {"the-key"}, "duration": {"45m<b>"}}
}

// again signs a person in again for the form that the session holds, and returns the response of the portal.
func (b *browser) again(name string) reply {
	b.h.t.Helper()
	response := b.get("/step-up")
	target, err := url.Parse(response.location())
	if err != nil || response.StatusCode != http.StatusSeeOther {
		b.h.t.Fatalf("%s %q: %v", response.Status, response.location(), err)
	}
	query := target.Query()
	if query.Get("claims") != `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}` || query.Get("prompt") != "login" || query.Get("login_hint") != "oncall@example.com" {
		b.h.t.Errorf("the authorization request has %v", query)
	}
	return b.get(b.choose(b.get(response.location()), name).location())
}

// TestStepUpKeepsTheForm sends a form that admin refuses with a claims challenge. After a new sign-in the form is as it was, is sent once by the
// engineer, and has its idempotency key.
func TestStepUpKeepsTheForm(t *testing.T) {
	t.Parallel()
	h, action, form := newStepUpHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	portalURL := must.Get(url.Parse(h.url))(t)
	before := b.client.Jar.Cookies(portalURL)
	refused := b.post(action, form)
	if refused.StatusCode != http.StatusUnauthorized || !strings.Contains(refused.body, `href="/step-up"`) || !strings.Contains(refused.body, "acrs=c1") {
		t.Fatalf("%s: %s", refused.Status, refused.body)
	}
	h.expectSealed(b, "the-key", "duration")
	if back := b.again("oncall@example.com"); back.location() != heldFormPath {
		t.Fatalf("the sign-in leads to %s %q: %s", back.Status, back.location(), back.body)
	}
	page := b.get(heldFormPath)
	for _, want := range []string{`action="` + action + `"`, `name="key" value="the-key"`, `name="duration" value="45m&lt;b&gt;"`} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the form lacks %s: %s", want, page.body)
		}
	}
	if changes := h.api.changes(); len(changes) != 0 {
		t.Errorf("the sign-in alone requested %v", changes)
	}
	// A page from before the sign-in is stale. It has the same key, so that admin recognizes the repetition.
	for range 2 {
		if sent := b.post(action, form); sent.location() != "/operations/"+testOperation {
			t.Errorf("%s %q: %s", sent.Status, sent.location(), sent.body)
		}
	}
	changes := h.api.changes()
	if len(changes) != 2 || slices.ContainsFunc(changes, func(r apiRequest) bool { return r.Key != "the-key" || r.Person != "oncall@example.com" }) {
		t.Errorf("the API got %+v", changes)
	}
	old := h.newBrowser()
	old.client.Jar.SetCookies(portalURL, before)
	if page := old.get("/me"); page.StatusCode == http.StatusOK {
		t.Error("the session from before the sign-in goes on")
	}
	if strings.Contains(h.log.String(), "45m<b>") || strings.Contains(h.log.String(), tokenStart) {
		t.Error("the log has the form or a token")
	}
}

// TestStepUpIsForOnePerson checks that another person gets neither the form nor the session, and that the form is kept until its person signs in.
func TestStepUpIsForOnePerson(t *testing.T) {
	t.Parallel()
	h, action, form := newStepUpHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	b.post(action, form)
	if other := b.again("guest@example.com"); other.StatusCode != http.StatusForbidden {
		t.Errorf("another person: %s %q", other.Status, other.location())
	}
	if page := b.get("/me"); page.StatusCode != http.StatusOK || !strings.Contains(page.body, "oncall@example.com") {
		t.Errorf("the session has changed: %s", page.Status)
	}
	if back := b.again("oncall@example.com"); back.location() != heldFormPath {
		t.Errorf("%s %q", back.Status, back.location())
	}
	// The form is in the session that has begun, and in no other.
	second := h.newBrowser()
	second.signIn("oncall@example.com", "/me")
	for _, path := range []string{"/step-up", heldFormPath} {
		if page := second.get(path); page.StatusCode != http.StatusNotFound {
			t.Errorf("%s in another session: %s", path, page.Status)
		}
	}
	h.pass(heldLifetime)
	for _, path := range []string{"/step-up", heldFormPath} {
		if page := b.get(path); page.StatusCode != http.StatusNotFound {
			t.Errorf("%s after its time: %s", path, page.Status)
		}
	}
}

// TestStepUpForElevations checks a form without an idempotency key: the activation of an elevation, which admin does not repeat.
func TestStepUpForElevations(t *testing.T) {
	t.Parallel()
	h, _, _ := newStepUpHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	path := "/access/" + testElevation + "/activate"
	if refused := b.post(path, url.Values{}); refused.StatusCode != http.StatusUnauthorized || !strings.Contains(refused.body, "/step-up") {
		t.Fatalf("%s: %s", refused.Status, refused.body)
	}
	b.again("oncall@example.com")
	if page := b.get(heldFormPath); !strings.Contains(page.body, `action="`+path+`"`) || !strings.Contains(page.body, ">Activate</h1>") {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	// The token keeps the authentication context when it is renewed.
	for range 2 {
		h.pass(29 * time.Minute)
		if page := b.get("/me"); page.StatusCode != http.StatusOK {
			t.Fatal(page.Status)
		}
	}
	if sent := b.post(path, url.Values{}); sent.location() != "/access/"+testElevation {
		t.Errorf("%s %q: %s", sent.Status, sent.location(), sent.body)
	}
}

// changes returns the requests that changed something.
func (f *fakeAPI) changes() []apiRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// expectSealed fails if the document of a browser's session contains a text.
func (h *harness) expectSealed(b *browser, texts ...string) {
	h.t.Helper()
	portalURL := must.Get(url.Parse(h.url))(h.t)
	for _, cookie := range b.client.Jar.Cookies(portalURL) {
		if cookie.Name != sessionCookie {
			continue
		}
		secret := must.Get(base64.RawURLEncoding.DecodeString(cookie.Value))(h.t)
		item := must.Get(h.db.Sessions().Get(h.t.Context(), database.SessionKey(sessionID(secret))))(h.t)
		stored := must.Get(json.Marshal(item.Value))(h.t)
		for _, text := range texts {
			if bytes.Contains(stored, []byte(text)) || bytes.Contains(item.Value.Sealed, []byte(text)) {
				h.t.Errorf("the document contains %q in clear text", text)
			}
		}
		return
	}
	h.t.Error("the browser has no session")
}
