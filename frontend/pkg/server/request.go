package server

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// request is a request with the values that layers and stages add.
type request struct {
	http *http.Request
	w    *response
	// query is the parsed query string, without the parameters that are malformed.
	query url.Values
	// malformedQuery is set if a parameter is malformed.
	malformedQuery bool

	match match

	requestID     string
	correlationID string
	// span identifies the request's span, if it has one.
	span trace.SpanContext
	// The subscription's tenant, and the caller's own tenant and object ID, as ARM authenticated them.
	tenantID       string
	clientTenantID string
	clientID       string
	// sender is the authenticated sender of the request, normally ARM.
	sender authn.Caller

	// body is the content of a PUT, PATCH or POST.
	body       []byte
	systemData *hub.SystemData
	// resourceID is the ID of the resource in the path. Its casing is that of the stored resources, as far as they have been
	// read, and the caller's for all others; see adopt.
	resourceID string
	// invalidName is set if the name of the resource in the path, or of its cluster, is one that no resource can have;
	// invalidParent if that of the cluster is.
	invalidName, invalidParent bool
	// version is nil on routes without an api-version of the provider.
	version *versions.Version
	// subscription is nil on routes outside of subscriptions.
	subscription *hub.Subscription
	// clusterQuota is the number of clusters that the subscription may have, and clusterQuotaSet is set if an engineer has set
	// it. Only writes need them: those of a read may be old.
	clusterQuota    int
	clusterQuotaSet bool
	// operationID is set after an operation was accepted, for the log.
	operationID string
	// cause is the error for the log.
	cause error
	// release returns the seat of the request; nil until it has one.
	release func()
	// answered is set when the handling ends without a panic.
	answered bool
}

// maxHeader is the longest ID that is copied from a header into logs and documents.
const maxHeader = 256

// identify finds the request's route and sets the IDs of the request and its caller.
func (rq *request) identify(routes []*route) {
	rq.match = find(routes, rq.http.Method, rq.http.URL)
	header := rq.http.Header
	rq.requestID = uuid.NewString()
	rq.correlationID = header.Get(armheader.CorrelationID)
	if rq.correlationID == "" || len(rq.correlationID) > maxHeader {
		rq.correlationID = uuid.NewString()
	}
	rq.tenantID, rq.clientTenantID, rq.clientID = header.Get(armheader.HomeTenantID), header.Get(armheader.ClientTenantID), header.Get(armheader.ClientObjectID)
	answer := rq.w.Header()
	answer.Set(armheader.RequestID, rq.requestID)
	answer.Set(armheader.CorrelationID, rq.correlationID)
	if clientRequestID := header.Get(armheader.ClientRequestID); clientRequestID != "" && len(clientRequestID) <= maxHeader &&
		asciifold.Equal(header.Get(armheader.ReturnClientRequestID), "true") {
		answer.Set(armheader.ClientRequestID, clientRequestID)
	}
	var err error
	rq.query, err = url.ParseQuery(rq.http.URL.RawQuery)
	rq.malformedQuery = err != nil
}

func (rq *request) param(p param) string { return rq.match.params[p] }

