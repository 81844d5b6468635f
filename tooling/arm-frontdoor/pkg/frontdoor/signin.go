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

// personParameter is the parameter of an authorization request with the object ID of the chosen person. The issuer has no passwords.
const personParameter = "hcpmesh_person"

// respondToBrowser responds to the requests of browsers that sign in or out, and reports whether the request is one. The pages need no
// token and no script.
func (d *FrontDoor) respondToBrowser(w http.ResponseWriter, r *http.Request) bool {
	tenant, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	rest = asciifold.Lower(rest)
	device := rest == devicePath && (r.Method == http.MethodGet || r.Method == http.MethodPost)
	if !device && (r.Method != http.MethodGet || rest != "oauth2/v2.0/authorize" && rest != "oauth2/v2.0/logout") {
		return false
	}
	if throttled := d.throttlePeer(r); throttled != nil {
		throttled.write(w)
		return true
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	styles := sha256.Sum256([]byte(signInStyles))
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(styles[:])+"'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	// The address of the page contains the state of the application.
	header.Set("Referrer-Policy", "no-referrer")
	if device {
		d.signInDevice(w, r, tenant)
		return true
	}
	if rest == "oauth2/v2.0/logout" {
		d.signOut(w, r, tenant)
		return true
	}
	d.signIn(w, r, tenant)
	return true
}

// signIn lets a person choose who signs in, and sends the code of the chosen person to the application.
func (d *FrontDoor) signIn(w http.ResponseWriter, r *http.Request, tenant string) {
	query := r.URL.Query()
	asked, err := d.options.Tokens.SignIn(tenant, query)
	answer := url.Values{"state": {asked.State}}
	if objectID := query.Get(personParameter); err == nil && objectID != "" {
		var code string
		code, err = d.options.Tokens.Code(asked, objectID)
		answer.Set("code", code)
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
		w.WriteHeader(http.StatusFound)
		return
	}
	page := signInPage{Title: "Choose who signs in to " + asked.Application, Text: noPasswords + confirmation(asked)}
	for _, person := range asked.People {
		query.Set(personParameter, person.ObjectID)
		page.Links = append(page.Links, signInLink{URL: r.URL.Path + "?" + query.Encode(), Text: person.Name})
	}
	d.page(w, http.StatusOK, page)
}

// noPasswords is the text of pages on which a person is chosen.
const noPasswords = "This identity provider belongs to a local region. It has no passwords."

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
	Links       []signInLink
	// AskCode shows a form for the code of a device, and Code one that chooses between People for the device with the code.
	AskCode bool
	Code    string
	People  []token.Client
}

type signInLink struct{ URL, Text string }

// signInStyles are the styles of the pages. The policy of the pages allows no others.
const signInStyles = `:root{color-scheme:light dark}` +
	`body{margin:0;min-height:100vh;display:grid;place-items:center;font:1rem/1.5 system-ui,sans-serif;background:light-dark(#f2f2f2,#151515);color:light-dark(#151515,#fff)}` +
	`main{box-sizing:border-box;width:min(28rem,100vw - 2rem);padding:2rem;border-radius:1rem;background:light-dark(#fff,#292929);border:1px solid light-dark(#c7c7c7,#707070)}` +
	`h1{margin:0 0 .5rem;font-size:1.375rem;line-height:1.3}p{margin:0 0 1.25rem;color:light-dark(#4d4d4d,#c7c7c7)}ul{margin:0;padding:0;list-style:none;display:grid;gap:.5rem}` +
	`form{display:grid;gap:.5rem}input{padding:.75rem 1rem;font:inherit;text-transform:uppercase}` +
	`a,button{display:block;padding:.75rem 1rem;border:1px solid light-dark(#c7c7c7,#707070);border-radius:.5rem;background:none;font:inherit;text-align:left;color:light-dark(#06c,#92c5f9);text-decoration:none}` +
	`a:hover,a:focus-visible,button:hover,button:focus-visible{border-color:currentColor;text-decoration:underline}`

var signInTemplate = htmltemplate.Must(htmltemplate.New("sign-in").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{{.Title}}</title><style>` + signInStyles + `</style></head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{with .Links}}<ul>
{{range .}}<li><a href="{{.URL}}">{{.Text}}</a></li>
{{end}}</ul>{{end}}
{{if .AskCode}}<form method="get"><label for="code">Code</label><input id="code" name="user_code" autocomplete="off" autofocus required><button>Continue</button></form>{{end}}
{{with .Code}}<form method="post"><input type="hidden" name="user_code" value="{{.}}">
{{range $.People}}<button name="` + personParameter + `" value="{{.ObjectID}}">{{.Name}}</button>
{{end}}<button name="` + personParameter + `" value="">Nobody: I did not start this sign-in</button></form>{{end}}
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
