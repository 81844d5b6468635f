package portal

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// signInLifetime is how long a person may take to sign in.
const signInLifetime = 10 * time.Minute

// maxReturn bounds the path to which a person returns after the sign-in, in bytes.
const maxReturn = 2048

// The outcomes of sign-ins in the metric.
const (
	signInSucceeded = "succeeded"
	signInRefused   = "refused"
	signInFailed    = "failed"
)

// pendingSignIn is the state of a sign-in, which the cookie of the browser holds. An attacker who starts a sign-in cannot complete it in the
// browser of another person, which does not have the cookie.
type pendingSignIn struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Return   string    `json:"return"`
	Expires  time.Time `json:"expires"`
	// Again is true if the person of the session signs in again, for the form that it holds.
	Again bool `json:"again,omitempty"`
}

// localPath returns a path of the portal with its query if text is one, and else "/". A browser reads `//host` and `/\host` as other hosts.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsAny(text, "\\\r\n\t") || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/sign") {
		return "/"
	}
	return u.RequestURI()
}

// signIn sends the browser to the identity provider.
func (p *Portal) signIn(w http.ResponseWriter, r *http.Request) {
	p.startSignIn(w, r, localPath(r.URL.Query().Get("return")), stepUp{})
}

// startSignIn sends the browser to the identity provider. The person returns to a path.
func (p *Portal) startSignIn(w http.ResponseWriter, r *http.Request, path string, again stepUp) {
	pending := pendingSignIn{State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text(), Return: path, Expires: p.Now().Add(signInLifetime).UTC(), Again: again.claims != ""}
	target, err := p.Provider.authorizationURL(r.Context(), pending.State, pending.Nonce, pending.Verifier, again)
	if err != nil {
		p.signInFailed(w, r, err)
		return
	}
	content, err := json.Marshal(pending)
	if err != nil {
		p.signInFailed(w, r, err)
		return
	}
	http.SetCookie(w, newCookie(signInCookie, base64.RawURLEncoding.EncodeToString(content), int(signInLifetime/time.Second)))
	redirect(w, target)
}

// signedIn completes a sign-in: it checks that this browser started it, redeems the code, verifies the ID token, and starts a session.
func (p *Portal) signedIn(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, newCookie(signInCookie, "", -1))
	pending, ok := p.pending(r)
	query := r.URL.Query()
	switch {
	case !ok || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(pending.State)) != 1:
		p.signInEnded(w, r, signInRefused, http.StatusBadRequest, "This sign-in was not started in this browser, or it took too long.")
		return
	case query.Get("error") != "":
		p.Log.InfoContext(r.Context(), "the identity provider refused a sign-in", logkey.ErrorCode, query.Get("error"))
		p.signInEnded(w, r, signInRefused, http.StatusForbidden, "The identity provider refused the sign-in.")
		return
	}
	person, tokens, err := p.Provider.redeem(r.Context(), query.Get("code"), pending.Nonce, pending.Verifier)
	switch {
	case errors.Is(err, errSignInRefused) || errors.Is(err, authn.ErrInvalidIDToken):
		p.Log.WarnContext(r.Context(), "a sign-in was refused", logkey.Error, err)
		p.signInEnded(w, r, signInRefused, http.StatusForbidden, "The identity provider did not confirm who you are.")
		return
	case err != nil:
		p.signInFailed(w, r, err)
		return
	}
	// admin accepts the token and identifies the same person, or refuses a person without a role. Such a person gets a session, too, so that the
	// pages can state what is missing.
	var identity adminv1.Identity
	err = p.api(r, tokens.Access).get("/me", nil, &identity)
	if failure := (*apiError)(nil); errors.As(err, &failure) && failure.status == http.StatusForbidden {
		identity, err = adminv1.Identity{ObjectID: person.ObjectID, TenantID: person.TenantID}, nil
	}
	switch {
	case err != nil:
		p.signInFailed(w, r, err)
		return
	case identity.ObjectID != person.ObjectID || identity.TenantID != person.TenantID:
		p.Log.WarnContext(r.Context(), "a sign-in was refused", logkey.Error, errors.New("the access token and the ID token are those of different people"))
		p.signInEnded(w, r, signInRefused, http.StatusForbidden, "The identity provider did not confirm who you are.")
		return
	}
	previous, err := p.Sessions.find(r.Context(), r)
	if err != nil {
		previous = nil // there is no session to end
	}
	var held *heldForm
	if previous != nil && pending.Again {
		if previous.ObjectID != person.ObjectID || previous.TenantID != person.TenantID {
			// The session goes on, so that its person can try again.
			p.signInEnded(w, r, signInRefused, http.StatusForbidden, "Another person signed in than the one whose form waits. Go back, and sign in again as "+previous.Name+".")
			return
		}
		held = previous.held
	}
	started, err := p.Sessions.create(r.Context(), database.SessionDocument{Name: person.Name, ObjectID: person.ObjectID, TenantID: person.TenantID}, tokens, held)
	if err != nil {
		p.signInFailed(w, r, err)
		return
	}
	if previous != nil {
		if err := p.Sessions.end(r.Context(), previous); err != nil {
			p.signInFailed(w, r, err)
			return
		}
	}
	p.signIns.WithLabelValues(signInSucceeded).Inc()
	p.Log.InfoContext(r.Context(), "a session began", logkey.User, person.Name, logkey.ObjectID, person.ObjectID, logkey.TenantID, person.TenantID)
	http.SetCookie(w, started.cookie())
	redirect(w, localPath(pending.Return))
}