// queryValue returns the first value of a query parameter, or the empty string. The name is compared without case.
func (rq *request) queryValue(name string) string {
	values := rq.queryValues(name)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// queryValues returns all values of a query parameter, those with the exact casing of the name first.
func (rq *request) queryValues(name string) []string {
	values := slices.Clone(rq.query[name])
	for _, key := range slices.Sorted(maps.Keys(rq.query)) {
		if key != name && asciifold.Equal(key, name) {
			values = append(values, rq.query[key]...)
		}
	}
	return values
}

// hasQuery reports whether a query parameter is present, possibly empty.
func (rq *request) hasQuery(name string) bool {
	for key := range rq.query {
		if asciifold.Equal(key, name) {
			return true
		}
	}
	return false
}

// writes reports whether the request asks for a change.
func (rq *request) writes() bool {
	return rq.http.Method != http.MethodGet && rq.http.Method != http.MethodHead
}

// key returns the key of the document of the resource in the path.
func (rq *request) key() database.Key {
	return database.Key{SubscriptionID: strings.ToLower(rq.param(subscriptionParam)), ResourceID: rq.resourceID}
}

// isChild reports whether the resource in the path belongs to a cluster.
func (rq *request) isChild() bool { return rq.param(childParam) != "" }

// name returns the name of the resource in the path.
func (rq *request) name() string {
	if rq.isChild() {
		return rq.param(childParam)
	}
	return rq.param(clusterParam)
}

// clusterID returns the ID of the cluster in the path, in the casing of resourceID.
func (rq *request) clusterID() string {
	return "/subscriptions/" + rq.param(subscriptionParam) + "/resourceGroups/" + rq.param(resourceGroupParam) + clusters + "/" + rq.param(clusterParam)
}

// composeResourceID sets the ID of the resource in the path from the path's parameters.
func (rq *request) composeResourceID() {
	rq.resourceID = ""
	if rq.param(clusterParam) != "" {
		rq.resourceID = rq.clusterID()
	}
	if rq.isChild() {
		rq.resourceID += "/" + rq.match.route.before(childParam) + "/" + rq.param(childParam)
	}
}

// adopt gives the path's parameters the casing of the ID of a stored resource: of the subscription, the cluster or its child
// in the path. ARM IDs have no case, and every ID that the service shows, stores or sends has the casing of the creation.
func (rq *request) adopt(id string) {
	if rest, within := strings.CutPrefix(rq.resourceID, id); within && (rest == "" || rest[0] == '/') {
		return
	}
	parts := strings.Split(id, "/")
	for _, of := range [...]struct {
		param param
		at    int
	}{{subscriptionParam, 2}, {resourceGroupParam, 4}, {clusterParam, 8}, {childParam, 10}} {
		if of.at < len(parts) && rq.param(of.param) != "" {
			rq.match.params[of.param] = parts[of.at]
		}
	}
	rq.composeResourceID()
}

// printable returns an ID that may contain any bytes of the path in a form for responses and logs.
func (rq *request) printable(id string) string {
	return truncated(strings.ToValidUTF8(id, "\uFFFD"))
}

// object decodes the values of the body that a form has.
func (rq *request) object(form *wire.Form) (map[string]any, error) {
	if !utf8.Valid(rq.body) {
		return nil, apierror.New(apierror.Invalid, "The request content is not valid: it is not UTF-8.")
	}
	// RFC 8259, section 8.1: parsers may ignore a byte order mark, which some editors write.
	fields, err := wire.Parse(bytes.TrimPrefix(rq.body, []byte("\uFEFF")), form)
	if err != nil {
		return nil, refusedBody(err)
	}
	return fields, nil
}

// refusedBody returns the error of a request whose body was not decoded.
func refusedBody(err error) error {
	if err == wire.ErrNotObject {
		return apierror.New(apierror.InvalidResource, "The request content must be a JSON object.")
	}
	if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) {
		return apierror.InvalidFields([]apierror.Violation{{Field: duplicate.Field, Message: wire.DuplicateMessage}})
	}
	return apierror.New(apierror.Invalid, "The request content is not valid: %s.", err)
}

// base returns the scheme and host at which ARM's clients reach this API. It uses Referer, which ARM sets to its
// client's URL, or else the request's own headers.
func (rq *request) base() *url.URL {
	if referer := rq.referer(); referer != nil {
		return &url.URL{Scheme: referer.Scheme, Host: referer.Host}
	}
	base := &url.URL{Scheme: "http", Host: rq.http.Host}
	if rq.http.TLS != nil {
		base.Scheme = "https"
	}
	if proto := asciifold.Lower(rq.forwarded("X-Forwarded-Proto")); proto == "http" || proto == "https" {
		base.Scheme = proto
	}
	if host := rq.forwarded("X-Forwarded-Host"); isHost(host) {
		base.Host = host
	}
	return base
}

// forwarded returns the value that the first proxy set in a header with a list.
func (rq *request) forwarded(header string) string {
	first, _, _ := strings.Cut(rq.http.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// referer returns the URL that the client sent to ARM, or nil if it is missing or invalid.
func (rq *request) referer() *url.URL {
	text := rq.http.Header.Get("Referer")
	if text == "" || len(text) > 8192 {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || !isHost(u.Host) {
		return nil
	}
	return u
}

// isHost reports whether host is a name or an address, with an optional port, in the form of a URL.
func isHost(host string) bool {
	if len(host) > 255 {
		return false
	}
	rest := ""
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, rest, ok = strings.Cut(inner, "]"); !ok {
			return false
		}
		if address, err := netip.ParseAddr(inner); err != nil || !address.Is6() || address.Zone() != "" {
			return false
		}
	} else {
		if colon := strings.IndexByte(host, ':'); colon >= 0 {
			host, rest = host[:colon], host[colon:]
		}
		if host == "" || strings.ContainsFunc(host, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-')
		}) {
			return false
		}
	}
	if rest == "" {
		return true
	}
	port, ok := strings.CutPrefix(rest, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil && port[0] != '+'
}
