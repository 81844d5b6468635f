// Package frontdoor emulates Azure Resource Manager for one region. It authenticates callers, stores subscriptions, resource
// groups and the registration of the resource provider, and forwards the requests below Microsoft.RedHatOpenShift to the
// frontend over mutual TLS. It adds the headers that ARM adds and removes those that only ARM may send. Bodies of the
// resource provider's requests and responses are streamed unchanged.
//
// The package makes no decisions about clusters. Its own errors are those that ARM returns before it calls a resource
// provider.
package frontdoor

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configure a FrontDoor.
type Options struct {
	// PublicURL is the URL of the front door for its callers, for example https://127.0.0.1:18400. URLs in responses and
	// tokens begin with it.
	PublicURL string
	// Location is the Azure location of the emulated region.
	Location string
	// APIVersions lists the resource provider's api-versions, the preferred one first.
	APIVersions []string
	// Frontend is host:port of the resource provider. Connections use FrontendTLS.
	Frontend    string
	FrontendTLS *tls.Config
	// ResponseTimeout bounds the time until the resource provider responds to a request; 0 means that of ARM, which is a minute. A
	// connection over which the resource provider does not respond to a ping is closed after half of this time.
	ResponseTimeout time.Duration
	Tokens          *token.Issuer
	// ARMClient is the client that identifies ARM to the resource provider, with tokens for ProviderAudience. If it is nil,
	// requests to the resource provider have no token.
	ARMClient        *token.Client
	ProviderAudience string
	Directory        *Directory
	// Limits are the rate limits of each subscription; nil means DefaultRateLimits.
	Limits RateLimits
	Log    *slog.Logger
	// Metrics registers the metrics; may be nil.
	Metrics prometheus.Registerer
}

// FrontDoor is the HTTP handler of the emulated ARM. It deletes resource groups in the background until Close.
type FrontDoor struct {
	options  Options
	frontend *http.Transport
	proxy    *httputil.ReverseProxy
	requests *prometheus.CounterVec

	armToken cachedToken
	buckets  *RateBuckets

	closing    chan struct{}
	once       sync.Once
	background sync.WaitGroup
}

// New returns a FrontDoor. It resumes the deletions of resource groups that a previous process started.
func New(options Options) (*FrontDoor, error) {
	if _, err := url.Parse(options.PublicURL); err != nil || !strings.HasPrefix(options.PublicURL, "https://") {
		return nil, fmt.Errorf("public URL %q: must be an https URL", options.PublicURL)
	}
	options.PublicURL = strings.TrimSuffix(options.PublicURL, "/")
	if options.Limits == nil {
		options.Limits = DefaultRateLimits()
	}
	options.ResponseTimeout = cmp.Or(options.ResponseTimeout, time.Minute)
	d := &FrontDoor{
		buckets: NewRateBuckets(options.Limits, time.Now),
		options: options,
		frontend: &http.Transport{
			TLSClientConfig: options.FrontendTLS, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, ResponseHeaderTimeout: options.ResponseTimeout,
			HTTP2: &http.HTTP2Config{SendPingTimeout: options.ResponseTimeout / 4, PingTimeout: options.ResponseTimeout / 4},
		},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arm_frontdoor_requests_total", Help: "Number of requests by method, status code and responder (frontdoor or frontend).",
		}, []string{"method", "code", "responder"}),
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
				d.runGroupDeletion(s.ID, g.Name)
			}
		}
	}
	return d, nil
}

// Close stops the deletions of resource groups and waits for their goroutines. The next FrontDoor resumes them.
func (d *FrontDoor) Close() {
	d.once.Do(func() { close(d.closing) })
	d.background.Wait()
	d.frontend.CloseIdleConnections()
}

// ServeHTTP implements http.Handler.
func (d *FrontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = trimLeadingSlashes(r)
	recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	responder := "frontdoor"
	if d.respondToBrowser(recorder, r) {
		// The response is written.
	} else if response := d.respondWithoutToken(r); response != nil {
		response.write(recorder)
	} else if caller, failure := d.authenticate(r); failure != nil {
		if throttled := d.throttlePeer(r); throttled != nil {
			failure = throttled
		}
		failure.write(recorder)
	} else {
		request := &request{Request: r, responseHeader: recorder.Header(), caller: caller, correlation: correlationID(r)}
		if response := d.respond(request); response != nil {
			recorder.Header().Set("x-ms-correlation-request-id", request.correlation)
			response.write(recorder)
		} else {
			responder = "frontend"
			d.forward(recorder, request)
		}
	}
	d.requests.WithLabelValues(methodLabel(r.Method), fmt.Sprint(recorder.status), responder).Inc()
	d.options.Log.Debug("request served", logkey.Method, r.Method, logkey.Path, r.URL.Path, logkey.Status, recorder.status, logkey.Responder, responder)
}

