package chart_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiopolicy"
)

// portalPort returns the port of the SRE portal.
func portalPort(t *testing.T) uint16 {
	t.Helper()
	admin, ok := workload.Find(mesh.Admin)
	if !ok || admin.Portal == nil {
		t.Fatal("admin has no port of the portal")
	}
	return uint16(admin.Portal.Number)
}

// TestPoliciesOfMeshAreCurrent compares the Istio objects of the chart mesh with the authorization table.
func TestPoliciesOfMeshAreCurrent(t *testing.T) {
	options := istiopolicy.Options{
		TrustDomain: "trust-domain.invalid", OperationsPort: 9090, PortalPort: portalPort(t), MonitoringNamespace: workload.AddOnNamespace,
		ARMGateway:    istiopolicy.ServiceAccount{Namespace: workload.GatewayNamespace, Name: workload.ARMGateway},
		AdminGateway:  istiopolicy.ServiceAccount{Namespace: workload.GatewayNamespace, Name: workload.AdminGateway},
		TunnelGateway: istiopolicy.ServiceAccount{Namespace: workload.GatewayNamespace, Name: workload.TunnelGateway},
	}
	for _, w := range workload.All() {
		if !w.Management && !w.PrivateLink { // a program without a sidecar
			options.Workloads = append(options.Workloads, w.Peer)
		}
	}
	objects := must.Get(istiopolicy.Render(mesh.Rules(), options))(t)
	stream := must.Get(istiopolicy.YAML(objects))(t)
	var all bytes.Buffer
	for document := range strings.SplitSeq(string(stream), "---\n") {
		all.WriteString("---\n")
		all.Write(labelled(t, []byte(document), "mesh"))
	}
	compareFile(t, "dev-infrastructure/charts/mesh/policies.yaml", all.Bytes())
}

// TestRightsOnManagementClustersAreCurrent compares the rights in the charts of Maestro's agent, of the prober and of the agent of tunnels with
// package managementaccess. In a cluster, all are service accounts and not users. The agent of tunnels changes nothing and has no policy.
func TestRightsOnManagementClustersAreCurrent(t *testing.T) {
	for name, folder := range map[string]string{managementaccess.Agent: "maestro/agent/deploy", managementaccess.Prober: "monitor/inside/deploy", managementaccess.Tunnel: "gateway/tunnel/deploy"} {
		// The chart replaces the repositories.
		objects := must.Get(managementaccess.Objects(name, `{{ join "," .Values.releaseRepositories }}`))(t)
		replacements := map[string]string{
			"- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: " + name + "\n": "- kind: ServiceAccount\n  name: " + name + "\n  namespace: " + name + "\n",
			"request.userInfo.username == '" + name + "'":                                 "request.userInfo.username == 'system:serviceaccount:" + name + ":" + name + "'",
		}
		counts := map[string]int{}
		var all bytes.Buffer
		for _, file := range slices.Sorted(maps.Keys(objects)) {
			content := string(objects[file])
			for old, replacement := range replacements {
				counts[old] += strings.Count(content, old)
				content = strings.ReplaceAll(content, old, replacement)
			}
			all.WriteString("---\n")
			all.Write(labelled(t, []byte(content), name))
		}
		for old := range replacements {
			want := 1
			switch isPolicy := strings.HasPrefix(old, "request."); {
			case name == managementaccess.Tunnel && isPolicy:
				want = 0
			case name == managementaccess.Tunnel: // the role for the cluster, and that for tokens in its namespace
				want = 2
			}
			if counts[old] != want {
				t.Errorf("%q is %d times in the objects of %s, want %d", old, counts[old], name, want)
			}
		}
		compareFile(t, folder+"/rights.yaml", all.Bytes())
	}
}

