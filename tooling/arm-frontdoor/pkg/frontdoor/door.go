// Package frontdoor plays Azure Resource Manager for one region: it authenticates callers, knows subscriptions, resource
// groups and the registration of the resource provider, and hands everything below Microsoft.RedHatOpenShift to the
// frontend over mutual TLS, with the headers that ARM adds and without those that only ARM may send. Requests and answers
// of the resource provider pass as streams and unchanged.
//
// It decides nothing about clusters. What it answers itself are the errors that ARM answers before a resource provider
// is asked.
package frontdoor

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/throttle"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/prometheus/client_golang/prometheus"
)

// Options of a Door.
type Options struct {
	// PublicURL is how callers reach the door, as in https://127.0.0.1:18400; URLs in answers and tokens begin with it.
	PublicURL string
	// Location is the Azure location that the region plays.
	Location string
	// APIVersions of the resource provider, the one to prefer first.
	APIVersions []string
	// Frontend is the resource provider's host:port, reached with FrontendTLS.
	Frontend    string
	FrontendTLS *tls.Config
	Tokens      *token.Issuer
	// Own is the client that the door is at the resource provider, which asks for tokens for ProviderAudience; nil sends
	// the provider no token.
	Own              *token.Client
	ProviderAudience string
	Directory        *directory.Directory
	// Limits are of what a subscription may ask for; nil takes the default.
	Limits throttle.Limits
	Log    *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Door is the handler. Close ends what it does beside answering.
type Door struct {
	options  Options
	frontend *http.Transport
	proxy    *httputil.ReverseProxy
	requests *prometheus.CounterVec

	own     ownToken
	buckets *throttle.Buckets

	closing chan struct{}
	once    sync.Once
	work    sync.WaitGroup
}

// New makes a door, and goes on with the deletions of resource groups that an earlier one began.
func New(options Options) (*Door, error) {
	if _, err := url.Parse(options.PublicURL); err != nil || !strings.HasPrefix(options.PublicURL, "https://") {
		return nil, fmt.Errorf("the public URL %q is not an https URL", options.PublicURL)
	}
	options.PublicURL = strings.TrimSuffix(options.PublicURL, "/")
	if options.Limits == nil {
		options.Limits = throttle.Default()
	}
	d := &Door{
		buckets: throttle.New(options.Limits, time.Now),
		options: options,
		frontend: &http.Transport{
			TLSClientConfig: options.FrontendTLS, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second,
		},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arm_frontdoor_requests_total", Help: "Requests by method, status and who answered: the door itself or the frontend.",
		}, []string{"method", "code", "answered_by"}),
		closing: make(chan struct{}),
	}
	if options.Metrics != nil {
		if err := options.Metrics.Register(d.requests); err != nil {
			return nil, err
		}
	}
	d.proxy = d.newProxy()
	for _, s := range options.Directory.Subscriptions() {
		for _, g := range s.Groups {
			if g.Deleting {
				d.deleteGroup(s.ID, g.Name)
			}
		}
	}
	return d, nil
}

// Close stops the deletions of resource groups, which the next door goes on with, and waits for them.
func (d *Door) Close() {
	d.once.Do(func() { close(d.closing) })
	d.work.Wait()
	d.frontend.CloseIdleConnections()
}

// ServeHTTP answers one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = withOneSlash(r)
	recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
	answeredBy := "door"
	if open := d.unauthenticated(r); open != nil {
		open.write(recorder)
	} else if caller, refused := d.authenticate(r); refused != nil {
		refused.write(recorder)
	} else {
		request := &request{Request: r, answered: recorder.Header(), caller: caller, correlation: correlationID(r)}
		own := d.answer(request)
		if own != nil {
			recorder.Header().Set("x-ms-correlation-request-id", request.correlation)
			own.write(recorder)
		} else {
			answeredBy = "frontend"
			d.forward(recorder, request)
		}
	}
	d.requests.WithLabelValues(knownMethod(r.Method), fmt.Sprint(recorder.status), answeredBy).Inc()
	d.options.Log.Debug("answered", "method", r.Method, "path", r.URL.Path, "status", recorder.status, "by", answeredBy)
}

// withOneSlash is a request without the slashes that are too many at the start of its path. ARM takes them, and the SDK for
// JavaScript sends two before a resource's id.
func withOneSlash(r *http.Request) *http.Request {
	if !strings.HasPrefix(r.URL.Path, "//") {
		return r
	}
	single := func(path string) string {
		if path == "" {
			return ""
		}
		return "/" + strings.TrimLeft(path, "/")
	}
	clean := r.Clone(r.Context())
	clean.URL.Path, clean.URL.RawPath = single(r.URL.Path), single(r.URL.RawPath)
	return clean
}

