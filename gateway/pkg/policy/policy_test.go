package policy

import (
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
		"/api/v1/namespaces/a/pods/b/exec?command=ls":         {IsResource: true, Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "a", Name: "b"},
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
		if err := Decide(adminv1.AccessRead, parse(t, http.MethodPost, target)); (err == nil) != permitted {
			t.Errorf("POST %s: %v", target, err)
		}
	}
}

func TestOnlyReadIsSupported(t *testing.T) {
	for _, mode := range []adminv1.AccessMode{"", "admin", "write", "Read"} {
		if Decide(mode, parse(t, http.MethodGet, "/api/v1/pods")) == nil {
			t.Errorf("the mode %q is supported", mode)
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
		"/API/v1/secrets", "/api/v1/namespaces/a/pods/b/log", "/healthz/etcd", "/openapi/v3/apis/apps/v1", "/api/v1/namespaces/secrets/status", "/api/v1/namespaces/x/status/y/secrets", "\\api\\v1"} {
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
		if err != nil || Decide(adminv1.AccessRead, parsed) != nil {
			return
		}
		forwarded := target.EscapedPath()
		decoded, err := url.PathUnescape(forwarded)
		if err != nil || decoded != forwarded {
			t.Fatalf("%q is decoded to %q", forwarded, decoded)
		}
		if cleaned := path.Clean(forwarded); cleaned != strings.TrimSuffix(forwarded, "/") && forwarded != "/" {
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

// FuzzUpgrades sends arbitrary headers. A request is not forwarded if its connection might become another protocol.
func FuzzUpgrades(f *testing.F) {
	f.Add("Upgrade", "websocket")
	f.Add("keep-alive, Upgrade", "")
	f.Add("", "SPDY/3.1")
	f.Add("uPGRADE", "h2c")
	f.Fuzz(func(t *testing.T, connection, upgrade string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", connection)
		if upgrade != "" {
			r.Header.Set("Upgrade", upgrade)
		}
		asks := upgrade != ""
		for part := range strings.SplitSeq(connection, ",") {
			asks = asks || strings.EqualFold(strings.Trim(part, " \t"), "upgrade")
		}
		if asks && CheckHeaders(r) == nil {
			t.Errorf("Connection %q with Upgrade %q is forwarded", connection, upgrade)
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
		} else if err != nil && !asks && name != ":protocol" && !strings.EqualFold(name, "upgrade") {
			t.Errorf("the header %q is refused: %v", name, err)
		}
	})
}
