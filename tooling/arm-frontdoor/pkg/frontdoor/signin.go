package frontdoor

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	htmltemplate "html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// personParameter and passwordParameter are the fields of a form with the object ID of the chosen person and the person's password.
const personParameter, passwordParameter = "hcpmesh_person", "hcpmesh_password"

// The paths below a tenant of the pages for browsers, in lower case.
const signInPath, signOutPath, devicePath = "oauth2/v2.0/authorize", "oauth2/v2.0/logout", "oauth2/v2.0/deviceauth"

// respondToBrowser responds to the requests of browsers that sign in or out, and reports whether the request is one. The pages need no
// token and no script.
func (d *FrontDoor) respondToBrowser(w http.ResponseWriter, r *http.Request) bool {
	tenant, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	rest = asciifold.Lower(rest)
	form := (rest == devicePath || rest == signInPath) && (r.Method == http.MethodGet || r.Method == http.MethodPost)
	if !form && (r.Method != http.MethodGet || rest != signOutPath) {
		return false
	}
	if throttled := d.throttlePeer(r); throttled != nil {
		throttled.write(w)
		return true
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	styles := sha256.Sum256([]byte(signInStyles))
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(styles[:])+"'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'")
	header.Set("X-Content-Type-Options", "nosniff")
	// The address of the page contains the state of the application.
	header.Set("Referrer-Policy", "no-referrer")
	if rest == signOutPath {
		d.signOut(w, r, tenant)
		return true
	}
	// Forms have passwords. A page of another site must not send them.
	r.Body = http.MaxBytesReader(w, r.Body, maxTokenRequest)
	if err := errors.Join(http.NewCrossOriginProtection().Check(r), r.ParseForm()); err != nil {
		d.page(w, http.StatusForbidden, signInPage{Title: "The request was refused", Text: "It came from a page of another site, or is not a form."})
		return true
	}
	if rest == devicePath {
		d.signInDevice(w, r, tenant)
	} else {
		d.signIn(w, r, tenant)
	}
	return true
}

