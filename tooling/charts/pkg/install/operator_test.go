package install

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

var sizingConfigurations = schema.GroupVersionResource{Group: "scheduling.hypershift.openshift.io", Version: "v1alpha1", Resource: "clustersizingconfigurations"}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// operatorRelease returns the release of HyperShift's operator with the sizes of a stamp.
func operatorRelease(t *testing.T) Release {
	t.Helper()
	for _, target := range charttest.Targets(t) {
		if target.Name != "public/prod/uksouth/1" {
			continue
		}
		found := must.Get(values.Find("hypershift-operator", target))(t)
		v := must.Get(found.Values())(t)
		loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), filepath.FromSlash(found.Folder))))(t)
		loaded.Helm().Metadata.KubeVersion = "" // the API server of tests is built without its version
		return Release{Chart: loaded, Namespace: found.Namespace, Values: v}
	}
	t.Fatal("there is no such stamp")
	return Release{}
}

// sizes returns the names of the sizes in the cluster.
func sizes(t *testing.T, c *clustertest.Cluster) []string {
	t.Helper()
	client := must.Get(dynamic.NewForConfig(c.Config))(t)
	object := must.Get(client.Resource(sizingConfigurations).Get(t.Context(), "cluster", metav1.GetOptions{}))(t)
	list, _, err := unstructured.NestedSlice(object.Object, "spec", "sizes")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, size := range list {
		name, _, _ := unstructured.NestedString(size.(map[string]any), "name")
		names = append(names, name)
	}
	return names
}

// definitionsOf returns the number of definitions in the cluster.
func definitionsOf(t *testing.T, c *clustertest.Cluster) (int, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return 0, err
	}
	list, err := client.Resource(definitions).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// TestOperatorIsInstalledWithoutLastingRights installs the chart of HyperShift's operator in a cluster without HyperShift's definitions. The sizes
// exist before the job runs, because the operator would create others. Nobody keeps the rights of the job.
func TestOperatorIsInstalledWithoutLastingRights(t *testing.T) {
	c := clustertest.Start(t)
	r := operatorRelease(t)
	must.Get(c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}}, metav1.CreateOptions{}))(t)
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "hcpmesh-service"}, Value: 1000000}
	must.Get(c.Client.SchedulingV1().PriorityClasses().Create(t.Context(), priority, metav1.CreateOptions{}))(t)
	install := func(r Release) Result {
		t.Helper()
		log := &lockedLog{}
		result, err := Install(t.Context(), r, Options{Cluster: c.Config, ReadyWithin: 2 * time.Minute, Log: log})
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if _, err := c.Client.RbacV1().ClusterRoleBindings().Get(t.Context(), "hypershift-installer", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the rights of the job after its end: %v", err)
		}
		if _, err := c.Client.CoreV1().ServiceAccounts(r.Namespace).Get(t.Context(), "hypershift-installer", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the account of the job after its end: %v", err)
		}
		return result
	}
	options := Options{Cluster: c.Config, ReadyWithin: 2 * time.Minute}
	difference, err := Diff(t.Context(), r, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"+++ CustomResourceDefinition clustersizingconfigurations.scheduling.hypershift.openshift.io\n", "+++ ClusterSizingConfiguration cluster\n", "+++ Job "} {
		if !strings.Contains(difference, part) {
			t.Errorf("before the installation, the difference does not contain %q:\n%s", part, difference)
		}
	}
	if number, err := definitionsOf(t, c); err != nil || number != 0 {
		t.Errorf("the difference left %d definitions: %v", number, err)
	}
	if result := install(r); !result.Changed || len(sizes(t, c)) != 5 {
		t.Errorf("the first installation: %+v, with the sizes %v", result, sizes(t, c))
	}
	if result := install(r); result.Changed {
		t.Errorf("the second installation: %+v", result)
	}
	if difference, err = Diff(t.Context(), r, options); err != nil || difference != "" {
		t.Errorf("the difference after the installation: %v\n%s", err, difference)
	}
	encoded := must.Get(json.Marshal(r.Values))(t)
	changed := map[string]any{}
	must.Do(t, json.Unmarshal(encoded, &changed))
	last := changed["sizes"].([]any)[:1]
	delete(last[0].(map[string]any), "maxNodes")
	changed["sizes"] = last
	r.Values = changed
	if result := install(r); !result.Changed || len(sizes(t, c)) != 1 {
		t.Errorf("the upgrade: %+v, with the sizes %v", result, sizes(t, c))
	}
}
