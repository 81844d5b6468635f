package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// clusterSession is the ID of a session that does not exist.
const clusterSession = "5e551000-0000-4000-8000-000000000001"

// nobody is a client without a certificate.
const nobody mesh.Peer = "nobody"

// TestPortsWithoutIdentities sends requests without a token or a key to the ports whose callers do not authenticate with a certificate of the
// region: those for operations of each process, admin, the SRE portal, the session gateway, ARM's front door and the emulators. It sends them with the certificate of each
// workload and without one. Exactly the methods that the authorization table allows everybody pass.
func TestPortsWithoutIdentities(t *testing.T) {
	needsRegion(t)
	ctx := withTimeout(t, 5*time.Minute)
	endpoints := region.Endpoints()
	for process := range endpoints.Ops {
		must.Do(t, region.AwaitReady(ctx, process))
	}
	type port struct {
		name   string
		server mesh.Peer
		base   string
		// probes are requests that need a credential or do not exist.
		probes []string
	}
	ports := []port{
		{"admin", mesh.Admin, endpoints.Admin, []string{"GET /admin/v1/me", "GET /admin/v1/clusters", "GET /admin/v1/audit", "POST /admin/v1/elevations", "GET /metrics", "GET /debug/pprof/"}},
		{"SRE portal", mesh.Portal, endpoints.Portal, []string{"GET /", "GET /me", "GET /clusters", "GET /assets/none", "POST /", "GET /admin/v1/me", "GET /metrics", "GET /debug/pprof/"}},
		{"session gateway", mesh.GatewayAccess, endpoints.GatewayAccess, []string{"GET /", "GET /sessions/" + clusterSession + "/kas/api", "GET /sessions/" + clusterSession + "/kas/api/v1/secrets",
			"POST /sessions/" + clusterSession + "/kas/api/v1/namespaces", "GET /tunnels/mgmt-1", "GET /metrics", "GET /debug/pprof/"}},
		{"ARM's front door", mesh.ARMFrontDoor, endpoints.ARM, []string{"GET /subscriptions", "GET /subscriptions/s", "PUT /subscriptions/s/resourceGroups/g", "DELETE /subscriptions/s/resourceGroups/g",
			"POST /tickets/validate", "GET /metrics", "GET /debug/pprof/"}},
		{"Cosmos DB emulator", mesh.CosmosEmulator, endpoints.Cosmos, []string{"GET /", "GET /dbs", "POST /dbs", "GET /dbs/hcpmesh/colls", "GET /dbs/hcpmesh/colls/Admin/docs", "POST /dbs/hcpmesh/colls/Admin/docs",
			"DELETE /dbs/hcpmesh", "GET /metrics", "GET /debug/pprof/"}},
		{"Azure emulator", mesh.AzureEmulator, endpoints.Azure, []string{"GET /subscriptions/s", "PUT /subscriptions/s/resourceGroups/g", "DELETE /subscriptions/s/resourceGroups/g", "GET /secrets/s", "PUT /secrets/s", "GET /certificates/c",
			"GET /metrics", "GET /debug/pprof/"}},
		{"update graph", mesh.UpdateGraph, endpoints.UpdateGraph, []string{"POST /api/upgrades_info/graph", "PUT /api/upgrades_info/graph", "DELETE /api/upgrades_info/graph", "GET /", "GET /metrics", "GET /debug/pprof/"}},
	}
	for process, address := range endpoints.Ops {
		p := port{"operations of " + process, mesh.Operations, "http://" + address, []string{"GET /", "GET /debug/pprof/", "GET /debug/pprof/heap", "GET /_emulator/faults"}}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			p.probes = append(p.probes, method+" /healthz", method+" /metrics")
		}
		ports = append(ports, p)
	}
	identities, authorities := meshtest.Open(t, filepath.Dir(endpoints.CAFile), "local"), x509.NewCertPool()
	authority := must.Get(os.ReadFile(endpoints.CAFile))(t)
	authorities.AppendCertsFromPEM(authority)
	table := slices.Concat(mesh.OpenRules(), mesh.Rules())
	placeholders := strings.NewReplacer("{tenant}", endpoints.TenantID, "{name}", portalAsset(t, endpoints.Portal, authorities))
	for _, p := range ports {
		t.Run(p.name, func(t *testing.T) {
			requests, want := p.probes, []string(nil)
			clients := append(mesh.Peers(), nobody)
			for _, rule := range table {
				if rule.Server != p.server || rule.Protocol != mesh.HTTP || !slices.ContainsFunc(rule.Clients, func(g mesh.Grant) bool { return g.Client == mesh.Anybody }) {
					continue
				}
				request := placeholders.Replace(rule.Method)
				requests = append(requests, request)
				for _, client := range clients {
					want = append(want, string(client)+" "+request)
				}
			}
			var got []string
			for _, client := range clients {
				config := &tls.Config{MinVersion: tls.VersionTLS12}
				if client != nobody {
					config = identities.Identity(client).ClientTLS(p.server)
				}
				// These servers have no SPIFFE certificates.
				config.RootCAs, config.InsecureSkipVerify, config.VerifyConnection = authorities, false, nil
				got = append(got, passed(t, client, config, p.base, requests)...)
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("requests that need no credential (-table +server):\n%s", diff)
			}
		})
	}
}

// portalAsset returns the name of an asset of the portal.
func portalAsset(t *testing.T, url string, authorities *x509.CertPool) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}}
	defer transport.CloseIdleConnections()
	response := must.Get((&http.Client{Transport: transport}).Get(url + "/signed-out"))(t)
	defer func() { _ = response.Body.Close() }()
	page := must.Get(io.ReadAll(response.Body))(t)
	_, after, found := strings.Cut(string(page), "/assets/")
	if !found {
		t.Fatalf("the page of the portal names no asset: %s", page)
	}
	name, _, _ := strings.Cut(after, `"`)
	return name
}

// passed sends requests as a workload, or without a certificate, and returns those that the server does not refuse with 401, 403, 404 or
// 405, or by a redirection to the sign-in of the portal, each as client and request.
func passed(t *testing.T, client mesh.Peer, config *tls.Config, base string, requests []string) []string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	var all []string
	for _, text := range requests {
		method, path, _ := strings.Cut(text, " ")
		request := must.Get(http.NewRequestWithContext(t.Context(), method, base+path, nil))(t)
		// Cosmos DB checks these headers before it authenticates a request.
		request.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
		request.Header.Set("x-ms-version", "2020-11-05")
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatalf("%s as %s: %v", text, client, err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatalf("%s as %s: %v", text, client, err)
		}
		if strings.HasPrefix(response.Header.Get("Location"), "/sign-in?return=") {
			continue
		}
		switch response.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		default:
			all = append(all, string(client)+" "+text)
		}
	}
	return all
}