// signIn lets a person sign in with a password, and sends the code of the person to the application.
func (d *FrontDoor) signIn(w http.ResponseWriter, r *http.Request, tenant string) {
	asked, err := d.options.Tokens.SignIn(tenant, r.URL.Query())
	answer, status, refusal := url.Values{"state": {asked.State}}, http.StatusOK, ""
	if objectID := r.PostForm.Get(personParameter); err == nil && objectID != "" {
		var code string
		code, err = d.options.Tokens.Code(asked, objectID, r.PostForm.Get(passwordParameter))
		if status, refusal = refusePassword(w, err); refusal != "" {
			err = nil
		} else {
			answer.Set("code", code)
		}
	}
	var failure *token.SignInError
	switch {
	case errors.As(err, &failure):
		answer.Del("code")
		answer.Set("error", failure.Code)
		answer.Set("error_description", failure.Description)
	case err != nil:
		d.page(w, http.StatusBadRequest, signInPage{Title: "The application cannot sign you in", Text: err.Error()})
		return
	}
	if err != nil || answer.Has("code") {
		w.Header().Set("Location", asked.RedirectURI+"?"+answer.Encode())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	// Browsers apply the policy also to the redirect behind the form.
	if back, err := url.Parse(asked.RedirectURI); err == nil {
		w.Header().Set("Content-Security-Policy", w.Header().Get("Content-Security-Policy")+" "+back.Scheme+"://"+back.Host)
	}
	d.page(w, status, signInPage{Title: "Choose who signs in to " + asked.Application, Text: refusal + passwords + confirmation(asked), People: asked.People})
}

// passwords is the text of pages on which a person is chosen.
const passwords = "This identity provider belongs to a local region. The password of a person is the clientSecret in the file front-door/engineers.json of the region's state folder."

// refusePassword returns the status of these pages, and how their text begins, after a wrong password or too many of them. The text is empty after all other
// errors, and without one. It sets the header Retry-After after too many.
func refusePassword(w http.ResponseWriter, err error) (status int, text string) {
	if tooMany := new(token.TooManyAttemptsError); errors.As(err, &tooMany) {
		throttled := tooManyAttempts(tooMany)
		w.Header().Set(retryAfter, throttled.header[retryAfter])
		return throttled.status, throttled.message + " "
	}
	if errors.Is(err, token.ErrWrongPassword) {
		return http.StatusUnauthorized, "This is not the password of this person. "
	}
	return http.StatusOK, ""
}

// confirmation returns the text about the authentication contexts of a sign-in.
func confirmation(asked token.SignIn) string {
	if len(asked.Contexts) == 0 {
		return ""
	}
	return " Your choice confirms the sign-in for the authentication context " + strings.Join(asked.Contexts, ", ") + "."
}

// signOut returns the person to the application. There is no session of the issuer to end.
func (d *FrontDoor) signOut(w http.ResponseWriter, r *http.Request, tenant string) {
	if uri := d.options.Tokens.SignedOut(tenant, r.URL.Query().Get("post_logout_redirect_uri")); uri != "" {
		w.Header().Set("Location", uri)
		w.WriteHeader(http.StatusFound)
		return
	}
	d.page(w, http.StatusOK, signInPage{Title: "You are signed out", Text: "You can close this window."})
}

// signInPage is the content of a page of the issuer.
type signInPage struct {
	Title, Text string
	// AskCode shows a form for the code of a device.
	AskCode bool
	// People shows a form in which one of them signs in, with Code to the device with the code.
	People []token.Client
	Code   string
}

// signInStyles are the styles of the pages. The policy of the pages allows no others.
const signInStyles = `:root{color-scheme:light dark}` +
	`body{margin:0;min-height:100vh;display:grid;place-items:center;font:1rem/1.5 system-ui,sans-serif;background:light-dark(#f2f2f2,#151515);color:light-dark(#151515,#fff)}` +
	`main{box-sizing:border-box;width:min(28rem,100vw - 2rem);padding:2rem;border-radius:1rem;background:light-dark(#fff,#292929);border:1px solid light-dark(#c7c7c7,#707070)}` +
	`h1{margin:0 0 .5rem;font-size:1.375rem;line-height:1.3}p{margin:0 0 1.25rem;color:light-dark(#4d4d4d,#c7c7c7)}` +
	`form{display:grid;gap:.5rem}input{padding:.75rem 1rem;font:inherit}#code{text-transform:uppercase}` +
	`button{display:block;padding:.75rem 1rem;border:1px solid light-dark(#c7c7c7,#707070);border-radius:.5rem;background:none;font:inherit;text-align:left;color:light-dark(#06c,#92c5f9)}` +
	`button:hover,button:focus-visible{border-color:currentColor;text-decoration:underline}`

var signInTemplate = htmltemplate.Must(htmltemplate.New("sign-in").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{{.Title}}</title><style>` + signInStyles + `</style></head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{if .AskCode}}<form method="get"><label for="code">Code</label><input id="code" name="user_code" autocomplete="off" autofocus required><button>Continue</button></form>{{end}}
{{with .People}}<form method="post">{{with $.Code}}<input type="hidden" name="user_code" value="{{.}}">{{end}}
<label for="password">Password</label><input id="password" name="` + passwordParameter + `" type="password" autocomplete="current-password" autofocus>
{{range .}}<button name="` + personParameter + `" value="{{.ObjectID}}">{{.Name}}</button>
{{end}}{{if $.Code}}<button name="` + personParameter + `" value="">Nobody: I did not start this sign-in</button>{{end}}</form>{{end}}
</main>
</body>
</html>
`))

// page writes a page.
func (d *FrontDoor) page(w http.ResponseWriter, status int, page signInPage) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := signInTemplate.Execute(w, page); err != nil {
		d.options.Log.Error("writing a page failed", logkey.Error, err)
	}
}
