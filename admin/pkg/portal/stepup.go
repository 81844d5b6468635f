package portal

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// heldLifetime is how long a session holds a form: the time for the new sign-in, and for sending the form after it.
const heldLifetime = 2 * signInLifetime

// heldFormPath is the path of the page with the form after the new sign-in.
const heldFormPath = "/held-form"

// heldForm is a form that admin refused with a claims challenge. It was not executed. It keeps its idempotency key, so that it has one effect even if the
// engineer sends it from several pages.
type heldForm struct {
	// Title is that of the page of the form, Path is where the form is sent, and Values are its fields.
	Title  string     `json:"title"`
	Path   string     `json:"path"`
	Values url.Values `json:"values"`
	// Claims is the claims request of the challenge.
	Claims  string    `json:"claims"`
	Expires time.Time `json:"expires"`
}

// Fields returns the fields that the engineer entered, in the order of their names.
func (h *heldForm) Fields() [][2]string {
	var fields [][2]string
	for _, name := range slices.Sorted(maps.Keys(h.Values)) {
		for _, value := range h.Values[name] {
			fields = append(fields, [2]string{name, value})
		}
	}
	return fields
}

// held returns the form that a session holds; nil if there is none, or it has expired.
func (v *view) held() *heldForm {
	if form := v.session.held; form != nil && v.portal.Now().Before(form.Expires) {
		return form
	}
	return nil
}

// requireStepUp responds to a form that admin refused with a claims challenge: the session holds the form, and the page leads to a new sign-in. It
// reports whether it has responded. The page is no redirection, because browsers do not let forms lead to other sites than the policy names.
func (p *Portal) requireStepUp(w http.ResponseWriter, v *view, content page) bool {
	if v.session == nil {
		return false
	}
	claims := v.api.challenged.Swap(nil)
	if claims == nil || v.request.Method != http.MethodPost || v.request.ParseForm() != nil {
		return false
	}
	title := content.Title
	if _, failed := content.Body.(messageView); failed { // the title is that of the error
		title = words(lastSegment(v.request.URL.Path))
	}
	form := heldForm{Title: title, Path: v.request.URL.RequestURI(), Values: v.request.PostForm, Claims: *claims, Expires: p.Now().Add(heldLifetime).UTC()}
	if err := p.Sessions.hold(v.request.Context(), v.session, form); err != nil {
		p.fail(w, v.request, v, err)
		return true
	}
	p.Log.InfoContext(v.request.Context(), "a form waits for a new sign-in", logkey.Path, v.request.URL.Path, logkey.ObjectID, v.session.ObjectID)
	shown := messageView{Heading: "Sign in again to continue", StepUp: true, Text: "Admin requires a sign-in with the claims " + claimNames(*claims) + " for this. Nothing was requested yet, and what you entered is kept: after the sign-in you can send it."}
	v.render(w, http.StatusUnauthorized, "message", page{Title: shown.Heading, Body: shown})
	return true
}

// claimNames returns the claims of a claims request for people, for example acrs=c1.
func claimNames(request string) string {
	var asked struct {
		Token map[string]struct {
			Value string `json:"value"`
		} `json:"access_token"`
	}
	if json.Unmarshal([]byte(request), &asked) != nil {
		return request
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(asked.Token)) {
		if value := asked.Token[name].Value; value != "" {
			name += "=" + value
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// signInAgain sends the browser to the identity provider with the claims of the form that the session holds.
func (p *Portal) signInAgain(w http.ResponseWriter, v *view) {
	form := v.held()
	if form == nil {
		p.noHeldForm(w, v)
		return
	}
	p.startSignIn(w, v.request, heldFormPath, stepUp{claims: form.Claims, name: v.session.Name})
}

// showHeldForm shows the form that the session holds. The engineer sends it: a new sign-in alone requests nothing.
func (p *Portal) showHeldForm(w http.ResponseWriter, v *view) {
	form := v.held()
	if form == nil {
		p.noHeldForm(w, v)
		return
	}
	v.render(w, http.StatusOK, "held-form", page{Title: form.Title, Body: form})
}

// noHeldForm responds to a request for a form that the session does not hold.
func (p *Portal) noHeldForm(w http.ResponseWriter, v *view) {
	shown := messageView{Heading: "No form waits", Text: "It was kept for " + heldLifetime.String() + ", or another session has it. Open the page of the action again. Nothing was requested."}
	v.render(w, http.StatusNotFound, "message", page{Title: shown.Heading, Body: shown})
}
