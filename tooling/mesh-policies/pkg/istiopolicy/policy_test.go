package istiopolicy_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	securityapi "istio.io/api/security/v1beta1"
	security "istio.io/client-go/pkg/apis/security/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiopolicy"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func options() istiopolicy.Options {
	return istiopolicy.Options{
		TrustDomain:         "eastus.prod.public.hcpmesh",
		Workloads:           []mesh.Peer{mesh.Frontend, mesh.Backend, mesh.Admin, mesh.GatewayAccess, mesh.Monitor, mesh.ClusterService, mesh.MaestroServer},
		ARMGateway:          istiopolicy.ServiceAccount{Namespace: "ingress", Name: "arm"},
		AdminGateway:        istiopolicy.ServiceAccount{Namespace: "ingress", Name: "admin"},
		TunnelGateway:       istiopolicy.ServiceAccount{Namespace: "ingress", Name: "tunnels"},
		OperationsPort:      9090,
		PortalPort:          8447,
		MonitoringNamespace: "monitoring",
	}
}

func render(t *testing.T) []runtime.Object {
	t.Helper()
	return must.Get(istiopolicy.Render(mesh.Rules(), options()))(t)
}

func TestRenderMatchesGolden(t *testing.T) {
	got := must.Get(istiopolicy.YAML(render(t)))(t)
	golden := filepath.Join("testdata", "policies.yaml")
	if *update {
		must.Do(t, os.WriteFile(golden, got, 0o644))
	}
	want := must.Get(os.ReadFile(golden))(t)
	if string(got) != string(want) {
		t.Errorf("the policies differ from %s; if the table was changed on purpose, run the test with -update", golden)
	}
}

