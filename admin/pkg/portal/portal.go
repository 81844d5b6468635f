// Package portal serves the SRE portal: pages that show a region and its clusters, and forms that request actions. Pages are rendered on the
// server and can be read without JavaScript. An engineer signs in with the identity provider, and the portal keeps a session on the server.
//
// The portal gets all data from admin's API, which it calls in process with the engineer's token. It has no rights of its own: what admin
// refuses to the engineer, the portal cannot show or do. It never sends a token to the browser. Everything that customers or clusters can
// choose is text: the templates escape it, and the policy of the pages allows no inline code.
package portal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// requestTimeout limits the duration of a request.
const requestTimeout = 30 * time.Second

// maxForm bounds the body of a form, in bytes.
const maxForm = 64 << 10

// refreshBefore is how long before the end of an access token the portal gets another one.
const refreshBefore = 2 * time.Minute

// Options hold the dependencies of a Portal.
type Options struct {
	// API is the handler of admin's API.
	API http.Handler
	// URL is the URL of the portal for browsers, without a path, for example https://portal.example.
	URL string
	// Region is the name of the region in the heading of each page.
	Region   string
	Sessions *Sessions
	Provider *Provider
	// Changes has the changes of what pages show. The owner of the portal feeds it.
	Changes *live.Changes
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Now is the clock.
	Now func() time.Time
}

// Portal serves the pages. It is safe for concurrent use.
type Portal struct {
	Options
	assets   *assets
	pages    *pages
	handler  http.Handler
	requests *prometheus.CounterVec
	signIns  *prometheus.CounterVec
}

// New returns a Portal. It registers its metrics.
func New(options Options) (*Portal, error) {
	if err := CheckURL(options.URL); err != nil {
		return nil, err
	}
	embedded, err := loadAssets()
	if err != nil {
		return nil, err
	}
	p := &Portal{
		Options: options, assets: embedded,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admin_portal_requests_total", Help: "Requests to the portal by page and HTTP status."}, []string{"page", "status"}),
		signIns:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admin_portal_sign_ins_total", Help: "Sign-ins to the portal by outcome: succeeded, refused, or failed because of an error."}, []string{"outcome"}),
	}
	if p.pages, err = loadPages(p.assets); err != nil {
		return nil, err
	}
	for _, outcome := range []string{signInSucceeded, signInRefused, signInFailed} {
		p.signIns.WithLabelValues(outcome)
	}
	options.Metrics.MustRegister(p.requests, p.signIns)
	p.Sessions.ended = p.Changes.Hub.EndSession
	p.handler = p.routes()
	return p, nil
}

// CheckURL returns an error unless text is an https URL with a host and nothing else.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an https URL without a path", text)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (p *Portal) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.handler.ServeHTTP(w, r) }

// routes returns the handler of all requests.
func (p *Portal) routes() http.Handler {
	mux := http.NewServeMux()
	open := func(pattern, name string, handle http.HandlerFunc) {
		mux.Handle(pattern, p.counted(name, bounded(handle)))
	}
	open("GET /assets/{name}", "asset", p.assets.serve)
	open("GET /sign-in", "sign-in", p.signIn)
	open("GET /signed-in", "signed-in", p.signedIn)
	open("GET /signed-out", "signed-out", p.signedOut)
	open("GET /step-up", "step-up", p.withSession(p.signInAgain))
	open("GET /held-form", "held-form", p.withSession(p.showHeldForm))
	open("POST /sign-out", "sign-out", p.signOut)
	open("POST /theme", "theme", p.setTheme)
	for _, page := range slices.Concat(p.signedInPages(), p.upgradePages(), p.driftPages(), p.alertPages(), p.sessionPages(), p.egressLinkPages(), p.actionPages(), p.elevationPages()) {
		open(page.pattern, page.name, p.withSession(page.handle))
	}
	for _, stream := range p.livePages() { // streams last longer than pages
		mux.Handle(stream.pattern, p.counted(stream.name, p.follow(stream.read)))
	}
	open("/", "unknown", p.withSession(func(w http.ResponseWriter, v *view) {
		p.fail(w, v.request, v, &apiError{status: http.StatusNotFound})
	}))
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.message(w, r, http.StatusForbidden, messageView{Heading: "The request was refused", Text: "It came from a page of another site."})
	}))
	return p.secured(protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		mux.ServeHTTP(w, r)
	})))
}

// securityPolicy allows only what the portal itself serves. Forms are sent to the portal only.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secured adds the headers with which browsers isolate the portal from other sites. Pages are not cached, except for assets.
func (p *Portal) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", securityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		header.Set("Strict-Transport-Security", "max-age=31536000")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// bounded limits the duration of a request.
func bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next(w, r.WithContext(ctx))
	}
}

// counted counts the requests of a page.
func (p *Portal) counted(name string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next(recorder, r)
		p.requests.WithLabelValues(name, strconv.Itoa(recorder.status)).Inc()
	})
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// withSession returns the handler of a page that needs a session. A request without one is sent to the sign-in and returns to the page.
func (p *Portal) withSession(handle func(http.ResponseWriter, *view)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := p.Sessions.find(r.Context(), r)
		if err == nil {
			err = p.renew(r, found)
		}
		switch {
		case errors.Is(err, errNoSession):
			p.requireSignIn(w, r)
			return
		case err != nil:
			p.fail(w, r, nil, err)
			return
		}
		handle(w, &view{portal: p, request: r, session: found, api: p.api(r, found.tokens.Access), now: p.Now().UTC(), revision: p.Changes.Hub.Revision()})
	}
}

