package mesh_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRefusalsArePassedOn checks what an Authorizer passes to the audit, in both modes: refused requests with the pattern of their route,
// and the connections or requests of workloads without any right. Clients without an identity of the region have no refusals.
func TestRefusalsArePassedOn(t *testing.T) {
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) { testRefusals(t, mode) })
	}
}

func testRefusals(t *testing.T, mode meshtest.Mode) {
	region := meshtest.New(t)
	const bundle = "DELETE /bundles/{id}"
	rules := []mesh.Rule{
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: bundle, Clients: []mesh.Grant{{Client: mesh.Hcpctl}}},
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "GET /bundles", Clients: []mesh.Grant{{Client: mesh.Admin}}},
	}
	var mu sync.Mutex
	var got []mesh.Refusal
	authorizer := mesh.NewAuthorizer(mesh.MaestroServer, rules, nil).WithRefusals(func(_ context.Context, r mesh.Refusal) {
		if kind := apierror.KindOf(r.Err); kind != apierror.PermissionDenied {
			t.Errorf("%+v has the kind %v", r, kind)
		}
		r.Err = nil
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
	})
	transport := region.Transport(mode, mesh.MaestroServer)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &httptest.Server{Listener: authorizer.Listener(transport, listener), Config: &http.Server{
		Handler: authorizer.Handler(transport, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), ErrorLog: log.New(io.Discard, "", 0)}}
	server.Start()
	base := "https://" + region.Front(mode, mesh.MaestroServer, listener.Addr().String())
	send := func(config *tls.Config, method, path string) {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		request := must.Get(http.NewRequestWithContext(t.Context(), method, base+path, nil))(t)
		if response, err := transport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
	}
	admin := region.Identity(mesh.Admin).ClientTLS(mesh.MaestroServer)
	send(admin, http.MethodGet, "/bundles")
	send(admin, http.MethodDelete, "/bundles/1")
	send(admin, http.MethodGet, "/no/route")
	send(region.Identity(mesh.Frontend).ClientTLS(mesh.MaestroServer), http.MethodGet, "/bundles")
	for _, invalid := range region.InvalidClients(mesh.Admin) {
		send(invalid.TLS(), http.MethodGet, "/bundles")
	}
	server.Close()

	want := []mesh.Refusal{
		{Client: mesh.Admin, Method: bundle, Object: "/bundles/1"},
		{Client: mesh.Admin, Method: "GET /", Object: "/no/route"},
		{Client: "anybody", Method: mesh.Connect}, {Client: "engineers", Method: mesh.Connect},
		{Client: mesh.Frontend, Method: mesh.Connect},
		{Client: "spiffe://another-test/ns/admin/sa/admin", Method: mesh.Connect}, {Client: "unknown", Method: mesh.Connect},
	}
	order := func(a, b mesh.Refusal) int {
		return strings.Compare(string(a.Client)+a.Object, string(b.Client)+b.Object)
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}