// trimLeadingSlashes returns r with a single slash at the start of its path. ARM accepts several, and the SDK for
// JavaScript sends two before a resource ID.
func trimLeadingSlashes(r *http.Request) *http.Request {
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
	// body is the body of a request that is forwarded.
	body *incomingBody
	// responseHeader is the header of the response.
	responseHeader http.Header
}

// methodLabel returns the metric label of a method. It bounds the number of labels.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete:
		return method
	}
	return "other"
}

// statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the flusher of the connection.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// respondWithoutToken returns the response to requests that need no token: for tokens, the OpenID documents of the issuer
// and the endpoints of this cloud. It returns nil for all other requests.
func (d *FrontDoor) respondWithoutToken(r *http.Request) *response {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	rest := asciifold.Lower(strings.Join(segments[1:], "/"))
	var respond func() *response
	switch {
	case asciifold.Equal(r.URL.Path, "/metadata/endpoints") && r.Method == http.MethodGet:
		respond = func() *response { return d.metadata(r.URL.Query().Get("api-version")) }
	case rest == "oauth2/v2.0/token" && r.Method == http.MethodPost:
		respond = func() *response { return d.issueToken(segments[0], r) }
	case rest == "oauth2/v2.0/devicecode" && r.Method == http.MethodPost:
		respond = func() *response { return d.authorizeDevice(segments[0], r) }
	case rest == "v2.0/.well-known/openid-configuration" && r.Method == http.MethodGet:
		respond = func() *response {
			return newResponse(http.StatusOK, d.options.Tokens.Configuration(segments[0], r.Host))
		}
	case rest == "discovery/v2.0/keys" && r.Method == http.MethodGet:
		respond = func() *response { return newResponse(http.StatusOK, d.options.Tokens.Keys()) }
	default:
		return nil
	}
	throttled := d.throttlePeer(r)
	switch {
	case throttled == nil:
		return respond()
	case r.Method == http.MethodPost:
		return oauthThrottled(throttled)
	}
	return throttled
}

