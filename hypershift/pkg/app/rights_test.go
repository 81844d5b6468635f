package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// asServiceAccount applies the rights of the chart and returns the cluster as the service account of the runtime.
func (m *managementCluster) asServiceAccount(t *testing.T) *managementCluster {
	t.Helper()
	text := must.Get(os.ReadFile("../../deploy/rights.yaml"))(t)
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := m.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("applying %s: %v", object.GetKind(), err)
		}
	}
	limited := *m
	limited.config = rest.CopyConfig(m.config)
	limited.config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:hypershift:hypershift",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:hypershift", "system:authenticated"}}
	limited.client = must.Get(client.NewWithWatch(limited.config, client.Options{Scheme: m.client.Scheme()}))(t)
	eventually.Soon(t, "the API server enforces the role and the policy", func() error {
		err := limited.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "namespaces of clusters") {
			return fmt.Errorf("a ConfigMap in the namespace default: %v", err)
		}
		return nil
	})
	return &limited
}

// expectLimits sends requests that the runtime never sends as its service account, as dry runs. They are forbidden.
func (m *managementCluster) expectLimits(t *testing.T, limited client.Client) {
	t.Helper()
	const namespace = "ocm-test-limits"
	create := func(object client.Object) error { return limited.Create(t.Context(), object, client.DryRunAll) }
	for _, name := range []string{namespace, "limits"} {
		if err := m.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "limits"}
	if err := create(&corev1.Secret{ObjectMeta: meta}); err != nil {
		t.Errorf("a Secret in a namespace of a cluster: %v", err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.work.open-cluster-management.io"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "work.open-cluster-management.io", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/program"}}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: pod.Spec}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}
	role := &unstructured.Unstructured{Object: map[string]any{"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "limits"},
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "hypershift", "namespace": "hypershift"}}}}
	for reason, object := range map[string]client.Object{
		"a Secret in another namespace":    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "limits", Name: "limits"}},
		"another namespace":                &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "limits-2"}},
		"a definition that is not its own": definition,
		"an image by tag":                  deployment,
		"a program":                        pod,
		"the rights of an administrator":   role,
	} {
		if err := create(object); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", reason, err)
		}
	}
	if err := limited.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "limits"}}, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("the deletion of another namespace: %v, want it forbidden", err)
	}
}