// request is an authenticated request.
type request struct {
	*http.Request
	caller      token.Caller
	correlation string
	path        path
	// answered is the header of the answer.
	answered http.Header
}

// knownMethod bounds the metric's label.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the reverse proxy flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// unauthenticated answers what needs no token: who the issuer is, tokens, and where the services of this cloud are. Nil
// for everything else.
func (d *Door) unauthenticated(r *http.Request) *answer {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	rest := strings.ToLower(strings.Join(segments[1:], "/"))
	switch {
	case strings.EqualFold(r.URL.Path, "/metadata/endpoints") && r.Method == http.MethodGet:
		return d.metadata(r.URL.Query().Get("api-version"))
	case rest == "oauth2/v2.0/token" && r.Method == http.MethodPost:
		return d.issue(segments[0], r)
	case rest == "v2.0/.well-known/openid-configuration" && r.Method == http.MethodGet:
		return give(http.StatusOK, d.options.Tokens.Configuration(segments[0]))
	case rest == "discovery/v2.0/keys" && r.Method == http.MethodGet:
		return give(http.StatusOK, d.options.Tokens.Keys())
	}
	return nil
}

// metadata is the document that clients configure a cloud from. Older api-versions have an object, newer ones a list.
func (d *Door) metadata(version string) *answer {
	if version == "" {
		return refuse(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	authentication := map[string]any{
		"loginEndpoint":    d.options.PublicURL,
		"audiences":        []string{"https://management.core.windows.net/", "https://management.azure.com/"},
		"tenant":           "common",
		"identityProvider": "AAD",
	}
	cloud := map[string]any{
		"name": "HcpmeshLocal", "authentication": authentication, "resourceManager": d.options.PublicURL + "/",
		"portal": d.options.PublicURL, "graph": d.options.PublicURL, "suffixes": map[string]string{},
	}
	if version < "2019-05-01" {
		return give(http.StatusOK, map[string]any{
			"galleryEndpoint": d.options.PublicURL, "graphEndpoint": d.options.PublicURL, "portalEndpoint": d.options.PublicURL,
			"authentication": authentication,
		})
	}
	return give(http.StatusOK, []any{cloud})
}

// maxTokenRequest bounds the form of a token request.
const maxTokenRequest = 64 << 10

// issue answers a client credentials request (RFC 6749, section 4.4), with Entra's forms of errors.
func (d *Door) issue(tenant string, r *http.Request) *answer {
	r.Body = http.MaxBytesReader(nil, r.Body, maxTokenRequest)
	if err := r.ParseForm(); err != nil {
		return oauthError(http.StatusBadRequest, "invalid_request", "the request is not a form")
	}
	if r.PostForm.Get("grant_type") != "client_credentials" {
		return oauthError(http.StatusBadRequest, "unsupported_grant_type", "only client_credentials is supported here")
	}
	clientID, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	if name, password, ok := r.BasicAuth(); ok {
		clientID, secret = name, password
	}
	text, err := d.options.Tokens.Issue(tenant, clientID, secret, r.PostForm.Get("scope"))
	switch err {
	case nil:
	case token.ErrAudience:
		return oauthError(http.StatusBadRequest, "invalid_scope", err.Error())
	case token.ErrClient:
		return oauthError(http.StatusUnauthorized, "invalid_client", err.Error())
	default:
		d.options.Log.Error("issuing a token", "error", err)
		return oauthError(http.StatusInternalServerError, "server_error", "the token could not be issued")
	}
	granted := give(http.StatusOK, map[string]any{
		"token_type": "Bearer", "access_token": text,
		"expires_in": int(token.Lifetime.Seconds()), "ext_expires_in": int(token.Lifetime.Seconds()),
	})
	granted.header = map[string]string{"Cache-Control": "no-store"}
	return granted
}

func oauthError(status int, code, text string) *answer {
	return give(status, map[string]string{"error": code, "error_description": text})
}

// authenticate checks the bearer token.
func (d *Door) authenticate(r *http.Request) (token.Caller, *answer) {
	challenge := fmt.Sprintf(`Bearer authorization_uri="%s/%s", error="invalid_token", error_description=`, d.options.PublicURL, d.tenantHint())
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		refused := refuse(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
		refused.header = map[string]string{"WWW-Authenticate": challenge + `"The authentication header is missing."`}
		return token.Caller{}, refused
	}
	caller, err := d.options.Tokens.Verify(text)
	if err != nil {
		refused := refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid: it is malformed, expired, or of another issuer or audience.")
		refused.header = map[string]string{"WWW-Authenticate": challenge + `"The access token is invalid."`}
		return token.Caller{}, refused
	}
	return caller, nil
}

func (d *Door) tenantHint() string {
	if home := d.options.Tokens.Home(); home != "" {
		return home
	}
	return "common"
}
