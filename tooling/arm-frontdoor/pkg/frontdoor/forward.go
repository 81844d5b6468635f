package frontdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// requestKey is the context key of the incoming request in a request to the frontend.
type requestKey struct{}

// forward sends a request to the frontend and copies the response.
func (d *FrontDoor) forward(w http.ResponseWriter, r *request) {
	r.body = &incomingBody{ReadCloser: r.Body}
	forwarded := r.WithContext(context.WithValue(r.Context(), requestKey{}, r))
	forwarded.Body = r.body
	d.proxy.ServeHTTP(w, forwarded)
}

// newProxy returns the reverse proxy to the frontend.
func (d *FrontDoor) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: d.frontend,
		Rewrite: func(p *httputil.ProxyRequest) {
			r := p.In.Context().Value(requestKey{}).(*request)
			p.Out.URL.Scheme, p.Out.URL.Host = "https", d.options.Frontend
			p.Out.Host = d.options.Frontend
			p.SetXForwarded()
			if public, err := url.Parse(d.options.PublicURL); err == nil {
				p.Out.Header.Set("X-Forwarded-Host", public.Host)
				p.Out.Header.Set("X-Forwarded-Proto", public.Scheme)
			}
			removeReservedHeaders(p.Out.Header)
			p.Out.Header.Set("Referer", d.options.PublicURL+p.In.URL.RequestURI())
			d.addIdentity(p.Out.Header, r)
			if p.In.Method == http.MethodPut || p.In.Method == http.MethodPatch {
				p.Out.Header.Set(armheader.SystemData, systemData(r.caller.Name, time.Now()))
			}
			if p.In.Method == http.MethodPut {
				p.Out.Header.Set(armheader.IdentityURL, d.identityURL(r))
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			incoming := r.Context().Value(requestKey{}).(*request)
			if r.Context().Err() != nil {
				incoming.body.awaitRead()
			}
			// A caller that closed only its side of the connection still reads the response.
			if failure := incoming.body.failure(); failure != nil {
				w.Header().Set(armheader.CorrelationID, incoming.correlation)
				failure.write(w)
				return
			}
			if r.Context().Err() != nil {
				w.Header().Set(armheader.CorrelationID, incoming.correlation)
				newError(statusClientClosedRequest, "ClientClosedRequest", "The connection was closed before the resource provider responded.").write(w)
				return
			}
			d.options.Log.Error("forwarding to the frontend failed", logkey.Method, r.Method, logkey.Path, r.URL.Path, logkey.Error, err)
			w.Header().Set(armheader.CorrelationID, r.Header.Get(armheader.CorrelationID))
			failed(err).write(w)
		},
		ErrorLog: nil,
	}
}

// failed returns the response to a request that failed with an error.
func failed(err error) *response {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return newError(http.StatusGatewayTimeout, "GatewayTimeout", "The resource provider did not respond within the specified time.")
	}
	return unavailable()
}

// unavailable returns the response while the resource provider is unreachable.
func unavailable() *response {
	response := newError(http.StatusServiceUnavailable, "ServiceUnavailable", "The resource provider cannot be reached. Please try again in a moment.")
	response.header = map[string]string{retryAfter: "1"}
	return response
}

// removeReservedHeaders removes the headers that the resource provider trusts because only ARM sends them, the caller's token, and the
// trace context of the caller, who could otherwise choose the IDs of traces and have them recorded.
func removeReservedHeaders(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		switch {
		case lower == strings.ToLower(armheader.ClientRequestID):
		case lower == "authorization", lower == "referer", lower == "azure-asyncnotificationuri",
			lower == "traceparent", lower == "tracestate", lower == "baggage",
			strings.HasPrefix(lower, "x-ms-arm-"), strings.HasPrefix(lower, "x-ms-client-"),
			strings.HasPrefix(lower, "x-ms-home-"), strings.HasPrefix(lower, "x-ms-identity-"):
			header.Del(name)
		}
	}
}

// addIdentity adds the headers that identify the caller, and ARM's token, which proves that ARM added them.
func (d *FrontDoor) addIdentity(header http.Header, r *request) {
	if text := d.currentARMToken(); text != "" {
		header.Set("Authorization", "Bearer "+text)
	}
	header.Set(armheader.CorrelationID, r.correlation)
	header.Set(armheader.HomeTenantID, r.caller.TenantID)
	header.Set(armheader.ClientTenantID, r.caller.TenantID)
	header.Set(armheader.ClientObjectID, r.caller.ObjectID)
	header.Set(armheader.ClientPrincipalName, r.caller.Name)
	header.Set(armheader.ClientAppID, r.caller.ClientID)
}