// TestPoliciesAllowWhatServersAllow compares the policies with the table for every workload and every method of it.
func TestPoliciesAllowWhatServersAllow(t *testing.T) {
	objects := render(t)
	allowed, refused := 0, 0
	for _, rule := range mesh.Rules() {
		if !slices.Contains(options().Workloads, rule.Server) {
			continue
		}
		method, path := http.MethodPost, rule.Method
		if rule.Protocol == mesh.HTTP {
			verb, pattern, ok := strings.Cut(rule.Method, " ")
			switch {
			case rule.Method == mesh.Unrouted:
				verb, pattern = http.MethodPatch, "/any/path"
			case !ok:
				verb, pattern = http.MethodPatch, rule.Method
			}
			method, path = verb, strings.NewReplacer("{", "", "}", "").Replace(pattern)
		}
		// The requests of engineers and of management clusters come through a gateway.
		for _, client := range append(mesh.Peers(), mesh.Engineers, mesh.ManagementClusters) {
			want := slices.ContainsFunc(rule.Clients, func(g mesh.Grant) bool { return g.Client == client || g.Client == mesh.Anybody })
			got := allows(objects, request{server: rule.Server, client: principal(client), method: method, path: path, port: "8443"})
			if got != want {
				t.Errorf("%s %s of %s by %s: the policies allow it: %t, the table: %t", method, path, rule.Server, client, got, want)
			}
			if allows(objects, request{server: rule.Server, client: principal(client), method: method, path: path, port: "9090"}) {
				t.Errorf("%s %s of %s by %s is allowed at the port for operations", method, path, rule.Server, client)
			}
			if want {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed == 0 || refused == 0 {
		t.Fatalf("%d allowed and %d refused calls were compared", allowed, refused)
	}
}

func TestPoliciesRefuseOtherCalls(t *testing.T) {
	objects := render(t)
	for name, call := range map[string]request{
		"a method that the table does not have":           {mesh.ClusterService, principal(mesh.Backend), "", "POST", "/hcpmesh.clusterservice.v1.ClusterService/Unknown", "8443"},
		"a client of another trust domain":                {mesh.Frontend, "other/ns/ingress/sa/arm", "", "GET", "/any", "8443"},
		"a client without identity":                       {mesh.Frontend, "", "", "GET", "/any", "8443"},
		"the gateway at Cluster Service":                  {mesh.ClusterService, principal(mesh.ARMFrontDoor), "", "POST", "/" + mesh.ClusterServiceAPI + "/GetCluster", "8443"},
		"a path that admin does not have":                 {mesh.Admin, principal(mesh.Engineers), "", "DELETE", "/admin/v1/any", "8443"},
		"the gateway of ARM at admin":                     {mesh.Admin, principal(mesh.ARMFrontDoor), "", "GET", "/admin/v1/me", "8443"},
		"the gateway of engineers at the frontend":        {mesh.Frontend, principal(mesh.Engineers), "", "GET", "/any", "8443"},
		"a path of admin at the portal by others":         {mesh.Admin, principal(mesh.Backend), "", "GET", "/admin/v1/openapi.json", "8447"},
		"a workload at the portal":                        {mesh.Admin, principal(mesh.Monitor), "", "GET", "/clusters", "8447"},
		"the gateway of ARM at the portal":                {mesh.Admin, principal(mesh.ARMFrontDoor), "", "GET", "/clusters", "8447"},
		"a path of the portal at admin":                   {mesh.Admin, principal(mesh.Engineers), "", "GET", "/clusters", "8444"},
		"a workload at the session gateway":               {mesh.GatewayAccess, principal(mesh.Backend), "", "GET", "/sessions/s/kas/api", "8446"},
		"the gateway of ARM at session gateway":           {mesh.GatewayAccess, principal(mesh.ARMFrontDoor), "", "GET", "/sessions/s/kas/api", "8446"},
		"the gateway of management clusters at a session": {mesh.GatewayAccess, principal(mesh.ManagementClusters), "", "GET", "/sessions/s/kas/api", "8446"},
		"the gateway of engineers at a tunnel":            {mesh.GatewayAccess, principal(mesh.Engineers), "", "GET", "/tunnels/mgmt-1", "8446"},
		"a workload at admin":                             {mesh.Admin, principal(mesh.Backend), "", "GET", "/admin/v1/me", "8443"},
		"profiles by Prometheus":                          {mesh.Backend, "", "monitoring", "GET", "/debug/pprof/heap", "9090"},
		"metrics by another namespace":                    {mesh.ClusterService, "", "default", "GET", "/metrics", "9090"},
		"a path below one that the table contains":        {mesh.MaestroServer, principal(mesh.Admin), "", "GET", "/api/maestro/v1/resource-bundles/a/b", "8443"},
	} {
		if allows(objects, call) {
			t.Errorf("the policies allow %s", name)
		}
	}
	for _, workload := range options().Workloads {
		if !allows(objects, request{workload, "", "monitoring", "GET", "/metrics", "9090"}) {
			t.Errorf("the policies refuse Prometheus at %s", workload)
		}
	}
	if !allows(objects, request{mesh.Admin, principal(mesh.Engineers), "", "DELETE", "/admin/v1/orphans/any", "8443"}) {
		t.Error("the policies refuse the gateway at admin")
	}
	if !allows(objects, request{mesh.Admin, principal(mesh.Engineers), "", "POST", "/clusters/any/retry", "8447"}) {
		t.Error("the policies refuse the gateway at the portal")
	}
}

func TestEveryWorkloadRequiresMutualTLS(t *testing.T) {
	strict := map[string]bool{}
	for _, object := range render(t) {
		if o, ok := object.(*security.PeerAuthentication); ok && o.Spec.Selector == nil && len(o.Spec.PortLevelMtls) == 0 {
			strict[o.Namespace] = o.Spec.Mtls.GetMode() == securityapi.PeerAuthentication_MutualTLS_STRICT
		}
	}
	for _, workload := range options().Workloads {
		if !strict[string(workload)] {
			t.Errorf("%s accepts connections without mutual TLS", workload)
		}
	}
}

// rule returns a rule of the frontend.
func rule(protocol mesh.Protocol, method string, clients ...mesh.Peer) mesh.Rule {
	rule := mesh.Rule{Server: mesh.Frontend, Protocol: protocol, Method: method}
	for _, client := range clients {
		rule.Clients = append(rule.Clients, mesh.Grant{Client: client})
	}
	return rule
}

func TestRenderRefusesWhatIstioEnforcesDifferently(t *testing.T) {
	for name, c := range map[string]struct {
		rules []mesh.Rule
		want  string
	}{
		"overlapping patterns": {[]mesh.Rule{rule(mesh.HTTP, "/", mesh.Backend), rule(mesh.HTTP, "GET /secret")}, `contains the paths of "GET /secret"`},
		"a literal with other clients": {[]mesh.Rule{rule(mesh.HTTP, "GET /a/{id}", mesh.Backend, mesh.Admin), rule(mesh.HTTP, "GET /a/b", mesh.Backend)},
			`contains the paths of "GET /a/b"`},
		"a literal in a wildcard": {[]mesh.Rule{rule(mesh.HTTP, "GET /a/{id}", mesh.Backend), rule(mesh.HTTP, "GET /a/b")},
			`contains the paths of "GET /a/b"`},
		"a subtree":          {[]mesh.Rule{rule(mesh.HTTP, "GET /a/", mesh.Backend)}, "neither the form"},
		"the rest of a path": {[]mesh.Rule{rule(mesh.HTTP, "GET /a/{rest...}", mesh.Backend)}, "unsupported segment"},
		"topics":             {[]mesh.Rule{rule(mesh.MQTT, "publish agentevents", mesh.Backend)}, "has no form in Istio"},
	} {
		o := options()
		o.Workloads = []mesh.Peer{mesh.Frontend}
		if _, err := istiopolicy.Render(c.rules, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// TestRenderExcludesPathsOfOthers renders a pattern for every path, and one of these paths that has other clients.
func TestRenderExcludesPathsOfOthers(t *testing.T) {
	o := options()
	o.Workloads = []mesh.Peer{mesh.Frontend}
	objects := must.Get(istiopolicy.Render([]mesh.Rule{rule(mesh.HTTP, "/", mesh.Backend), rule(mesh.HTTP, "/a/{id}", mesh.Admin)}, o))(t)
	for client, paths := range map[mesh.Peer]map[string]bool{mesh.Backend: {"/a/1": false, "/a/1/2": true, "/b": true}, mesh.Admin: {"/a/1": true, "/a/1/2": false, "/b": false}} {
		for path, want := range paths {
			for _, method := range []string{"GET", "POST"} {
				if got := allows(objects, request{server: mesh.Frontend, client: principal(client), method: method, path: path, port: "8443"}); got != want {
					t.Errorf("%s %s by %s is allowed: %t, want %t", method, path, client, got, want)
				}
			}
		}
	}
}

// TestRenderOmitsRedundantRules renders patterns that a pattern with the same clients contains, and one with more clients.
func TestRenderOmitsRedundantRules(t *testing.T) {
	o := options()
	o.Workloads = []mesh.Peer{mesh.Frontend}
	objects := must.Get(istiopolicy.Render([]mesh.Rule{rule(mesh.HTTP, "/", mesh.Backend), rule(mesh.HTTP, "GET /same", mesh.Backend),
		rule(mesh.HTTP, "GET /more", mesh.Backend, mesh.Admin)}, o))(t)
	text := must.Get(istiopolicy.YAML(objects))(t)
	if strings.Contains(string(text), "/same") || !strings.Contains(string(text), "/more") {
		t.Errorf("rendered:\n%s", text)
	}
	for client, paths := range map[mesh.Peer]map[string]bool{mesh.Backend: {"/same": true, "/more": true, "/other": true}, mesh.Admin: {"/same": false, "/more": true}} {
		for path, want := range paths {
			if got := allows(objects, request{server: mesh.Frontend, client: principal(client), method: "GET", path: path, port: "8443"}); got != want {
				t.Errorf("%s by %s is allowed: %t, want %t", path, client, got, want)
			}
		}
	}
}

func TestRenderRefusesWrongOptions(t *testing.T) {
	for name, change := range map[string]func(*istiopolicy.Options){
		"TrustDomain":            func(o *istiopolicy.Options) { o.TrustDomain = "" },
		"Workloads":              func(o *istiopolicy.Options) { o.Workloads = nil },
		"no workload \"nosuch\"": func(o *istiopolicy.Options) { o.Workloads = append(o.Workloads, "nosuch") },
		"ARMGateway":             func(o *istiopolicy.Options) { o.ARMGateway.Name = "" },
		"TunnelGateway":          func(o *istiopolicy.Options) { o.TunnelGateway.Name = "" },
		"AdminGateway":           func(o *istiopolicy.Options) { o.AdminGateway.Namespace = "" },
		"PortalPort":             func(o *istiopolicy.Options) { o.PortalPort = 0 },
		"OperationsPort":         func(o *istiopolicy.Options) { o.OperationsPort = 0 },
		"MonitoringNamespace":    func(o *istiopolicy.Options) { o.MonitoringNamespace = "" },
	} {
		o := options()
		change(&o)
		if _, err := istiopolicy.Render(mesh.Rules(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