// TestRightsOnServiceClusterAreCurrent compares the rights in the chart of gateway-grants with those of access sessions on management clusters, which differ in
// what the mode read may read.
func TestRightsOnServiceClusterAreCurrent(t *testing.T) {
	objects := must.Get(managementaccess.Objects(managementaccess.Tunnel, ""))(t)
	const name = string(mesh.GatewayGrants)
	var all bytes.Buffer
	roles := 0
	for _, file := range slices.Sorted(maps.Keys(objects)) {
		if !strings.Contains(file, "-access-") {
			continue // what tunnels need
		}
		content := strings.ReplaceAll(string(objects[file]), "- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: "+managementaccess.Tunnel+"\n", "- kind: ServiceAccount\n  name: "+name+"\n  namespace: "+name+"\n")
		content = strings.ReplaceAll(content, managementaccess.Tunnel, name)
		var object map[string]any
		must.Do(t, yaml.Unmarshal([]byte(content), &object))
		if object["kind"] == "ClusterRole" {
			roles++
			var rules []map[string]any
			for _, rule := range readrules.ServiceCluster() {
				rules = append(rules, map[string]any{"apiGroups": []string{rule.Group}, "resources": rule.Resources, "verbs": readrules.Verbs()})
			}
			object["rules"] = append(rules, map[string]any{"nonResourceURLs": []string{"*"}, "verbs": []string{"get"}})
		}
		encoded := must.Get(yaml.Marshal(object))(t)
		all.WriteString("---\n")
		all.Write(labelled(t, encoded, name))
	}
	if roles != 1 {
		t.Errorf("the objects have %d roles for the cluster, want that of the mode read", roles)
	}
	compareFile(t, "gateway/grants/deploy/rights.yaml", all.Bytes())
}

// TestDefinitionsOfAgentAreCurrent compares the definition of AppliedManifestWorks in the agent's chart with the published one.
func TestDefinitionsOfAgentAreCurrent(t *testing.T) {
	const published = "work/v1/0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml"
	text := must.Get(os.ReadFile(filepath.Join(clustertest.DefinitionsFolder(t, "open-cluster-management.io/api"), published)))(t)
	var definition map[string]any
	must.Do(t, yaml.Unmarshal(text, &definition))
	delete(definition, "status") // it is the API server's
	// With the definition, Kubernetes deletes all AppliedManifestWorks, and with them what the agent has applied.
	definition["metadata"].(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"}
	text = must.Get(yaml.Marshal(definition))(t)
	compareFile(t, "maestro/agent/deploy/definitions.yaml", append([]byte("---\n"), labelled(t, text, "maestro-agent")...))
}

// TestDefinitionOfSizesIsCurrent compares the definition of sizes in the chart of HyperShift's operator with the published one. The chart has
// it because its object of this kind exists before the operator, whose command installs all definitions.
func TestDefinitionOfSizesIsCurrent(t *testing.T) {
	const published = "cmd/install/assets/crds/hypershift-operator/scheduling.hypershift.openshift.io_clustersizingconfigurations.yaml"
	text := must.Get(os.ReadFile(filepath.Join(clustertest.DefinitionsFolder(t, "github.com/openshift/hypershift"), published)))(t)
	compareFile(t, "dev-infrastructure/charts/hypershift-operator/crds/sizes.yaml", text)
}

// labelled returns an object with the labels of a chart.
func labelled(t *testing.T, document []byte, name string) []byte {
	t.Helper()
	var object map[string]any
	must.Do(t, yaml.Unmarshal(document, &object))
	metadata := object["metadata"].(map[string]any)
	metadata["labels"] = map[string]any{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "hcpmesh", "app.kubernetes.io/managed-by": "Helm"}
	return must.Get(yaml.Marshal(object))(t)
}

// compareFile compares a generated file of a chart. With -update it writes it.
func compareFile(t *testing.T, name string, want []byte) {
	t.Helper()
	file := filepath.Join(charttest.Root(t), filepath.FromSlash(name))
	if *update {
		must.Do(t, os.WriteFile(file, want, 0o644))
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is out of date (%v): run the test with -update", name, err)
	}
}