// cachedToken caches ARM's token for the resource provider.
type cachedToken struct {
	mu      sync.Mutex
	text    string
	expires time.Time
}

// renewBefore is the remaining validity at which a token is replaced.
const renewBefore = 5 * time.Minute

// currentARMToken returns ARM's token for the resource provider, or "" if there is none.
func (d *FrontDoor) currentARMToken() string {
	if d.options.ARMClient == nil {
		return ""
	}
	d.armToken.mu.Lock()
	defer d.armToken.mu.Unlock()
	now := time.Now()
	if now.Before(d.armToken.expires) {
		return d.armToken.text
	}
	text, err := d.options.Tokens.IssueWithoutSecret(d.options.ARMClient, d.options.ProviderAudience)
	if err != nil {
		d.options.Log.Error("issuing ARM's token for the resource provider failed", logkey.Error, err)
		return ""
	}
	d.armToken.text, d.armToken.expires = text, now.Add(token.Lifetime-renewBefore)
	return text
}

// identityURL returns the URL at which the data plane of managed identities would return the credentials of a resource's
// identities. The resource provider stores it. In a local region, Cluster Service sends its path to the emulator of Azure.
func (d *FrontDoor) identityURL(r *request) string {
	return d.options.PublicURL + r.URL.Path + "/credentials/v2/identities?tid=" + url.QueryEscape(r.caller.TenantID)
}

// systemData returns the value of x-ms-arm-resource-system-data. For an existing resource the provider ignores the
// creation.
func systemData(caller string, now time.Time) string {
	at := now.UTC().Format(time.RFC3339Nano)
	data, err := json.Marshal(map[string]string{
		"createdBy": caller, "createdByType": "User", "createdAt": at,
		"lastModifiedBy": caller, "lastModifiedByType": "User", "lastModifiedAt": at,
	})
	if err != nil {
		return "{}"
	}
	return string(data)
}

var uuidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// correlationID returns the caller's correlation ID if it is a UUID, or a new one.
func correlationID(r *http.Request) string {
	if id := r.Header.Get(armheader.CorrelationID); uuidPattern.MatchString(id) {
		return id
	}
	return uuid.NewString()
}

// maxProviderResponse bounds the response of a call to the resource provider.
const maxProviderResponse = 16 << 20

// callProvider sends ARM's own requests to the resource provider: for registrations, deletions of resource groups and
// lists of resources. A status of 400 or more is an error: a *response with that status.
func (d *FrontDoor) callProvider(ctx context.Context, r *request, method, pathAndQuery string, body any) ([]byte, *http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		content = strings.NewReader(string(data))
	}
	out, err := http.NewRequestWithContext(ctx, method, "https://"+d.options.Frontend+pathAndQuery, content)
	if err != nil {
		return nil, nil, err
	}
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
		out.Header.Set(armheader.SystemData, systemData(r.caller.Name, time.Now()))
	}
	out.Header.Set("Referer", d.options.PublicURL+pathAndQuery)
	d.addIdentity(out.Header, r)
	response, err := d.frontend.RoundTrip(out)
	if err != nil {
		d.options.Log.Error("calling the frontend failed", logkey.Method, method, logkey.Path, out.URL.Path, logkey.Error, err)
		return nil, nil, failed(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxProviderResponse))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the resource provider's response: %w", err)
	}
	if response.StatusCode >= 400 {
		return nil, response, providerError(response.StatusCode, data)
	}
	return data, response, nil
}

// providerError returns an error response with the code and message of an error of the resource provider.
func providerError(status int, body []byte) *response {
	var decoded struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Target  string            `json:"target"`
			Details []json.RawMessage `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &decoded) != nil || decoded.Error.Code == "" {
		return newError(status, "ResourceProviderError", "The resource provider responded with status %d.", status)
	}
	failure := newError(status, decoded.Error.Code, "%s", decoded.Error.Message)
	failure.target, failure.details = decoded.Error.Target, decoded.Error.Details
	return failure
}
