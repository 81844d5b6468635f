package meshtest_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// recorder records the errors of a test instead of failing it.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, arguments ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, arguments...))
}

// TestAllowedCallsFindsEachChange adds and removes one grant of the table at a time. The list of allowed calls changes by exactly this
// call.
func TestAllowedCallsFindsEachChange(t *testing.T) {
	const list, remove = csv1.ClusterService_ListWorks_FullMethodName, csv1.ClusterService_DeleteCluster_FullMethodName
	with := func(method string, clients ...mesh.Peer) []mesh.Rule {
		rules := slices.DeleteFunc(mesh.Rules(), func(r mesh.Rule) bool { return r.Method == method })
		rule := mesh.Rule{Server: mesh.ClusterService, Protocol: mesh.GRPC, Method: method}
		for _, client := range clients {
			rule.Clients = append(rule.Clients, mesh.Grant{Client: client})
		}
		return append(rules, rule)
	}
	allowed := func(rules []mesh.Rule) []string {
		region := meshtest.New(t)
		server := grpc.NewServer(mesh.NewAuthorizer(mesh.ClusterService, rules, nil).ServerOptions(region.Identity(mesh.ClusterService))...)
		csv1.RegisterClusterServiceServer(server, csv1.UnimplementedClusterServiceServer{})
		return region.AllowedCalls(mesh.ClusterService, region.Serve(server), meshtest.Calls(t, mesh.ClusterService, mesh.ClusterServiceAPI))
	}
	before := allowed(mesh.Rules())
	for name, c := range map[string]struct {
		rules          []mesh.Rule
		added, removed string
	}{
		"a new client":            {with(remove, mesh.Frontend, mesh.Backend, mesh.Admin), "admin " + remove, ""},
		"a new server's client":   {with(remove, mesh.Frontend, mesh.Backend, mesh.MaestroAgent), "maestro-agent " + remove, ""},
		"a client less":           {with(remove, mesh.Backend), "", "frontend " + remove},
		"no client of the method": {with(list), "", "admin " + list},
	} {
		after := allowed(c.rules)
		var added, removed []string
		for _, call := range after {
			if !slices.Contains(before, call) {
				added = append(added, call)
			}
		}
		for _, call := range before {
			if !slices.Contains(after, call) {
				removed = append(removed, call)
			}
		}
		if strings.Join(added, ",") != c.added || strings.Join(removed, ",") != c.removed {
			t.Errorf("%s: added %q and removed %q, want %q and %q", name, added, removed, c.added, c.removed)
		}
	}
}

// TestInvalidClientsAreFound calls servers that do not verify clients as they must.
func TestInvalidClientsAreFound(t *testing.T) {
	all := []string{"no certificate", "another authority", "another region", "expired", "for servers", "without identity", "two identities", "unknown workload", "of engineers", "of anybody"}
	for name, c := range map[string]struct {
		change func(*tls.Config)
		found  []string
	}{
		"verified":              {func(*tls.Config) {}, nil},
		"without verification":  {func(c *tls.Config) { c.VerifyConnection = nil }, all[1:]},
		"without a certificate": {func(c *tls.Config) { c.VerifyConnection, c.ClientAuth = nil, tls.NoClientCert }, all},
	} {
		t.Run(name, func(t *testing.T) {
			found := &recorder{TB: t}
			region := meshtest.New(found)
			config := region.Identity(mesh.MaestroServer).ServerTLS(mesh.Admin)
			c.change(config)
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			server := &httptest.Server{Listener: tls.NewListener(listener, config), Config: &http.Server{
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), ErrorLog: log.New(io.Discard, "", 0)}}
			server.Start()
			defer server.Close()
			region.AllowedRequests(mesh.MaestroServer, "https://"+listener.Addr().String(), []string{"GET /"})
			for _, invalid := range all {
				want := slices.Contains(c.found, invalid)
				if got := slices.ContainsFunc(found.errors, func(e string) bool { return strings.Contains(e, invalid) }); got != want {
					t.Errorf("the suite finds a client with %s: %t, want %t; it found %q", invalid, got, want, found.errors)
				}
			}
		})
	}
}

// TestInvalidClientsBehindSidecarAreFound calls a server behind the stand-in of a sidecar that accepts every request, and one that ignores the
// trust domain.
func TestInvalidClientsBehindSidecarAreFound(t *testing.T) {
	passing := []string{"another region", "without identity", "two identities", "unknown workload", "of engineers", "of anybody"}
	for name, c := range map[string]struct {
		handler func(*meshtest.Region, http.Handler) http.Handler
		found   []string
	}{
		"verified": {func(region *meshtest.Region, next http.Handler) http.Handler {
			rules := []mesh.Rule{{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "GET /", Clients: []mesh.Grant{{Client: mesh.Admin}}}}
			return mesh.NewAuthorizer(mesh.MaestroServer, rules, nil).Handler(region.Transport(meshtest.Sidecars, mesh.MaestroServer), next)
		}, nil},
		"as members of the region": {func(region *meshtest.Region, next http.Handler) http.Handler {
			return region.Transport(meshtest.Sidecars, mesh.MaestroServer).PublicHandler(next)
		}, passing[3:]},
		"without verification": {func(_ *meshtest.Region, next http.Handler) http.Handler { return next }, passing},
	} {
		t.Run(name, func(t *testing.T) {
			found := &recorder{TB: t}
			region := meshtest.New(found)
			server := httptest.NewServer(c.handler(region, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })))
			t.Cleanup(server.Close)
			base := "https://" + region.Sidecar(mesh.MaestroServer, server.Listener.Addr().String())
			if allowed := region.AllowedRequests(mesh.MaestroServer, base, []string{"GET /"}); !slices.Contains(allowed, "admin GET /") {
				t.Errorf("allowed are %q", allowed)
			}
			for _, invalid := range []string{"no certificate", "another authority", "another region", "expired", "for servers", "without identity", "two identities", "unknown workload", "of engineers", "of anybody"} {
				want := slices.Contains(c.found, invalid)
				if got := slices.ContainsFunc(found.errors, func(e string) bool { return strings.Contains(e, invalid) }); got != want {
					t.Errorf("the suite finds a client with %s: %t, want %t; it found %q", invalid, got, want, found.errors)
				}
			}
		})
	}
}
