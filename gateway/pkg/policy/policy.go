// Package policy decides whether a request of an access session is forwarded to the API server. It is a pure function of the mode of the
// session and of what an API server will understand by the request, which package k8s.io/apiserver determines: the verb, the API group, the
// resource and the subresource. The method alone means nothing; a command in a pod over a WebSocket is a GET.
//
// Whatever no rule permits is refused. The rights of the session's certificate are a second limit that the API server enforces.
package policy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
)

// Request is what an API server understands by a request.
type Request struct {
	// IsResource is false for paths such as /version. The fields below are empty then, except Verb and Path.
	IsResource bool
	// Verb is get, list, watch, create and so on; for a path that is no resource, the method in lower case.
	Verb                         string
	Group, Resource, Subresource string
	Namespace, Name              string
	Method, Path                 string
	// Follows is set if the response may not end by itself: a watch, a log that is followed, a proxy, or an upgraded connection.
	Follows bool
}

// Kind returns the resource with its group and subresource, for example deployments.apps/scale; for other requests, "path".
func (r *Request) Kind() string {
	if !r.IsResource {
		return "path"
	}
	kind := r.Resource
	if r.Group != "" {
		kind += "." + r.Group
	}
	if r.Subresource != "" {
		kind += "/" + r.Subresource
	}
	return kind
}

// Object returns the namespace and the name of the object; for other requests, the path.
func (r *Request) Object() string {
	if !r.IsResource {
		return r.Path
	}
	object := ""
	for _, part := range []string{r.Namespace, r.Name} {
		if part != "" {
			object += "/" + part
		}
	}
	return object
}

// Changes reports whether the request may change something in the cluster.
func (r *Request) Changes() bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

var resolver = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Parse returns what an API server understands by a request for a path. encoded is the part of the encoded path that belongs to the API server,
// which must not be ambiguous. It returns an error for a request that no API server understands.
func Parse(r *http.Request, encoded string) (*Request, error) {
	path, err := decodePath(encoded)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(methods, r.Method) {
		return nil, invalid("API servers do not have the method of the request.")
	}
	if strings.Contains(r.URL.RawQuery, ";") {
		return nil, invalid("The query contains a semicolon.") // servers disagree about it
	}
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = path, ""
	info, err := resolver.NewRequestInfo(inner)
	if err != nil {
		return nil, invalid("The path is not that of a request to an API server.")
	}
	parsed := &Request{IsResource: info.IsResourceRequest, Verb: info.Verb, Method: r.Method, Path: info.Path}
	if info.IsResourceRequest {
		parsed.Group, parsed.Resource, parsed.Subresource, parsed.Namespace, parsed.Name = info.APIGroup, info.Resource, info.Subresource, info.Namespace, info.Name
		parsed.Follows = info.Verb == "watch" || info.Subresource == "log" && IsTrue(r.URL.Query().Get("follow")) || info.Subresource == proxies || parsed.protocols() != nil
		if len(info.Parts) > 3 && info.Subresource != proxies {
			// API servers ignore further parts of some paths, and hand those of others to what serves the subresource.
			return nil, invalid("The path has more parts than a subresource.")
		}
	}
	return parsed, nil
}

// methods are the methods of API servers. Methods are case-sensitive (RFC 9110, section 9.1).
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// IsTrue reports whether an API server may read a parameter as true.
func IsTrue(value string) bool {
	switch strings.ToLower(value) {
	case "", "0", "f", "false":
		return false
	}
	return true
}

// pathCharacters are the characters that a path may have without an encoding (RFC 3986, section 3.3).
const pathCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:@!$&'()*+,=/"

// decodePath returns an encoded path without its encoding, or an error for one that two servers may understand differently. Names of objects have any character
// but a slash and a percent sign, and are neither "." nor ".." (Kubernetes: path segment names). Clients encode every character that is not in
// pathCharacters, and may encode others.
func decodePath(encoded string) (string, error) {
	if !strings.HasPrefix(encoded, "/") {
		return "", invalid("The path does not begin with a slash.")
	}
	if strings.Contains(encoded, "//") {
		return "", invalid("The path has an empty part.")
	}
	for n := range len(encoded) {
		if c := encoded[n]; c != '%' && strings.IndexByte(pathCharacters, c) < 0 {
			return "", invalid("The path has a character that must be encoded.")
		}
	}
	path, err := url.PathUnescape(encoded)
	if err != nil || !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return "", invalid("The path is not encoded as UTF-8 without control characters.")
	}
	// Each escape begins after a percent sign. A slash or a percent sign could be decoded once more behind the gateway.
	for n, part := range strings.Split(encoded, "%") {
		if n > 0 && (part[:2] == "25" || strings.EqualFold(part[:2], "2f")) {
			return "", invalid("The path has an encoded slash or percent sign, which names do not have.")
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return "", invalid("The path has the part %q.", part)
		}
	}
	return path, nil
}

