package app

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// widgets is a resource of the customer that no rule of the mode read names.
const widgets = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
	"scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
	"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// cell is a request of the matrix, as RBAC understands it.
type cell struct {
	attributes authorizationv1.ResourceAttributes
	method     string
	path       string
}

// methods are the HTTP methods of the verbs of API servers.
var methods = map[string]string{"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch,
	"delete": http.MethodDelete, "deletecollection": http.MethodDelete}

// matrix returns a request for each verb that the API server has for any resource, of each of its resources and subresources, in each of
// their versions.
func matrix(t *testing.T, lists []*metav1.APIResourceList) []cell {
	t.Helper()
	verbs := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			for _, verb := range resource.Verbs {
				verbs[verb] = true
			}
		}
	}
	var cells []cell
	for _, list := range lists {
		group, version, found := strings.Cut(list.GroupVersion, "/")
		base := "/apis/" + list.GroupVersion
		if !found {
			group, version, base = "", list.GroupVersion, "/api/"+list.GroupVersion
		}
		for _, resource := range list.APIResources {
			name, sub, _ := strings.Cut(resource.Name, "/")
			for _, verb := range slices.Sorted(maps.Keys(verbs)) {
				method := methods[verb]
				if method == "" {
					t.Fatalf("discovery has the unknown verb %q", verb)
				}
				c := cell{method: method, path: base, attributes: authorizationv1.ResourceAttributes{Verb: verb, Group: group, Version: version, Resource: name, Subresource: sub}}
				if resource.Namespaced {
					c.path += "/namespaces/default"
					c.attributes.Namespace = "default"
				}
				c.path += "/" + name
				collection := verb == "list" || verb == "watch" || verb == "create" || verb == "deletecollection"
				switch {
				case sub != "" && collection && verb != "create":
					continue // subresources have no collections
				case sub != "" || !collection:
					c.path += "/x"
					c.attributes.Name = "x"
				}
				if sub != "" {
					c.path += "/" + sub
				}
				if verb == "watch" {
					c.path += "?watch=true"
				}
				if name == "namespaces" && c.attributes.Name != "" {
					c.attributes.Namespace = c.attributes.Name // as API servers understand the path
				}
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// stricter reports whether the gateway refuses a request of a mode that RBAC permits: commands and ports that are not over a WebSocket,
// requests to the API of a node that may run commands, and access that would not end with the session: the body asks for no expiration.
func stricter(mode adminv1.AccessMode, c cell) bool {
	a := c.attributes
	streams := a.Resource == "pods" && (a.Subresource == "exec" || a.Subresource == "attach" || a.Subresource == "portforward")
	outlives := a.Verb == "create" && (a.Resource == "serviceaccounts" && a.Subresource == "token" || a.Resource == "certificatesigningrequests" && a.Subresource == "")
	return mode == adminv1.AccessAdmin && (streams || outlives || a.Resource == "nodes" && a.Subresource == "proxy" && c.method != http.MethodGet)
}

// TestModesAreNeverLaxerThanRBAC sends each request of the API server's own discovery through the gateway with sessions of each mode, and asks the
// API server whether RBAC permits it to the same user. What the gateway forwards, RBAC permits; and all that RBAC permits, the gateway
// forwards, except what stricter names. Non-resource paths are those of the API server's index; there, the gateway may be stricter. Changes
// of the mode admin are forwarded with dryRun, so that they change nothing.
func TestModesAreNeverLaxerThanRBAC(t *testing.T) {
	t.Parallel()
	const engineer = "oracle"
	sessions := map[adminv1.AccessMode]string{adminv1.AccessRead: "a0000000-0000-4000-8000-0000000000c1", adminv1.AccessAdmin: "a0000000-0000-4000-8000-0000000000c2"}
	r := newHostedRegion(t)
	r.listen = nil
	r.cluster(nil)
	for _, mode := range adminv1.AccessModes() {
		r.issue(sessions[mode], r.request(sessions[mode], engineer, func(v *database.AccessSessionDocument) { v.Mode = string(mode) }), 15*time.Minute)
	}
	g := r.start()
	ctx := t.Context()
	definitions := r.admin.RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body([]byte(widgets)).SetHeader("Content-Type", "application/json").Do(ctx)
	must.Do(t, definitions.Error())
	t.Cleanup(func() {
		_ = r.admin.RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").Do(context.WithoutCancel(ctx))
	})
	var lists []*metav1.APIResourceList
	eventually.Soon(t, "discovery has the custom resource", func() (err error) {
		if _, err = r.admin.Discovery().ServerResourcesForGroupVersion("example.com/v1"); err == nil {
			_, lists, err = r.admin.Discovery().ServerGroupsAndResources()
		}
		return err
	})

	var index struct{ Paths []string }
	content, err := r.admin.RESTClient().Get().AbsPath("/").DoRaw(ctx)
	if err != nil || json.Unmarshal(content, &index) != nil {
		t.Fatalf("the index of the API server is %s: %v", content, err)
	}
	for mode, least := range map[adminv1.AccessMode]int{adminv1.AccessRead: 150, adminv1.AccessAdmin: 600} {
		session, user := sessions[mode], r.user(engineer, mode.Level())
		g.await(session, database.AccessSessionReady)
		permitted, cells := 0, matrix(t, lists)
		for _, c := range cells {
			allowed := permits(t, user, authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &c.attributes})
			switch forwarded, text := g.forwards(session, engineer, c.method, c.path); {
			case forwarded && (!allowed || stricter(mode, c)):
				t.Errorf("%s: %s %s (%s) is forwarded, and RBAC permits it: %t", mode, c.method, c.path, c.attributes.Verb, allowed)
			case !forwarded && allowed && !stricter(mode, c):
				t.Errorf("%s: %s %s (%s) is refused, and RBAC permits it: %s", mode, c.method, c.path, c.attributes.Verb, text)
			case forwarded:
				permitted++
			}
		}
		paths := 0
		for _, path := range append(index.Paths, "/", "/debug/pprof/", "/logs/") {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				attributes := &authorizationv1.NonResourceAttributes{Verb: strings.ToLower(method), Path: path}
				allowed := permits(t, user, authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: attributes})
				forwarded, _ := g.forwards(session, engineer, method, path)
				if forwarded && !allowed {
					t.Errorf("%s: %s %s is forwarded, and RBAC does not permit it", mode, method, path)
				}
				if forwarded {
					paths++
				}
			}
		}
		if len(cells) < 600 || permitted < least || paths < 50 {
			t.Errorf("%s: only %d of %d requests, and %d paths, are permitted", mode, permitted, len(cells), paths)
		}
		t.Logf("%s: %d of %d requests for resources, and %d paths, are permitted", mode, permitted, len(cells), paths)
	}
}

