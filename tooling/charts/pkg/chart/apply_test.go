package chart_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiodtest"
)

// server is a real API server with the CustomResourceDefinitions, the namespaces and the PriorityClasses that the charts need.
type server struct {
	cluster *kubeapitest.Cluster
	config  *rest.Config
	client  dynamic.Interface
	mapper  meta.RESTMapper
}

func startServer(t *testing.T) *server {
	t.Helper()
	cluster := kubeapitest.Start(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig()))(t)
	config.QPS = -1
	clustertest.InstallDefinitions(t, config)
	s := &server{cluster: cluster, config: config}
	s.client = must.Get(dynamic.NewForConfig(config))(t)
	plain := must.Get(discovery.NewDiscoveryClientForConfig(config))(t)
	groups := must.Get(restmapper.GetAPIGroupResources(plain))(t)
	s.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	for _, name := range []string{istiodtest.Namespace, "aks-istio-system"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		must.Do(t, s.apply(t, namespace, false))
	}
	return s
}

// apply applies an object as Helm does on the server's side. It refuses unknown fields.
func (s *server) apply(t *testing.T, object *unstructured.Unstructured, dryRun bool) error {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	encoded := must.Get(object.MarshalJSON())(t)
	force := true
	options := metav1.PatchOptions{FieldManager: "charts", Force: &force, FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = s.client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(), types.ApplyPatchType, encoded, options)
	return err
}

// TestRealAPIServer applies the charts to a real API server.
func TestRealAPIServer(t *testing.T) {
	nightly.Only(t)
	s, targets := startServer(t), charttest.Targets(t)
	t.Run("accepts every object of every chart for every region and stamp", func(t *testing.T) { s.acceptAll(t, targets) })
	t.Run("refuses mistakes", func(t *testing.T) { s.refuseBroken(t, target(t, reference), target(t, referenceStamp)) })
	t.Run("limits the service account of the agent", func(t *testing.T) { s.limitAgent(t, targets) })
}

// createNamespaces applies the charts of clusters, because namespaces must exist for the objects of the others.
func (s *server) createNamespaces(t *testing.T, targets []values.Target) {
	t.Helper()
	for _, target := range targets {
		for _, p := range charttest.Platforms(target) {
			if p.Name == "cluster" {
				for _, object := range charttest.RenderPlatform(t, p, target) {
					if err := s.apply(t, object, false); err != nil {
						t.Fatalf("%s: chart cluster: %s: %v", target.Name, chart.ID(object), err)
					}
				}
			}
		}
	}
}

// acceptAll applies every object as a dry run and then for real. Targets have objects of the same names, and some of their fields cannot
// change, so those in namespaces are deleted before the next target.
func (s *server) acceptAll(t *testing.T, targets []values.Target) {
	t.Helper()
	s.createNamespaces(t, targets)
	applied := map[string]int{}
	for _, target := range targets {
		var created []*unstructured.Unstructured
		for name, objects := range charttest.RenderAll(t, target) {
			for _, object := range objects {
				for _, dryRun := range []bool{true, false} {
					if err := s.apply(t, object, dryRun); err != nil {
						t.Errorf("%s: chart %s: %s: dry run %t: %v", target.Name, name, chart.ID(object), dryRun, err)
					}
				}
				created = append(created, object)
				applied[object.GetKind()]++
			}
		}
		for _, object := range created {
			if object.GetNamespace() == "" {
				continue
			}
			if err := s.remove(t, object); err != nil {
				t.Errorf("%s: deleting %s: %v", target.Name, chart.ID(object), err)
			}
		}
	}
	t.Logf("applied: %v", applied)
}

// remove deletes an object. It fails if the object does not exist.
func (s *server) remove(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	// The default of jobs waits for a controller.
	propagation := metav1.DeletePropagationBackground
	return s.client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &propagation})
}

// mistake is a change of one field of an object, and the error of the server.
type mistake struct {
	kind, name, field string
	value             any
	want              string
}

