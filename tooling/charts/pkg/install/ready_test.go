package install

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOldStatesAreIgnored: a watch begins with the state in the cache of the API server. If it is from before the last write, or of an object that was deleted, a
// wait must not take it for the result of the write. The test repeats an old list of a real API server in place of the first one.
func TestOldStatesAreIgnored(t *testing.T) {
	config, clients := startAPIServer(t)
	labels := map[string]string{"app": "store"}
	create := func(t *testing.T) *appsv1.StatefulSet {
		t.Helper()
		set := must.Get(clients.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "store"},
			Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "store", Image: "example.com/store:1"}}}}}}, metav1.CreateOptions{}))(t)
		return set
	}
	for name, write := range map[string]func(*testing.T, *appsv1.StatefulSet){
		"an earlier generation": func(t *testing.T, set *appsv1.StatefulSet) {
			set.Spec.Template.Spec.Containers[0].Image = "example.com/store:2"
			must.Get(clients.AppsV1().StatefulSets(metav1.NamespaceDefault).Update(t.Context(), set, metav1.UpdateOptions{}))(t)
		},
		"a deleted object": func(t *testing.T, set *appsv1.StatefulSet) {
			must.Do(t, clients.AppsV1().StatefulSets(metav1.NamespaceDefault).Delete(t.Context(), set.Name, metav1.DeleteOptions{}))
			create(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := create(t)
			t.Cleanup(func() {
				if err := clients.AppsV1().StatefulSets(metav1.NamespaceDefault).Delete(context.Background(), set.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
			old := must.Get(clients.AppsV1().RESTClient().Get().Resource("statefulsets").Namespace(metav1.NamespaceDefault).Param("fieldSelector", "metadata.name=store").SetHeader("Accept", "application/json").DoRaw(t.Context()))(t)
			write(t, set)
			var repeated atomic.Bool
			stale := rest.CopyConfig(config)
			stale.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/statefulsets") && !r.URL.Query().Has("watch") && !repeated.Swap(true) {
						return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(old)), Request: r}, nil
					}
					return next.RoundTrip(r)
				})
			})
			_, c, err := connect(t.Context(), metav1.NamespaceDefault, Options{Cluster: stale, ReadyWithin: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			resources := must.Get(c.Build(strings.NewReader("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: store}, spec: {selector: {matchLabels: {app: store}}, template: {}, serviceName: store}}"), false))(t)
			info := resources[0]
			if err := info.Get(); err != nil { // as after a write
				t.Fatal(err)
			}
			written := info.Object.(*unstructured.Unstructured)
			var seen []string
			err = untilObject(t.Context(), info, func(object *unstructured.Unstructured) (bool, error) {
				seen = append(seen, object.GetResourceVersion())
				return object.GetResourceVersion() == written.GetResourceVersion(), nil
			})
			if err != nil || !slices.Equal(seen, []string{written.GetResourceVersion()}) || !repeated.Load() {
				t.Errorf("the wait got the states %v and ended with %v; want only %s", seen, err, written.GetResourceVersion())
			}
		})
	}
}
