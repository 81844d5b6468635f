package chart_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiodtest"
)

// isIstio reports whether an object is of one of Istio's kinds.
func isIstio(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GroupVersionKind().Group, ".istio.io")
}

// istioMistakes are mistakes that the API server accepts and istiod rejects.
func istioMistakes() []mistake {
	return []mistake{
		{"AuthorizationPolicy", "arm-check", "spec.provider.name", "", "`provider.name` must not be empty"},
		{"AuthorizationPolicy", "calls", "spec.rules.0.to.0.operation.notPorts", []any{"many"}, "port"},
		{"Gateway", "arm", "spec.servers.0.tls.credentialName", "", "SIMPLE TLS requires a server certificate"},
		{"Gateway", "arm", "spec.servers.0.hosts", []any{"rp.*.example"}, "wildcard"},
		{"VirtualService", "arm", "spec.http.0.retries.retryOn", "often", "retryOn"},
		{"VirtualService", "arm", "spec.http.0.route.0.destination.host", "", "empty domain name not allowed"},
	}
}

// TestIstiodValidates sends Istio's objects of every chart for every region and stamp to istiod's validation.
func TestIstiodValidates(t *testing.T) {
	istiodtest.Programs(t)
	targets := charttest.Targets(t)
	s := startServer(t)
	s.createNamespaces(t, targets)
	istiod := istiodtest.Start(t, s.cluster, "cluster.local")
	validated, byID := map[string]int{}, map[string]*unstructured.Unstructured{}
	for _, target := range targets {
		for name, objects := range charttest.RenderAll(t, target) {
			for _, object := range objects {
				if !isIstio(object) {
					continue
				}
				warnings, err := istiod.Validate(t.Context(), encoded(t, object))
				if err != nil || len(warnings) > 0 {
					t.Errorf("%s: chart %s: %s: %v, warnings %q", target.Name, name, chart.ID(object), err, warnings)
				}
				validated[object.GetKind()]++
				byID[object.GetKind()+" "+object.GetName()] = object
			}
		}
	}
	if len(validated) == 0 {
		t.Fatal("no chart has an object of Istio")
	}
	t.Logf("validated: %v", validated)
	t.Run("rejects mistakes that the API server accepts", func(t *testing.T) {
		for _, c := range istioMistakes() {
			original := byID[c.kind+" "+c.name]
			if original == nil {
				t.Errorf("no chart has %s %s", c.kind, c.name)
				continue
			}
			object := original.DeepCopy()
			charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
			if err := s.apply(t, object, true); err != nil {
				t.Errorf("%s %s with %s=%v: the API server rejects it: %v", c.kind, c.name, c.field, c.value, err)
			}
			_, err := istiod.Validate(t.Context(), encoded(t, object))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s with %s=%v: got %v, want %q", c.kind, c.name, c.field, c.value, err, c.want)
			}
		}
	})
}

func encoded(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	return must.Get(object.MarshalJSON())(t)
}

// object returns an object of the API group v1 with labels and a specification.
func object(kind, namespace, name string, labels map[string]string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(labels)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// applySurroundings applies what Istio's objects of all regions and stamps refer to and no chart has: the certificates of the gateways, and
// the namespace of Prometheus.
func (s *server) applySurroundings(t *testing.T, targets []values.Target) {
	t.Helper()
	s.createNamespaces(t, targets)
	s.need(t, object("Namespace", "", workload.MonitoringNamespace, nil, nil))
	for _, name := range []string{"ingress-access", "ingress-admin", "ingress-arm", "ingress-portal", "ingress-tunnels"} {
		secret := object("Secret", workload.GatewayNamespace, name, nil, nil)
		secret.Object["stringData"] = certificate(t)
		s.need(t, secret)
	}
}

// applyWorkloads applies what Istio's objects of one region or stamp refer to: the Services of its charts, which replace those of another one, and a
// pod of each workload and gateway. The pods have a sidecar, because istioctl ignores others; Istio would inject those of the charts.
func (s *server) applyWorkloads(t *testing.T, rendered map[string]chart.Objects) {
	t.Helper()
	for _, objects := range rendered {
		for _, o := range objects {
			labels, found, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			switch {
			case err != nil:
				t.Fatal(err)
			case o.GetKind() == "Service":
				s.need(t, o)
			case found:
				s.need(t, object("ServiceAccount", o.GetNamespace(), "default", nil, nil))
				s.need(t, object("Pod", o.GetNamespace(), o.GetName(), labels, map[string]any{"automountServiceAccountToken": false,
					"containers":      []any{map[string]any{"name": "istio-proxy", "image": "none", "securityContext": restricted()}},
					"securityContext": map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}}))
			}
		}
	}
}