// pending returns the sign-in that this browser started and that has not expired.
func (p *Portal) pending(r *http.Request) (pendingSignIn, bool) {
	var pending pendingSignIn
	cookie, err := r.Cookie(signInCookie)
	if err != nil {
		return pending, false
	}
	content, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || json.Unmarshal(content, &pending) != nil {
		return pending, false
	}
	return pending, pending.State != "" && pending.Nonce != "" && pending.Verifier != "" && p.Now().Before(pending.Expires)
}

// signOut ends the session on all replicas. Its page offers to sign out of the identity provider.
func (p *Portal) signOut(w http.ResponseWriter, r *http.Request) {
	found, err := p.Sessions.find(r.Context(), r)
	if err == nil {
		if err = p.Sessions.end(r.Context(), found); err == nil {
			p.Log.InfoContext(r.Context(), "a session ended", logkey.User, found.Name, logkey.ObjectID, found.ObjectID, logkey.TenantID, found.TenantID)
		}
	}
	if err != nil && !errors.Is(err, errNoSession) {
		// The session goes on, so that the cookie stays, too.
		p.fail(w, r, nil, err)
		return
	}
	http.SetCookie(w, newCookie(sessionCookie, "", -1))
	redirect(w, "/signed-out")
}

// signedOut shows that the session ended.
func (p *Portal) signedOut(w http.ResponseWriter, r *http.Request) {
	message := messageView{Heading: "You are signed out", Text: "The session ended on all replicas of the portal. Your sign-in at the identity provider continues.", SignIn: true}
	if target := p.Provider.signOutURL(r.Context()); target != "" {
		message.SignOutURL = target + "?" + url.Values{"post_logout_redirect_uri": {p.URL + "/signed-out"}}.Encode()
	}
	p.message(w, r, http.StatusOK, message)
}

// signInFailed responds to a sign-in that failed although the person may be known.
func (p *Portal) signInFailed(w http.ResponseWriter, r *http.Request, err error) {
	p.Log.ErrorContext(r.Context(), "a sign-in failed", logkey.Error, err)
	text := "The sign-in could not be completed. Try again in a moment."
	if unavailable := (*keycache.UnavailableError)(nil); errors.As(err, &unavailable) {
		text = "The identity provider cannot be reached. Try again in a moment."
	}
	p.signInEnded(w, r, signInFailed, http.StatusServiceUnavailable, text)
}

// signInEnded responds to a sign-in that did not succeed.
func (p *Portal) signInEnded(w http.ResponseWriter, r *http.Request, outcome string, status int, text string) {
	p.signIns.WithLabelValues(outcome).Inc()
	p.message(w, r, status, messageView{Heading: "You are not signed in", Text: text, SignIn: true})
}

// redirect sends the browser to a URL with a GET.
func redirect(w http.ResponseWriter, target string) {
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusSeeOther)
}
