package policy

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
)

// parse parses a request with a method and a target.
func parse(t testing.TB, method, target string) *Request {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	parsed, err := Parse(r, r.URL.EscapedPath())
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return parsed
}

func TestRequestsAreUnderstoodAsByAPIServers(t *testing.T) {
	for target, want := range map[string]Request{
		"/api/v1/namespaces/a/pods":                           {IsResource: true, Verb: "list", Resource: "pods", Namespace: "a"},
		"/api/v1/namespaces/a/pods?watch=1":                   {IsResource: true, Verb: "watch", Resource: "pods", Namespace: "a", Follows: true},
		"/api/v1/namespaces/a/pods?watch=0":                   {IsResource: true, Verb: "list", Resource: "pods", Namespace: "a"},
		"/api/v1/namespaces/a/pods?watch=1&limit=x":           {IsResource: true, Verb: "watch", Resource: "pods", Namespace: "a", Follows: true},
		"/api/v1/watch/pods":                                  {IsResource: true, Verb: "watch", Resource: "pods", Follows: true},
		"/api/v1/namespaces/a/pods/b/log":                     {IsResource: true, Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a", Name: "b"},
		"/api/v1/namespaces/a/pods/b/log?follow=true":         {IsResource: true, Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a", Name: "b", Follows: true},
		"/api/v1/namespaces/a/pods/b/exec?command=ls":         {IsResource: true, Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "a", Name: "b", Follows: true},
		"/api/v1/namespaces/a/pods/b/portforward":             {IsResource: true, Verb: "get", Resource: "pods", Subresource: "portforward", Namespace: "a", Name: "b", Follows: true},
		"/api/v1/nodes/n/proxy/logs/":                         {IsResource: true, Verb: "get", Resource: "nodes", Subresource: "proxy", Name: "n", Follows: true},
		"/api/v1/namespaces/a":                                {IsResource: true, Verb: "get", Resource: "namespaces", Namespace: "a", Name: "a"},
		"/apis/apps/v1/namespaces/a/deployments/b/scale":      {IsResource: true, Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "a", Name: "b"},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/a:b": {IsResource: true, Verb: "get", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "a:b"},
		"/version": {Verb: "get"},
		"/apis":    {Verb: "get"},
	} {
		got := parse(t, http.MethodGet, target)
		want.Method, want.Path = http.MethodGet, strings.SplitN(target, "?", 2)[0]
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s: %s", target, diff)
		}
	}
}

func TestDiscoveryIsDistinguishedFromResources(t *testing.T) {
	for path, want := range map[string]bool{"/api": true, "/api/v1": true, "/apis": true, "/apis/": true, "/apis/apps": true, "/apis/apps/v1": true, "/api/v1/pods": false,
		"/apis/apps/v1/deployments": false, "/openapi/v3": false, "/": false, "": false, "/apiserver": false} {
		if got := IsDiscovery(path); got != want {
			t.Errorf("%q: %t, want %t", path, got, want)
		}
	}
}

func TestReadPermitsSelfReviewsOnly(t *testing.T) {
	for target, permitted := range map[string]bool{
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":               true,
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":                true,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":                    true,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":                   false,
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews": false,
		"/apis/authentication.k8s.io/v1/tokenreviews":                          false,
		"/apis/authorization.k8s.io/v1/namespaces/a/selfsubjectaccessreviews":  false,
		"/apis/apps/v1/namespaces/a/deployments":                               false,
	} {
		if err := Decide(adminv1.AccessRead, readrules.HostedCluster(), parse(t, http.MethodPost, target)); (err == nil) != permitted {
			t.Errorf("POST %s: %v", target, err)
		}
	}
}

func TestUnknownModePermitsNothing(t *testing.T) {
	for _, mode := range []adminv1.AccessMode{"", "write", "Read", "Admin"} {
		if Decide(mode, readrules.HostedCluster(), parse(t, http.MethodGet, "/api/v1/pods")) == nil {
			t.Errorf("the mode %q is supported", mode)
		}
	}
}

func TestAdminPermitsAllButUnrecordedCommands(t *testing.T) {
	for target, permitted := range map[string]bool{
		"GET /api/v1/secrets":                                    true,
		"DELETE /api/v1/namespaces/a/pods":                       true,
		"POST /api/v1/namespaces/a/serviceaccounts/b/token":      true,
		"PATCH /api/v1/namespaces/a/pods/b/ephemeralcontainers":  true,
		"POST /api/v1/namespaces/a/services/b:80/proxy/x/y":      true,
		"GET /api/v1/nodes/n/proxy/metrics":                      true,
		"POST /api/v1/nodes/n/proxy/run/a/b/c?cmd=id":            false,
		"PUT /api/v1/nodes/n/proxy":                              false,
		"GET /api/v1/proxy/nodes/n/run":                          false,
		"GET /debug/pprof/heap":                                  true,
		"PUT /apis/example.com/v1/namespaces/a/widgets/b/status": true,
	} {
		method, path, _ := strings.Cut(target, " ")
		if err := Decide(adminv1.AccessAdmin, nil, parse(t, method, path)); (err == nil) != permitted {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// webSocket returns the handshake of a WebSocket.
func webSocket(target, protocols string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {protocols}}
	return r
}

const (
	execPath    = "/api/v1/namespaces/a/pods/b/exec?command=id"
	forwardPath = "/api/v1/namespaces/a/pods/b/portforward"
	// onlyCommands is the error for a client of a command without a protocol that is forwarded.
	onlyCommands = "The session gateway forwards pods/exec only over a WebSocket with the protocol v5.channel.k8s.io or v4.channel.k8s.io. Use kubectl 1.31 or later, or a Kubernetes client that offers one of them."
)

func TestUpgradeDependsOnResource(t *testing.T) {
	set := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	for name, tc := range map[string]struct {
		target, protocols string
		change            func(r *http.Request)
		want              Protocol
		refusal           string
	}{
		"a command":                   {execPath, "v5.channel.k8s.io", nil, RemoteCommand, ""},
		"an attachment":               {"/api/v1/namespaces/a/pods/b/attach", "v4.channel.k8s.io, v5.channel.k8s.io", nil, RemoteCommand, ""},
		"forwarded ports":             {forwardPath, "SPDY/3.1+portforward.k8s.io", nil, PortForward, ""},
		"an extension":                {execPath, "v5.channel.k8s.io", set("Sec-Websocket-Extensions", "permessage-deflate"), RemoteCommand, ""},
		"keep-alive":                  {execPath, "v5.channel.k8s.io", set("Connection", "keep-alive, Upgrade"), RemoteCommand, ""},
		"no upgrade":                  {"/api/v1/pods", "", func(r *http.Request) { r.Header = http.Header{} }, "", ""},
		"a command without upgrade":   {execPath, "", func(r *http.Request) { r.Header = http.Header{} }, "", onlyCommands},
		"SPDY":                        {execPath, "v5.channel.k8s.io", set("Upgrade", "SPDY/3.1"), "", "not forward upgrades to SPDY"},
		"SPDY and WebSocket":          {execPath, "v5.channel.k8s.io", set("Upgrade", "websocket", "SPDY/3.1"), "", "not forward upgrades to SPDY"},
		"a list with SPDY":            {execPath, "v5.channel.k8s.io", set("Upgrade", "websocket, SPDY/3.1"), "", "not forward upgrades to SPDY"},
		"HTTP/2":                      {execPath, "v5.channel.k8s.io", set("Upgrade", "h2c"), "", "another protocol"},
		"two upgrades":                {execPath, "v5.channel.k8s.io", set("Upgrade", "websocket", "websocket"), "", "Upgrade exactly once"},
		"no connection":               {execPath, "v5.channel.k8s.io", set("Connection"), "", "another protocol"},
		"another token":               {execPath, "v5.channel.k8s.io", set("Connection", "Upgrade, Authorization"), "", "header Connection"},
		"a second connection":         {execPath, "v5.channel.k8s.io", set("Connection", "Upgrade", "close"), "", "header Connection"},
		"two keys":                    {execPath, "v5.channel.k8s.io", set("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="), "", "Sec-Websocket-Key exactly once"},
		"a short key":                 {execPath, "v5.channel.k8s.io", set("Sec-Websocket-Key", "dGhl"), "", "Sec-WebSocket-Key"},
		"another version":             {execPath, "v5.channel.k8s.io", set("Sec-Websocket-Version", "8"), "", "must be 13"},
		"an older command":            {execPath, "v4.channel.k8s.io", nil, Channels, ""},
		"an older port":               {forwardPath, "v5.channel.k8s.io, v4.channel.k8s.io", nil, Channels, ""},
		"both for a port":             {forwardPath, "v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io", nil, PortForward, ""},
		"two headers":                 {execPath, "", set("Sec-Websocket-Protocol", "v4.channel.k8s.io", "v5.channel.k8s.io"), RemoteCommand, ""},
		"a list in two headers":       {execPath, "", set("Sec-Websocket-Protocol", "a,b", "v3.channel.k8s.io,v4.channel.k8s.io"), Channels, ""},
		"old protocols":               {execPath, "v3.channel.k8s.io, channel.k8s.io, v4.base64.channel.k8s.io", nil, "", onlyCommands},
		"another case":                {execPath, "V4.channel.k8s.io", nil, "", onlyCommands},
		"a prefix":                    {execPath, "v4.channel.k8s.io.example.com", nil, "", onlyCommands},
		"another protocol":            {forwardPath, "v5.channel.k8s.io", nil, "", "pods/portforward only over a WebSocket with the protocol SPDY/3.1+portforward.k8s.io or v4.channel.k8s.io. Use"},
		"no protocol":                 {execPath, "", func(r *http.Request) { r.Header.Del("Sec-Websocket-Protocol") }, "", onlyCommands},
		"a token as protocol":         {execPath, "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0", nil, "", "only in the header Authorization"},
		"a body":                      {execPath, "v5.channel.k8s.io", func(r *http.Request) { r.ContentLength = 5 }, "", "body"},
		"a body without a length":     {execPath, "v5.channel.k8s.io", func(r *http.Request) { r.ContentLength, r.TransferEncoding = -1, []string{"chunked"} }, "", "body"},
		"an expectation":              {execPath, "v5.channel.k8s.io", set("Expect", "100-continue"), "", "body"},
		"another method":              {execPath, "v5.channel.k8s.io", func(r *http.Request) { r.Method = http.MethodPost }, "", "GET of HTTP/1.1"},
		"HTTP/1.0":                    {execPath, "v5.channel.k8s.io", func(r *http.Request) { r.ProtoMinor = 0 }, "", "GET of HTTP/1.1"},
		"extended CONNECT":            {execPath, "v5.channel.k8s.io", func(r *http.Request) { r.ProtoMajor, r.Header[":protocol"] = 2, []string{"websocket"} }, "", "GET of HTTP/1.1"},
		"a watch":                     {"/api/v1/pods?watch=1", "", nil, "", "watch of pods"},
		"a log":                       {"/api/v1/namespaces/a/pods/b/log?follow=1", "binary.k8s.io", nil, "", "get of pods/log"},
		"a proxy of a pod":            {"/api/v1/namespaces/a/pods/b/proxy/", "v5.channel.k8s.io", nil, "", "get of pods/proxy"},
		"a proxy of a node":           {"/api/v1/nodes/n/proxy/exec/a/b/c?command=id", "v5.channel.k8s.io", nil, "", "get of nodes/proxy"},
		"a resource of another group": {"/apis/example.com/v1/namespaces/a/pods/b/exec", "v5.channel.k8s.io", nil, "", "get of pods.example.com/exec"},
		"a path":                      {"/version", "v5.channel.k8s.io", nil, "", "get of path"},
	} {
		t.Run(name, func(t *testing.T) {
			r := webSocket(tc.target, tc.protocols)
			if tc.change != nil {
				tc.change(r)
			}
			parsed, err := Parse(r, r.URL.EscapedPath())
			if err != nil {
				t.Fatal(err)
			}
			got, err := Upgrade(r, parsed)
			if got := fmt.Sprint(err); (err != nil) != (tc.refusal != "") || !strings.Contains(got, tc.refusal) {
				t.Errorf("%s, want %q", got, tc.refusal)
			}
			if err == nil && got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestNamesAreDecoded parses paths with names as clients encode them, and paths that two servers may understand differently.
func TestNamesAreDecoded(t *testing.T) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
	for encoded, want := range map[string]string{
		"team%20a": "team a", "%C3%89quipe%20A": "Équipe A", "system%3Anode": "system:node", "system:node": "system:node", "a%40b.c": "a@b.c", "a%5Cb": `a\b`, "a%3Fb%23c": "a?b#c", "a%2Bb": "a+b",
		"%61": "a", "a%7e": "a~", "a%2Db%2ec": "a-b.c", "%63lusterroles": "clusterroles",
		"a%2fb": "", "a%2Fb": "", "%2e%2e": "", "%2E": "", "a%25": "", "a%252f": "", "a%00": "", "a%0a": "", "a%7F": "", "a%C2%85": "", "%C3": "", "%ff": "", "%": "", "%2": "", "%zz": "", "a b": "", "É": "", "a\\b": "", "..": "", ".": "",
	} {
		parsed, err := Parse(&http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{}}, roles+encoded)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is the name %q", encoded, parsed.Name)
		case want != "" && (err != nil || parsed.Name != want || parsed.Resource != "clusterroles" || parsed.Subresource != ""):
			t.Errorf("%s: %+v, %v, want %q", encoded, parsed, err, want)
		}
	}
}

// permitted are the methods with which the mode read forwards requests for resources.
var permitted = []string{http.MethodGet, http.MethodHead, http.MethodPost}

// FuzzForwardedRequests sends arbitrary paths, queries and methods. What is forwarded must be a request that an API server understands in
// only one way, whatever it decodes or cleans, and it must not be about a Secret, act in a pod, or change something.
func FuzzForwardedRequests(f *testing.F) {
	for _, seed := range []string{"/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/configmaps/../secrets", "/api/v1//secrets", "/api/v1/namespaces/a%2fsecrets", "/api/v1/namespaces/a/pods/b/exec",
		"/api/v1/watch/namespaces/a/secrets", "/api/v1/watch/namespaces", "/api/v1/proxy/nodes/n", "/api/v1/nodes/n/proxy/logs", "/version/../api/v1/secrets", "/apis/apps/v1/deployments/./x", "/api/v1/namespaces/a/secrets/",
		"/API/v1/secrets", "/api/v1/namespaces/a/pods/b/log", "/healthz/etcd", "/openapi/v3/apis/apps/v1", "/api/v1/namespaces/secrets/status", "/api/v1/namespaces/x/status/y/secrets", "\\api\\v1", "/api/v1/namespaces/a%20b/pods", "/api/v1/namespaces/%C3%89/pods/a%3Ab", "/%61pi/v1/namespaces/a/%73ecrets/b"} {
		for _, method := range []string{"GET", "POST", "DELETE", "HEAD", "OPTIONS", "get"} {
			f.Add(method, seed, "watch=true")
		}
	}
	servers := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	f.Fuzz(func(t *testing.T, method, encoded, query string) {
		target, err := url.ParseRequestURI(encoded)
		if err != nil || target.IsAbs() || target.Host != "" {
			return
		}
		target.RawQuery = query
		r := &http.Request{Method: method, URL: target, Header: http.Header{}}
		parsed, err := Parse(r, target.EscapedPath())
		if err != nil || Decide(adminv1.AccessRead, readrules.HostedCluster(), parsed) != nil {
			return
		}
		forwarded := target.EscapedPath()
		if sent := (&url.URL{Path: parsed.Path, RawPath: forwarded}).EscapedPath(); sent != forwarded {
			t.Fatalf("%q is sent as %q", forwarded, sent)
		}
		decoded, err := url.PathUnescape(forwarded)
		if again, againErr := url.PathUnescape(decoded); err != nil || againErr != nil || again != decoded || strings.Count(decoded, "/") != strings.Count(forwarded, "/") {
			t.Fatalf("%q is decoded to %q and %q", forwarded, decoded, again)
		}
		if cleaned := path.Clean(decoded); cleaned != strings.TrimSuffix(decoded, "/") && decoded != "/" {
			t.Fatalf("%q is cleaned to %q", forwarded, cleaned)
		}
		if !slices.Contains(permitted, method) {
			t.Fatalf("the method %q is forwarded", method)
		}
		info, err := servers.NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: decoded, RawQuery: query}})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !info.IsResourceRequest:
			if method != http.MethodGet {
				t.Fatalf("%s %s is forwarded", method, forwarded)
			}
		case info.Resource == "secrets", slices.Contains([]string{"exec", "attach", "portforward", "proxy", "token", "ephemeralcontainers"}, info.Subresource), info.Verb == "proxy":
			t.Fatalf("%s of %s/%s is forwarded", info.Verb, info.Resource, info.Subresource)
		case method == http.MethodPost && !strings.HasPrefix(info.Resource, "selfsubject"):
			t.Fatalf("a creation of %s is forwarded", info.Resource)
		}
	})
}

