package frontdoor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// requestKey finds the request in the context of the one that goes to the frontend.
type requestKey struct{}

// forward hands a request to the frontend and its answer back.
func (d *Door) forward(w http.ResponseWriter, r *request) {
	d.proxy.ServeHTTP(w, r.Request.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
}

func (d *Door) newProxy() *httputil.ReverseProxy {
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
			onlyFromARM(p.Out.Header)
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
			if r.Context().Err() != nil {
				return // the caller has gone
			}
			d.options.Log.Error("the frontend did not answer", "method", r.Method, "path", r.URL.Path, "error", err)
			w.Header().Set(armheader.CorrelationID, r.Header.Get(armheader.CorrelationID))
			unavailable(err).write(w)
		},
		ErrorLog: nil,
	}
}

func unavailable(error) *answer {
	a := refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "The resource provider cannot be reached now; try again in a moment.")
	a.header = map[string]string{"Retry-After": "1"}
	return a
}

// onlyFromARM removes what a resource provider trusts because only ARM can have sent it, and the caller's token.
func onlyFromARM(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		switch {
		case lower == strings.ToLower(armheader.ClientRequestID):
		case lower == "authorization", lower == "referer", lower == "azure-asyncnotificationuri",
			strings.HasPrefix(lower, "x-ms-arm-"), strings.HasPrefix(lower, "x-ms-client-"),
			strings.HasPrefix(lower, "x-ms-home-"), strings.HasPrefix(lower, "x-ms-identity-"):
			header.Del(name)
		}
	}
}

// addIdentity tells the resource provider who calls, and that it is ARM that says so.
func (d *Door) addIdentity(header http.Header, r *request) {
	if text := d.ownToken(); text != "" {
		header.Set("Authorization", "Bearer "+text)
	}
	header.Set(armheader.CorrelationID, r.correlation)
	header.Set(armheader.HomeTenantID, r.caller.TenantID)
	header.Set(armheader.ClientTenantID, r.caller.TenantID)
	header.Set(armheader.ClientObjectID, r.caller.ObjectID)
	header.Set(armheader.ClientPrincipalName, r.caller.Name)
	header.Set(armheader.ClientAppID, r.caller.ClientID)
}

// ownToken is the door's token at the resource provider, until shortly before it ends.
type ownToken struct {
	mu    sync.Mutex
	text  string
	until time.Time
}

// renewBefore is how long before its end a token is not used any more.
const renewBefore = 5 * time.Minute

func (d *Door) ownToken() string {
	if d.options.Own == nil {
		return ""
	}
	d.own.mu.Lock()
	defer d.own.mu.Unlock()
	now := time.Now()
	if now.Before(d.own.until) {
		return d.own.text
	}
	text, err := d.options.Tokens.IssueTo(d.options.Own, d.options.ProviderAudience)
	if err != nil {
		d.options.Log.Error("issuing the door's own token", "error", err)
		return ""
	}
	d.own.text, d.own.until = text, now.Add(token.Lifetime-renewBefore)
	return text
}

// identityURL is where the managed identities data plane would give the credentials of a resource's identities. Nothing
// answers there in a local region; the provider stores it.
func (d *Door) identityURL(r *request) string {
	return d.options.PublicURL + r.URL.Path + "/credentials/v2/identities?tid=" + url.QueryEscape(r.caller.TenantID)
}

// systemData is the value of x-ms-arm-resource-system-data. The provider keeps the creation of a resource that exists.
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

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// correlationID is the caller's, if it is a UUID, or a new one.
func correlationID(r *http.Request) string {
	if given := r.Header.Get(armheader.CorrelationID); uuid.MatchString(given) {
		return given
	}
	return newUUID()
}

// newUUID makes a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// maxProviderAnswer bounds an answer of the resource provider that the door reads itself.
const maxProviderAnswer = 16 << 20

// ask sends a request of the door's own to the resource provider, as ARM does for registrations, deletions of resource
// groups and lists of resources. A status of 400 or more is an error, an *answer with that status.
func (d *Door) ask(ctx context.Context, r *request, method, pathAndQuery string, body any) ([]byte, *http.Response, error) {
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
		d.options.Log.Error("the frontend did not answer", "method", method, "path", out.URL.Path, "error", err)
		return nil, nil, unavailable(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxProviderAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the resource provider's answer: %w", err)
	}
	if response.StatusCode >= 400 {
		return nil, response, providerError(response.StatusCode, data)
	}
	return data, response, nil
}

func providerError(status int, body []byte) *answer {
	var decoded struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Target  string            `json:"target"`
			Details []json.RawMessage `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &decoded) != nil || decoded.Error.Code == "" {
		return refuse(status, "ResourceProviderError", "The resource provider answered with status %d.", status)
	}
	refused := refuse(status, decoded.Error.Code, "%s", decoded.Error.Message)
	refused.target, refused.details = decoded.Error.Target, decoded.Error.Details
	return refused
}