// IsDiscovery reports whether a path is one of those by which clients discover the resources of an API server: /api, /apis, an API group or
// one of its versions.
func IsDiscovery(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}

// CheckHeaders returns an error for a request that asks for another identity, or that is meant for a proxy.
func CheckHeaders(r *http.Request) error {
	if r.Method == http.MethodConnect || r.URL.IsAbs() || r.URL.Host != "" {
		return invalid("The session gateway is no proxy.")
	}
	for name := range r.Header {
		if len(name) >= len(impersonation) && strings.EqualFold(name[:len(impersonation)], impersonation) {
			return refused("The session gateway does not permit impersonation: remove --as, --as-group and --as-uid, or the header %s.", name)
		}
	}
	return nil
}

// impersonation is the prefix of the headers with which a client asks an API server to act as another user. A request without them would have
// another meaning, so that they are refused and not removed.
const impersonation = "Impersonate-"

// selfReviews are the resources by which clients ask about their own rights. They are created, and nothing is stored.
var selfReviews = map[string][]string{
	"authorization.k8s.io":  {"selfsubjectaccessreviews", "selfsubjectrulesreviews"},
	"authentication.k8s.io": {"selfsubjectreviews"},
}

// readPaths are the paths that are no resources and can be read, with the paths below them.
var readPaths = []string{"/api", "/apis", "/openapi", "/version", "/livez", "/readyz", "/healthz", "/metrics"}

// connects are the subresources with which clients act in a pod or reach its network.
var connects = []string{"attach", "ephemeralcontainers", "exec", "portforward", proxies}

// proxies is the subresource of pods, services and nodes by which an API server forwards HTTP requests.
const proxies = "proxy"

// Decide returns an error unless a session with a mode may send a request. readable is what the mode read may read. Upgrade decides about upgrades.
func Decide(mode adminv1.AccessMode, readable readrules.Rules, r *Request) error {
	switch mode {
	case adminv1.AccessRead:
		return decideRead(readable, r)
	case adminv1.AccessAdmin:
		return decideAdmin(r)
	}
	return refused("Sessions of the mode %q are not supported.", mode)
}

func decideRead(readable readrules.Rules, r *Request) error {
	if !r.IsResource {
		for _, path := range readPaths {
			if r.Verb == "get" && (r.Path == path || strings.HasPrefix(r.Path, path+"/")) {
				return nil
			}
		}
		return refused("The mode read does not permit %s of this path.", r.Verb)
	}
	// The verb watch can also be in the path, whatever the method.
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && readable.Permits(r.Verb, r.Group, r.Resource, r.Subresource) {
		return nil
	}
	if r.Verb == "create" && r.Subresource == "" && r.Namespace == "" && r.Name == "" {
		for _, resource := range selfReviews[r.Group] {
			if r.Resource == resource {
				return nil
			}
		}
	}
	if slices.Contains(connects, r.Subresource) {
		return refused("The mode read does not permit %s of %s: it has no commands in pods, no attach, no port forwarding and no proxies.", r.Verb, r.Kind())
	}
	return refused("The mode read does not permit %s of %s.", r.Verb, r.Kind())
}

// decideAdmin permits everything but what would pass by the audit: the API of a node runs commands in pods for requests that change something.
func decideAdmin(r *Request) error {
	switch {
	case r.IsResource && r.Verb == proxies:
		return refused("API servers do not have the verb proxy any more: use the subresource proxy.")
	case r.IsResource && r.Resource == "nodes" && r.Subresource == proxies && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return refused("The mode admin permits only GET and HEAD of nodes/proxy: the API of a node runs commands without a record of them. Use kubectl exec.")
	}
	return nil
}

func refused(format string, args ...any) error {
	return apierror.New(apierror.PermissionDenied, "%s", fmt.Sprintf(format, args...))
}

func invalid(format string, args ...any) error {
	return apierror.New(apierror.Invalid, "%s", fmt.Sprintf(format, args...))
}