// FuzzUpgrades parses arbitrary bytes as a request. Whatever is forwarded without an upgrade names none in any spelling, and whatever is forwarded
// with one is the only handshake that both servers can understand.
func FuzzUpgrades(f *testing.F) {
	const handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, seed := range []string{
		"GET " + execPath + " HTTP/1.1\r\nHost: h\r\n" + handshake + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		"GET " + forwardPath + " HTTP/1.1\r\nHost: h\r\n" + handshake + "Sec-WebSocket-Protocol: a, SPDY/3.1+portforward.k8s.io\r\n\r\n",
		"GET " + execPath + " HTTP/1.1\r\nHost: h\r\n" + handshake + "Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		"GET " + execPath + " HTTP/1.1\r\nHost: h\r\n" + handshake + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nContent-Length: 5\r\n\r\nhello",
		"GET " + execPath + " HTTP/1.1\r\nHost: h\r\n" + handshake + "Upgrade: SPDY/3.1\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		"POST " + execPath + " HTTP/1.1\r\nHost: h\r\nConnection: uPgRaDe\r\nUpgrade: spdy/3.1\r\nContent-Length: 0\r\n\r\n",
		"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive,\tUpgrade\r\nUpgrade:\r\n\r\n",
		"GET /api/v1/pods HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\nConnection: close\r\n\r\n0\r\n\r\n",
		"GET /version HTTP/1.0\r\nConnection : Upgrade\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(content)))
		if err != nil {
			return
		}
		parsed, err := Parse(r, r.URL.EscapedPath())
		if err != nil || Decide(adminv1.AccessAdmin, nil, parsed) != nil || CheckHeaders(r) != nil {
			return
		}
		protocol, err := Upgrade(r, parsed)
		if err != nil {
			return
		}
		upgrades := parsed.IsResource && parsed.Group == "" && parsed.Resource == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, parsed.Subresource)
		if upgrades != (protocol != "") {
			t.Fatalf("%s has the protocol %q", parsed.Kind(), protocol)
		}
		if protocol == "" {
			tokens := strings.Split(strings.Join(r.Header["Connection"], ","), ",")
			if len(r.Header["Upgrade"]) > 0 || slices.ContainsFunc(tokens, func(token string) bool { return strings.EqualFold(strings.Trim(token, " \t"), "upgrade") }) {
				t.Fatalf("an upgrade is forwarded: %q", content)
			}
			return
		}
		offered := strings.FieldsFunc(strings.Join(r.Header["Sec-Websocket-Protocol"], ","), func(c rune) bool { return strings.ContainsRune(", \t", c) })
		preferred := RemoteCommand
		if parsed.Subresource == "portforward" {
			preferred = PortForward
		}
		if protocol != preferred && (protocol != Channels || slices.Contains(offered, string(preferred))) || r.Method != http.MethodGet || r.ContentLength != 0 || len(r.TransferEncoding) > 0 ||
			len(r.Header["Upgrade"]) != 1 || !strings.EqualFold(r.Header["Upgrade"][0], "websocket") || len(r.Header["Sec-Websocket-Key"]) != 1 ||
			!slices.Contains(offered, string(protocol)) {
			t.Fatalf("%q is upgraded to %s", content, protocol)
		}
	})
}

// FuzzImpersonation sends arbitrary names of headers. A request is not forwarded if an API server reads a name as one of impersonation.
func FuzzImpersonation(f *testing.F) {
	for _, name := range []string{"Impersonate-User", "impersonate-group", "IMPERSONATE-EXTRA-Scopes", "Impersonate-Uid", "Impersonate", "Accept", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[name] = []string{"system:admin"}
		r.Header[http.CanonicalHeaderKey(name)] = []string{"system:admin"}
		asks := strings.HasPrefix(strings.ToLower(name), "impersonate-")
		if err := CheckHeaders(r); asks && err == nil {
			t.Errorf("the header %q is forwarded", name)
		} else if err != nil && !asks {
			t.Errorf("the header %q is refused: %v", name, err)
		}
	})
}