// renew stores that the session is in use, and gets another access token before the current one ends. While the identity provider cannot be
// reached, the current one is used until it ends. The error is errNoSession if the provider does not renew it.
func (p *Portal) renew(r *http.Request, found *session) error {
	left := found.tokens.Expires.Sub(p.Now())
	if left > refreshBefore {
		if automatic(r) {
			return nil
		}
		return p.Sessions.touch(r.Context(), found)
	}
	tokens, err := p.Provider.refresh(r.Context(), found.tokens.Refresh)
	switch {
	case errors.Is(err, errSignInRefused):
		if err := p.Sessions.end(r.Context(), found); err != nil {
			return err
		}
		return errNoSession
	case err != nil && left > 0:
		p.Log.WarnContext(r.Context(), "renewing a token failed", logkey.Error, err)
		return p.Sessions.touch(r.Context(), found)
	case err != nil:
		return err
	}
	return p.Sessions.replaceTokens(r.Context(), found, tokens)
}

// requireSignIn sends a request without a session to the sign-in. A form is not sent again after it: its page is shown instead.
func (p *Portal) requireSignIn(w http.ResponseWriter, r *http.Request) {
	target := r.URL.RequestURI()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		target = "/"
		if from, err := url.Parse(r.Referer()); err == nil && from.Scheme+"://"+from.Host == p.URL {
			target = from.RequestURI()
		}
	}
	location := "/sign-in?" + url.Values{"return": {localPath(target)}}.Encode()
	if r.Header.Get("HX-Request") != "" {
		// A part of a page must not be replaced by the page of the identity provider.
		w.Header().Set("HX-Redirect", location)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	redirect(w, location)
}

// fail shows an error. Only errors of admin's API have texts for people.
func (p *Portal) fail(w http.ResponseWriter, r *http.Request, v *view, err error) {
	shown, status := messageView{Heading: "The page could not be loaded", Text: "An internal error occurred. Try again in a moment."}, http.StatusInternalServerError
	var failure *apiError
	switch {
	case errors.As(err, &failure):
		status = failure.status
		shown.Text, shown.RequestID = failure.detail.Message, failure.detail.RequestID
		switch status {
		case http.StatusNotFound:
			shown.Heading = "Not found"
			if shown.Text == "" {
				shown.Text = "The portal has no such page."
			}
		case http.StatusForbidden:
			shown.Heading = "You have no access"
		case http.StatusUnauthorized:
			shown.Heading, shown.SignIn = "Your sign-in is not accepted", true
		}
	case errors.Is(err, context.DeadlineExceeded):
		status, shown.Text = http.StatusServiceUnavailable, "The request took too long."
	default:
		p.Log.ErrorContext(r.Context(), "a page failed", logkey.Path, r.URL.Path, logkey.Error, err)
	}
	if v == nil {
		p.message(w, r, status, shown)
		return
	}
	v.render(w, status, "message", page{Title: shown.Heading, Body: shown})
}

// sentence returns the text of an error for people. It logs an error that has none.
func (p *Portal) sentence(v *view, err error) string {
	var failure *apiError
	if errors.As(err, &failure) {
		return failure.detail.Message
	}
	p.Log.ErrorContext(v.request.Context(), "a part of a page failed", logkey.Path, v.request.URL.Path, logkey.Error, err)
	return "An internal error occurred."
}

// message shows a page without a session.
func (p *Portal) message(w http.ResponseWriter, r *http.Request, status int, content messageView) {
	(&view{portal: p, request: r, now: p.Now().UTC()}).render(w, status, "message", page{Title: content.Heading, Body: content})
}

// messageView is the content of a page with a message.
type messageView struct {
	Heading, Text string
	// RequestID identifies the request in the logs.
	RequestID string
	// SignIn offers to sign in, and SignOutURL to sign out of the identity provider.
	SignIn     bool
	SignOutURL string
	// StepUp offers to sign in again for a form that the session holds.
	StepUp bool
}

// The themes. system follows the setting of the operating system.
const (
	themeCookie = "__Host-hcpmesh-theme"
	themeSystem = "system"
	themeLight  = "light"
	themeDark   = "dark"
)

// setTheme stores the theme in a cookie and returns to the page of the form.
func (p *Portal) setTheme(w http.ResponseWriter, r *http.Request) {
	theme := r.PostFormValue("theme")
	if theme != themeSystem && theme != themeLight && theme != themeDark {
		p.message(w, r, http.StatusBadRequest, messageView{Heading: "The theme was not changed", Text: "theme: must be system, light or dark."})
		return
	}
	http.SetCookie(w, newCookie(themeCookie, theme, 400*24*60*60))
	redirect(w, localPath(r.PostFormValue("return")))
}

// themeOf returns the theme of a request.
func themeOf(r *http.Request) string {
	if cookie, err := r.Cookie(themeCookie); err == nil && (cookie.Value == themeLight || cookie.Value == themeDark) {
		return cookie.Value
	}
	return themeSystem
}