// metadata returns the document with which clients configure a cloud. Old api-versions return an object, new ones a list.
func (d *FrontDoor) metadata(version string) *response {
	if version == "" {
		return newError(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
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
		return newResponse(http.StatusOK, map[string]any{
			"galleryEndpoint": d.options.PublicURL, "graphEndpoint": d.options.PublicURL, "portalEndpoint": d.options.PublicURL,
			"authentication": authentication,
		})
	}
	return newResponse(http.StatusOK, []any{cloud})
}

// maxTokenRequest bounds the form of a token request.
const maxTokenRequest = 64 << 10

// The assertion with which workloads authenticate (RFC 7523, section 2.2).
const workloadAssertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// issueToken responds to a request of the token endpoint: with client credentials (RFC 6749, section 4.4), which are a secret or a
// workload's token, or with the code, the refresh token or the device code of a person who signed in to an application. Errors have the form of
// Entra's.
func (d *FrontDoor) issueToken(tenant string, r *http.Request) *response {
	r.Body = http.MaxBytesReader(nil, r.Body, maxTokenRequest)
	if err := r.ParseForm(); err != nil {
		return oauthError(http.StatusBadRequest, "invalid_request", "the request is not a form")
	}
	clientID, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	if name, password, ok := r.BasicAuth(); ok {
		clientID, secret = name, password
	}
	kind, assertion := r.PostForm.Get("client_assertion_type"), r.PostForm.Get("client_assertion")
	if kind != "" && kind != workloadAssertion {
		return oauthError(http.StatusBadRequest, "invalid_request", "the type of the client assertion is not supported")
	}
	body := map[string]any{"token_type": "Bearer", "expires_in": int(token.Lifetime.Seconds()), "ext_expires_in": int(token.Lifetime.Seconds())}
	var err error
	switch grant := r.PostForm.Get("grant_type"); {
	case grant == "client_credentials" && kind == "":
		body["access_token"], err = d.options.Tokens.Issue(tenant, clientID, secret, r.PostForm.Get("scope"))
	case grant == "client_credentials":
		body["access_token"], err = d.options.Tokens.Exchange(tenant, clientID, assertion, r.PostForm.Get("scope"))
	case grant == "authorization_code" || grant == "refresh_token":
		var tokens token.UserTokens
		if grant == "refresh_token" {
			tokens, err = d.options.Tokens.Refresh(tenant, clientID, assertion, r.PostForm.Get("refresh_token"))
		} else {
			tokens, err = d.options.Tokens.Redeem(tenant, clientID, assertion, r.PostForm.Get("code"), r.PostForm.Get("redirect_uri"), r.PostForm.Get("code_verifier"))
		}
		body["access_token"], body["id_token"], body["refresh_token"] = tokens.AccessToken, tokens.IDToken, tokens.RefreshToken
	case grant == token.DeviceGrant:
		var tokens token.UserTokens
		tokens, err = d.options.Tokens.RedeemDevice(tenant, clientID, r.PostForm.Get("device_code"))
		body["access_token"], body["id_token"], body["refresh_token"] = tokens.AccessToken, tokens.IDToken, tokens.RefreshToken
	default:
		return oauthError(http.StatusBadRequest, "unsupported_grant_type", "only client_credentials, authorization_code, refresh_token and device_code are supported")
	}
	if tooMany := new(token.TooManyAttemptsError); errors.As(err, &tooMany) {
		return oauthThrottled(tooManyAttempts(tooMany))
	}
	switch err {
	case nil:
	case token.ErrPending:
		return oauthError(http.StatusBadRequest, "authorization_pending", err.Error())
	case token.ErrSlowDown:
		return oauthError(http.StatusBadRequest, "slow_down", err.Error())
	case token.ErrDeclined:
		return oauthError(http.StatusBadRequest, "access_denied", err.Error())
	case token.ErrInvalidAudience:
		return oauthError(http.StatusBadRequest, "invalid_scope", err.Error())
	case token.ErrInvalidGrant:
		return oauthError(http.StatusBadRequest, "invalid_grant", err.Error())
	case token.ErrInvalidClient:
		return oauthError(http.StatusUnauthorized, "invalid_client", err.Error())
	default:
		d.options.Log.Error("issuing a token failed", logkey.Error, err)
		return oauthError(http.StatusInternalServerError, "server_error", "the token could not be issued")
	}
	response := newResponse(http.StatusOK, body)
	response.header = map[string]string{"Cache-Control": "no-store"}
	return response
}

// oauthError returns an error response of the token endpoint (RFC 6749, section 5.2).
func oauthError(status int, code, text string) *response {
	return newResponse(status, map[string]string{"error": code, "error_description": text})
}

// oauthThrottled returns a response of status 429 in the form of the token endpoint.
func oauthThrottled(throttled *response) *response {
	failure := oauthError(throttled.status, "temporarily_unavailable", throttled.message)
	failure.header = throttled.header
	return failure
}

// authenticate verifies the bearer token and returns its caller, or the response that rejects the request.
func (d *FrontDoor) authenticate(r *http.Request) (token.Caller, *response) {
	challenge := fmt.Sprintf(`Bearer authorization_uri="%s/%s", error="invalid_token", error_description=`, d.options.PublicURL, d.tenantHint())
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		failure := newError(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
		failure.header = map[string]string{"WWW-Authenticate": challenge + `"The authentication header is missing."`}
		return token.Caller{}, failure
	}
	caller, err := d.options.Tokens.Verify(text)
	if err != nil {
		failure := newError(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid: it is malformed, expired, or of another issuer or audience.")
		failure.header = map[string]string{"WWW-Authenticate": challenge + `"The access token is invalid."`}
		return token.Caller{}, failure
	}
	return caller, nil
}

// tenantHint returns the tenant in the authorization URI of challenges.
func (d *FrontDoor) tenantHint() string {
	if home := d.options.Tokens.HomeTenant(); home != "" {
		return home
	}
	return "common"
}