// need applies an object.
func (s *server) need(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if err := s.apply(t, object, false); err != nil {
		t.Fatalf("%s: %v", chart.ID(object), err)
	}
}

// certificate returns the data of a Secret with a certificate.
func certificate(t *testing.T) map[string]any {
	t.Helper()
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(filepath.Join(dir, "authority"), "charts.example")
	if err == nil {
		err = authority.Issue(dir, mesh.ARMFrontDoor)
	}
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	for key, file := range map[string]string{"tls.crt": mesh.CertificateFile, "tls.key": mesh.KeyFile, "ca.crt": mesh.CAFile} {
		text := must.Get(os.ReadFile(filepath.Join(dir, file)))(t)
		data[key] = string(text)
	}
	return data
}

// restricted returns the security context of containers under the pod security standard restricted.
func restricted() map[string]any {
	return map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}}
}

// unseen is what istioctl reports for a reference to kube-system, in which AKS has the agent that reads metrics: istioctl reads no object of the
// namespaces of Kubernetes.
const unseen = `Referenced namespace not found: "kube-system"`

// analyze lets istioctl analyze the objects of Istio together with those of the API server. The error contains what it finds.
func (s *server) analyze(t *testing.T, rendered map[string]chart.Objects) error {
	t.Helper()
	var text bytes.Buffer
	for _, objects := range rendered {
		for _, object := range objects {
			if isIstio(object) {
				fmt.Fprintf(&text, "---\n%s\n", encoded(t, object))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "objects.yaml")
	must.Do(t, os.WriteFile(file, text.Bytes(), 0o600))
	command := exec.CommandContext(t.Context(), filepath.Join(istiodtest.Programs(t), "istioctl"), "analyze", "--kubeconfig="+s.cluster.Kubeconfig(),
		"--all-namespaces", "--output=json", "--output-threshold=Warning", "--failure-threshold=Warning", file)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, failed := command.Output()
	var findings []struct{ Code, Origin, Message string }
	if err := json.Unmarshal(output, &findings); err != nil {
		return fmt.Errorf("istioctl: %w: %s%s", errors.Join(failed, err), output, problems.Bytes())
	}
	var all []error
	for _, finding := range findings {
		if finding.Message != unseen {
			all = append(all, fmt.Errorf("%s (%s): %s", finding.Code, finding.Origin, finding.Message))
		}
	}
	if failed != nil && len(findings) == 0 {
		all = append(all, fmt.Errorf("istioctl: %w: %s", failed, problems.Bytes()))
	}
	return errors.Join(all...)
}

// TestIstioAnalyzes analyzes the objects of all charts of each region and stamp: references between them, and conflicts.
func TestIstioAnalyzes(t *testing.T) {
	istiodtest.Programs(t)
	targets := charttest.Targets(t)
	s := startServer(t)
	s.applySurroundings(t, targets)
	for _, target := range targets {
		rendered := charttest.RenderAll(t, target)
		s.applyWorkloads(t, rendered)
		if err := s.analyze(t, rendered); err != nil {
			t.Errorf("%s: %v", target.Name, err)
		}
	}
	t.Run("finds mistakes", func(t *testing.T) {
		s.applyWorkloads(t, charttest.RenderAll(t, targets[0]))
		for _, c := range []mistake{
			{"VirtualService", "arm", "spec.gateways", []any{"other"}, "IST0101"},
			{"VirtualService", "arm", "spec.http.0.route.0.destination.host", "fronted.frontend.svc.cluster.local", "IST0101"},
			{"Gateway", "arm", "spec.selector.istio", "ingress", "IST0101"},
			{"AuthorizationPolicy", "metrics", "spec.rules.0.from.0.source.namespaces", []any{"prometheus"}, "IST0101"},
			{"AuthorizationPolicy", "calls", "spec.selector.matchLabels", map[string]any{"app": "other"}, "IST0127"},
		} {
			rendered := charttest.RenderAll(t, targets[0])
			for _, objects := range rendered {
				for _, object := range objects {
					if object.GetKind() == c.kind && object.GetName() == c.name {
						charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
					}
				}
			}
			if err := s.analyze(t, rendered); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s with %s=%v: got %v, want %q", c.kind, c.name, c.field, c.value, err, c.want)
			}
		}
	})
}
