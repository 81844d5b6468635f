package chart_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// gateways returns the chart of the gateways, and its values in one region whose engineers connect from the given sources.
func gateways(t *testing.T, sources ...string) (*chart.Chart, map[string]any) {
	t.Helper()
	region := target(t, reference)
	list := region.Configuration.Get("ingress", "admin", "sources")
	list.Items = nil
	for _, source := range sources {
		list.Items = append(list.Items, &document.Node{Kind: document.Scalar, Value: source, Origin: list.Origin})
	}
	found := must.Get(values.Find("ingress", region))(t)
	computed := must.Get(found.Values())(t)
	loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), found.Folder)))(t)
	return loaded, plain(t, computed)
}

// TestGatewaysHaveTheirAddressesAndSources renders the Services of the gateways for each kind of sources.
func TestGatewaysHaveTheirAddressesAndSources(t *testing.T) {
	const annotation = "service.beta.kubernetes.io/azure-"
	type service struct {
		Type        string
		Annotations map[string]string
		Ranges      []string
	}
	address := func(name string) map[string]string {
		return map[string]string{annotation + "pip-name": "hcpm-prod-uks-svc-" + name, annotation + "load-balancer-resource-group": "hcpm-prod-uks-svc"}
	}
	tagged := func(name, tag string) map[string]string {
		all := address(name)
		all[annotation+"allowed-service-tags"] = tag
		return all
	}
	for reason, c := range map[string]struct {
		sources []string
		admin   service
	}{
		"no sources":    {nil, service{Type: "ClusterIP"}},
		"a service tag": {[]string{"CorpNetPublic"}, service{"LoadBalancer", tagged("admin", "CorpNetPublic"), nil}},
		"two ranges":    {[]string{"192.0.2.0/24", "198.51.100.0/25"}, service{"LoadBalancer", address("admin"), []string{"192.0.2.0/24", "198.51.100.0/25"}}},
	} {
		loaded, v := gateways(t, c.sources...)
		objects, err := loaded.Render("ingress", v)
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		got := map[string]service{}
		for _, object := range objects {
			if object.GetKind() == "Service" {
				kind, _, _ := unstructured.NestedString(object.Object, "spec", "type")
				ranges, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "loadBalancerSourceRanges")
				got[object.GetName()] = service{kind, object.GetAnnotations(), ranges}
			}
		}
		want := map[string]service{"arm": {"LoadBalancer", tagged("arm", "AzureResourceManager"), nil}, "admin": c.admin, "tunnels": {"LoadBalancer", tagged("tunnels", "AzureCloud.uksouth"), nil}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", reason, diff)
		}
	}
}

// TestWrongGatewaysAreRefused changes values with which a gateway would be open to others, or would send requests elsewhere.
func TestWrongGatewaysAreRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		path  string
		value any
		want  string
	}{
		"everybody":              {"gateways.admin.ranges", []any{"0.0.0.0/0"}, "at '/gateways/admin/ranges/0'"},
		"a tag and ranges":       {"gateways.arm.ranges", []any{"192.0.2.0/24"}, "gateways.arm: has a service tag and ranges"},
		"two tags":               {"gateways.arm.serviceTags", []any{"AzureResourceManager", "Internet"}, "at '/gateways/arm/serviceTags'"},
		"no certificate":         {"gateways.arm.routes.0.certificate", "", "at '/gateways/arm/routes/0/certificate'"},
		"no host":                {"gateways.admin.routes.1.host", "", "at '/gateways/admin/routes/1/host'"},
		"no route":               {"gateways.admin.routes", []any{}, "at '/gateways/admin/routes'"},
		"no address":             {"gateways.admin.address", "", "at '/gateways/admin/address'"},
		"no identity":            {"gateways.admin.identity.clientId", "", "at '/gateways/admin/identity/clientId'"},
		"a path of its own":      {"gateways.tunnels.routes.0.prefix", "/tunnels", "at '/gateways/tunnels/routes/0/prefix'"},
		"another gateway":        {"gateways.other", map[string]any{}, "additional properties 'other' not allowed"},
		"a check of the outside": {"gateways.arm.check.host", "mise.example.com", "at '/gateways/arm/check/host'"},
	} {
		loaded, v := gateways(t, "192.0.2.0/24")
		charttest.Set(t, v, strings.Split(c.path, "."), c.value)
		if _, err := loaded.Render("ingress", v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", reason, err, c.want)
		}
	}
}
