package chart_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// miseChart returns the chart of MISE, and its values in the reference region.
func miseChart(t *testing.T) (*chart.Chart, map[string]any) {
	t.Helper()
	found := must.Get(values.Find("mise", target(t, reference)))(t)
	computed := must.Get(found.Values())(t)
	loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), found.Folder)))(t)
	return loaded, plain(t, computed)
}

// named returns the object of a kind with a name.
func named(t *testing.T, objects chart.Objects, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("the chart has no %s %s", kind, name)
	}
	return objects[i]
}

// TestMISEIsWhereTheFrontendReliesOnIt compares the regions with the chart, with a check at the gateway, and with a frontend that calls MISE.
func TestMISEIsWhereTheFrontendReliesOnIt(t *testing.T) {
	regions := map[bool]int{}
	for _, target := range charttest.Targets(t) {
		if target.Configuration.Get("managementCluster") != nil {
			continue
		}
		all := charttest.RenderAll(t, target)
		_, installed := all["mise"]
		relies := target.Configuration.Get("frontend", "authentication", "mode").Value == "sidecar"
		checked := slices.ContainsFunc(all["ingress"], func(o *unstructured.Unstructured) bool { return o.GetName() == "arm-check" })
		namespace := slices.ContainsFunc(all["cluster"], func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" && o.GetName() == "mise" })
		if installed != relies || checked != relies || namespace != relies {
			t.Errorf("%s: the frontend relies on MISE: %t; the chart is installed: %t, the gateway checks requests: %t, the cluster has the namespace: %t", target.Name, relies, installed, checked, namespace)
		}
		regions[relies]++
	}
	if regions[true] == 0 || regions[false] == 0 {
		t.Errorf("regions with and without MISE: %v", regions)
	}
}

// TestMISEAndItsClientsAgree compares MISE with both clients: identity, pods, path and port, as each side has them.
func TestMISEAndItsClientsAgree(t *testing.T) {
	all := charttest.RenderAll(t, target(t, reference))
	mise := all["mise"]

	// The extension provider of the mesh, with which the gateway calls MISE.
	text, _, err := unstructured.NestedString(named(t, all["mesh"], "ConfigMap", "istio-shared-configmap-asm-1-29").Object, "data", "mesh")
	if err != nil {
		t.Fatal(err)
	}
	var configuration struct {
		TrustDomain        string
		ExtensionProviders []struct {
			Name              string
			EnvoyExtAuthzHTTP struct {
				Service, PathPrefix string
				Port                int
			} `json:"envoyExtAuthzHttp"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &configuration); err != nil || len(configuration.ExtensionProviders) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	provider := configuration.ExtensionProviders[0].EnvoyExtAuthzHTTP
	gateway, frontend := named(t, all["ingress"], "Deployment", "arm"), named(t, all["frontend"], "Deployment", "frontend")
	principal := func(deployment *unstructured.Unstructured) string {
		account, _, _ := unstructured.NestedString(deployment.Object, "spec", "template", "spec", "serviceAccountName")
		return configuration.TrustDomain + "/ns/" + deployment.GetNamespace() + "/sa/" + account
	}
	const checkURL = "http://mise.mise.svc:8080/ValidateRequest"
	want := map[string]string{principal(gateway): provider.PathPrefix + "/*", principal(frontend): "/ValidateRequest"}

	// Istio allows these clients, at these paths, and nobody else.
	var policy struct {
		Spec struct {
			Action string
			Rules  []struct {
				From []struct{ Source map[string][]string }
				To   []struct{ Operation map[string][]string }
			}
		}
	}
	must.Do(t, yaml.Unmarshal(encoded(t, named(t, mise, "AuthorizationPolicy", "checks")), &policy))
	got := map[string]string{}
	for _, rule := range policy.Spec.Rules {
		if len(rule.From) != 1 || len(rule.To) != 1 || len(rule.From[0].Source["principals"]) != 1 || len(rule.To[0].Operation["paths"]) != 1 || !slices.Equal(rule.To[0].Operation["ports"], []string{"8080"}) {
			t.Fatalf("the rule is %+v", rule)
		}
		got[rule.From[0].Source["principals"][0]] = rule.To[0].Operation["paths"][0]
	}
	if diff := cmp.Diff(want, got); diff != "" || policy.Spec.Action != "" {
		t.Errorf("the calls of clients and the policy (-called +allowed):\n%s", diff)
	}
	if spec, _, _ := unstructured.NestedMap(named(t, mise, "AuthorizationPolicy", "deny-by-default").Object, "spec"); len(spec) != 0 {
		t.Errorf("deny-by-default is %v", spec)
	}

	// Both call the Service, and the rule with MISE's identity is for its host.
	host, _, _ := unstructured.NestedString(named(t, mise, "DestinationRule", "mise").Object, "spec", "host")
	identities, _, _ := unstructured.NestedStringSlice(named(t, mise, "DestinationRule", "mise").Object, "spec", "trafficPolicy", "tls", "subjectAltNames")
	if host != provider.Service || provider.Port != 8080 || !slices.Equal(identities, []string{"spiffe://" + principal(named(t, mise, "Deployment", "mise"))}) {
		t.Errorf("the gateway calls %s:%d, the rule is for %s with %v", provider.Service, provider.Port, host, identities)
	}
	if arguments := textOf(t, frontend); !strings.Contains(arguments, "--authentication-check-url="+checkURL) || !strings.HasPrefix(checkURL, "http://"+strings.TrimSuffix(host, ".cluster.local")+":8080/") {
		t.Errorf("the frontend does not call %s", checkURL)
	}

	// The network lets the pods of both connect, and no other pods of the region's charts.
	network := &networkingv1.NetworkPolicy{}
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(named(t, mise, "NetworkPolicy", "mise").Object, network))
	allowed := map[string]bool{}
	for _, objects := range all {
		for _, object := range objects {
			pods, found, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
			if !found {
				continue
			}
			for _, rule := range network.Spec.Ingress {
				for _, peer := range rule.From {
					if peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == object.GetNamespace() && labels.SelectorFromSet(peer.PodSelector.MatchLabels).Matches(labels.Set(pods)) {
						allowed[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = true
					}
				}
				if len(rule.Ports) != 1 || rule.Ports[0].Port.IntValue() != 8080 {
					t.Errorf("the ports are %v", rule.Ports)
				}
			}
		}
	}
	if names := slices.Sorted(maps.Keys(allowed)); !slices.Equal(names, []string{"Deployment frontend/frontend", "Deployment ingress/arm"}) {
		t.Errorf("the network allows %v", names)
	}
	for name, objects := range map[string]chart.Objects{"arm": all["ingress"], "frontend": all["frontend"]} {
		if egress := textOf(t, named(t, objects, "NetworkPolicy", name)); !strings.Contains(egress, "kubernetes.io/metadata.name: mise") {
			t.Errorf("the network of %s does not allow connections to MISE", name)
		}
	}
}

// textOf returns an object as YAML.
func textOf(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	return text(t, chart.Objects{object})
}

// TestMISEAcceptsOnlyBoundTokensOfARM reads the configuration file of MISE.
func TestMISEAcceptsOnlyBoundTokensOfARM(t *testing.T) {
	loaded, v := miseChart(t)
	read := func() (settings map[string]any, checksum string) {
		t.Helper()
		objects := must.Get(loaded.Render("mise", v))(t)
		file, _, _ := unstructured.NestedString(named(t, objects, "ConfigMap", "mise").Object, "data", "appsettings.json")
		must.Do(t, json.Unmarshal([]byte(file), &settings))
		checksum, _, _ = unstructured.NestedString(named(t, objects, "Deployment", "mise").Object, "spec", "template", "metadata", "annotations", "hcpmesh.io/files")
		return settings, checksum
	}
	settings, before := read()
	region := target(t, reference).Configuration
	configured := func(path ...string) string { return region.Get(path...).Value.(string) }
	directory := settings["AzureAd"].(map[string]any)
	want := []any{map[string]any{
		"Label": "ARM", "Authority": configured("mise", "arm", "authority"), "Audiences": []any{configured("mise", "arm", "audience")},
		"ValidApplicationIds": []any{configured("mise", "arm", "applicationId")},
		"Protocols": map[string]any{"Pop": map[string]any{
			"TokenTypes": map[string]any{"AccessToken": map[string]any{"AppToken": true}},
			"SignedHttpRequestValidationParametersOptions": map[string]any{"ValidateTs": true, "ValidateM": true, "ValidateU": true, "ValidateP": true},
		}},
	}}
	if diff := cmp.Diff(want, directory["InboundPolicies"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if directory["ClientId"] != configured("mise", "applicationId") || directory["TenantId"] != configured("tenantId") || directory["Instance"] != configured("endpoints", "authority")+"/" {
		t.Errorf("the application is %v", directory)
	}
	charttest.Set(t, v, []string{"arm", "audience"}, `https://other.example/"quoted"`)
	settings, after := read()
	if before == after {
		t.Error("another configuration does not replace the pods")
	}
	if policy := settings["AzureAd"].(map[string]any)["InboundPolicies"].([]any)[0].(map[string]any); !cmp.Equal(policy["Audiences"], []any{`https://other.example/"quoted"`}) {
		t.Errorf("the audience is %v", policy["Audiences"])
	}
}

// TestWrongMISEIsRefused changes values with which MISE would not start, or would accept the requests of others.
func TestWrongMISEIsRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		path  string
		value any
		want  string
	}{
		"no digest":           {"image.digest", "", "at '/image/digest'"},
		"a tag":               {"image.tag", "latest", "at '/image': additional properties 'tag' not allowed"},
		"no repository":       {"image.repository", "", "at '/image/repository'"},
		"no application":      {"application.clientId", "", "at '/application/clientId'"},
		"every application":   {"arm.applicationId", "*", "at '/arm/applicationId'"},
		"no audience":         {"arm.audience", "", "at '/arm/audience'"},
		"an authority of all": {"arm.authority", "", "at '/arm/authority'"},
		"a plain authority":   {"arm.authority", "http://login.example/tenant", "at '/arm/authority'"},
		"a third client":      {"clients.1.namespace", "", "at '/clients/1/namespace'"},
		"every path":          {"clients.0.path", "*", "at '/clients/0/path'"},
		"pods of a namespace": {"clients.0.pods", map[string]any{}, "at '/clients/0/pods'"},
		"an outer collector":  {"tracing.endpoint", "https://collector.example", "at '/tracing/endpoint'"},
	} {
		loaded, v := miseChart(t)
		charttest.Set(t, v, strings.Split(c.path, "."), c.value)
		if _, err := loaded.Render("mise", v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", reason, err, c.want)
		}
	}
}

// TestMISEIsWhereItsClientsCallIt changes addresses of the configuration, with which no values can be computed.
func TestMISEIsWhereItsClientsCallIt(t *testing.T) {
	for value, c := range map[string]struct {
		path []string
		want string
	}{
		"http://mise.other.svc:8080/ValidateRequest": {[]string{"frontend", "authentication", "checkUrl"}, "is not at the Service of the chart mise"},
		"http://mise.mise.svc:8081/ValidateRequest":  {[]string{"frontend", "authentication", "checkUrl"}, "is not at the Service of the chart mise"},
		"https://collector.example:4318":             {[]string{"telemetry", "otlpEndpoint"}, "telemetry.otlpEndpoint: \"https://collector.example:4318\" is no Service of the cluster"},
	} {
		region := target(t, reference)
		*region.Configuration.Get(c.path...) = document.Node{Kind: document.Scalar, Value: value}
		found := must.Get(values.Find("mise", region))(t)
		if _, err := found.Values(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", value, err, c.want)
		}
	}
}