// broken returns mistakes that the server must refuse. docs/deploy/charts.md shows some of them.
func broken() []mistake {
	return []mistake{
		{"PodMonitor", "frontend", "spec.podMetricsEndpoints.0.intervall", "30s", `.spec.podMetricsEndpoints[0].intervall: field not declared in schema`},
		{"PodMonitor", "frontend", "spec.podMetricsEndpoints.0.interval", "often", `spec.podMetricsEndpoints[0].interval in body should match`},
		{"AuthorizationPolicy", "calls", "spec.action", "ALOW", `spec.action: Unsupported value: "ALOW"`},
		{"PeerAuthentication", "strict", "spec.mtls.mode", "STRIKT", `spec.mtls.mode: Unsupported value: "STRIKT"`},
		{"Service", "arm", "spec.externalTrafficPolicy", "Node", `spec.externalTrafficPolicy: Unsupported value: "Node"`},
		{"SecretProviderClass", "arm", "spec.secretObjects.0.secretNames", "ingress-arm", `.spec.secretObjects[0].secretNames: field not declared in schema`},
		{"AuthorizationPolicy", "checks", "spec.rules.0.to.0.operation.path", []any{"/"}, `.spec.rules[0].to[0].operation.path: field not declared in schema`},
		{"DestinationRule", "mise", "spec.trafficPolicy.tls.mode", "ISTIO", `spec.trafficPolicy.tls.mode: Unsupported value: "ISTIO"`},
		{"Deployment", "mise", "spec.template.spec.containers.0.livenessProbe.httpGet.port", "checks-of-requests", `spec.template.spec.containers[0].livenessProbe.httpGet.port: Invalid value`},
		{"ConfigMap", "mise", "data", map[string]any{"appsettings.json": map[string]any{}}, `appsettings.json`},
		{"Gateway", "arm", "spec.servers.0.tls.mode", "SIMPEL", `spec.servers[0].tls.mode: Unsupported value: "SIMPEL"`},
		{"SecretProviderClass", "frontend-keys", "spec.parameters.usePodIdentity", false, `spec.parameters.usePodIdentity`},
		{"Deployment", "frontend", "spec.template.spec.containers.0.image", "", `spec.template.spec.containers[0].image: Required value`},
		{"Deployment", "frontend", "spec.template.metadata.labels", map[string]any{"app": "other"}, "`selector` does not match template `labels`"},
		{"StatefulSet", "backend", "spec.podManagementPolicy", "Paralel", `spec.podManagementPolicy`},
		{"NetworkPolicy", "frontend", "spec.policyTypes", []any{"Ingres"}, `spec.policyTypes[0]: Unsupported value: "Ingres"`},
		{"PodDisruptionBudget", "frontend", "spec.unhealthyPodEvictionPolicy", "Always", `spec.unhealthyPodEvictionPolicy: Unsupported value: "Always"`},
		{"Service", "frontend", "spec.ports.0.port", int64(84433), `spec.ports[0].port: Invalid value: 84433`},
		{"ServiceAccount", "frontend", "automountServiceAccountTokens", false, `.automountServiceAccountTokens: field not declared in schema`},
		{"PriorityClass", "hcpmesh-service", "preemptionPolicy", "Always", `preemptionPolicy`},
		{"ClusterSizingConfiguration", "cluster", "spec.sizes.0.effects.kasGoMemLimit", "much", `spec.sizes[0].effects.kasGoMemLimit in body should match`},
		{"ClusterSizingConfiguration", "cluster", "spec.concurency", int64(5), `.spec.concurency: field not declared in schema`},
		{"Job", "cluster-service-migration", "spec.template.spec.restartPolicy", "Always", `spec.template.spec.restartPolicy`},
	}
}

func (s *server) refuseBroken(t *testing.T, targets ...values.Target) {
	t.Helper()
	byID := map[string]*unstructured.Unstructured{}
	for _, target := range targets {
		for _, objects := range charttest.RenderAll(t, target) {
			for _, object := range objects {
				byID[object.GetKind()+" "+object.GetName()] = object
			}
		}
	}
	for _, c := range broken() {
		original := byID[c.kind+" "+c.name]
		if original == nil {
			t.Errorf("no chart has %s %s", c.kind, c.name)
			continue
		}
		object := original.DeepCopy()
		charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
		if err := s.apply(t, object, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s with %s=%v: got %v, want %q", c.kind, c.name, c.field, c.value, err, c.want)
		}
	}
}

// limitAgent applies the rights in the agent's chart and sends requests as the agent's service account.
func (s *server) limitAgent(t *testing.T, targets []values.Target) {
	t.Helper()
	for _, target := range targets {
		w, _ := workload.Find("maestro-agent")
		if !values.Applies(w, target) {
			continue
		}
		for _, object := range charttest.Render(t, w, target) {
			if object.GetNamespace() == "" { // the rights
				if err := s.apply(t, object, false); err != nil {
					t.Fatalf("%s: %v", chart.ID(object), err)
				}
			}
		}
		break
	}
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:maestro-agent:maestro-agent",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:maestro-agent", "system:authenticated"}}
	client := must.Get(dynamic.NewForConfig(config))(t)
	agent := &server{client: client, mapper: s.mapper}
	object := func(kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}}
		o.SetNamespace(namespace)
		return o
	}
	eventually.Soon(t, "the server enforces the admission policy", func() error {
		if err := agent.apply(t, object("ConfigMap", "default", "probe"), true); err == nil || !strings.Contains(err.Error(), "namespaces of clusters") {
			return fmt.Errorf("a ConfigMap in the namespace default: %v", err)
		}
		return nil
	})

	if err := agent.apply(t, object("Namespace", "", "ocm-test-1"), false); err != nil {
		t.Errorf("a namespace of a cluster: %v", err)
	}
	if err := agent.apply(t, object("ConfigMap", "ocm-test-1", "c"), false); err != nil {
		t.Errorf("a ConfigMap of a cluster: %v", err)
	}
	if err := agent.apply(t, object("ServiceAccount", "ocm-test-1", "a"), true); !apierrors.IsForbidden(err) {
		t.Errorf("a service account: %v", err)
	}
}