// user returns a direct client of the API server with the identity of an engineer's session.
func (r *hostedRegion) user(engineer string, level adminv1.Level) kubernetes.Interface {
	r.t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", r.kube.KubeconfigOf(r.t, "system:sre-break-glass:"+engineer, level.Organization())))(r.t)
	config.QPS = -1
	return must.Get(kubernetes.NewForConfig(config))(r.t)
}

// permits reports whether RBAC permits a request of a user.
func permits(t *testing.T, user kubernetes.Interface, spec authorizationv1.SelfSubjectAccessReviewSpec) bool {
	t.Helper()
	review := must.Get(user.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{}))(t)
	return review.Status.Allowed
}

// forwards reports whether the gateway forwards a request: only the API server returns the audit ID. text is the begin of the response.
func (g *gateway) forwards(session, engineer, method, path string) (forwarded bool, text string) {
	g.r.t.Helper()
	ctx, cancel := context.WithCancel(g.r.t.Context())
	defer cancel() // a watch does not end by itself
	body, media := "", "application/json"
	if method == http.MethodPatch {
		media = "application/merge-patch+json"
	}
	if method != http.MethodGet {
		path += "?dryRun=All"
		if method != http.MethodDelete { // the options in a body replace those of the query
			body = "{}"
		}
	}
	response := must.Get(g.open(ctx, method, engineer, "/sessions/"+session+"/kas"+path, body, "Content-Type", media))(g.r.t)
	defer func() { _ = response.Body.Close() }()
	id := response.Header.Get("Audit-Id")
	if id == "" {
		content, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusBadRequest {
			g.r.t.Errorf("%s %s: %d: %s", method, path, response.StatusCode, content)
		}
		return false, string(content)
	}
	if id != response.Header.Get("X-Request-Id") {
		g.r.t.Errorf("%s %s has the audit ID %s, not that of the request", method, path, id)
	}
	return true, ""
}
