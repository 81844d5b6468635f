package install

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestHopelessPods checks after which states of its container a pod cannot become ready.
func TestHopelessPods(t *testing.T) {
	waiting := func(reason string, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "web", Image: "example.com/web", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	pull, pause := waiting("ErrImagePull", 0), waiting("ImagePullBackOff", 0)
	for name, c := range map[string]struct {
		states   []corev1.ContainerStatus
		hopeless bool
		reason   string
	}{
		"waits":          {[]corev1.ContainerStatus{waiting("ContainerCreating", 0), waiting("CreateContainerConfigError", 0)}, false, "a Secret can be created later"},
		"invalid image":  {[]corev1.ContainerStatus{waiting("InvalidImageName", 0)}, true, "nothing can repair it"},
		"two pulls":      {[]corev1.ContainerStatus{pull, pause, pull, pull, pause}, false, "the registry may respond again"},
		"three pulls":    {[]corev1.ContainerStatus{pull, pause, pull, pause, pull}, true, "the image is missing"},
		"two restarts":   {[]corev1.ContainerStatus{waiting("CrashLoopBackOff", 1), waiting("CrashLoopBackOff", 2)}, false, "a dependency may respond again"},
		"three restarts": {[]corev1.ContainerStatus{waiting("CrashLoopBackOff", 3)}, true, "the program ends always"},
		"was restarted":  {[]corev1.ContainerStatus{{Name: "web", RestartCount: 9, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, false, "it runs now"},
	} {
		counted := &starts{pulls: map[string]int{}, waiting: map[string]string{}}
		last := ""
		for _, state := range c.states {
			last = counted.hopeless(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{state}}})
		}
		if (last != "") != c.hopeless {
			t.Errorf("%s: %q; want a hopeless pod: %t, because %s", name, last, c.hopeless, c.reason)
		}
	}
}

// TestHopelessPodBeforeItsDeployment: a pod is hopeless, and does not change any more, before the controller has written into the Deployment
// that the pod's ReplicaSet is the current one.
func TestHopelessPodBeforeItsDeployment(t *testing.T) {
	config, clients := startAPIServer(t)
	// The wait watches the Deployment until it is ready, and once more for the hopeless pod.
	var watches atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/deployments") && r.URL.Query().Has("watch") {
				watches.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	_, c, err := connect(t.Context(), metav1.NamespaceDefault, Options{Cluster: config, ReadyWithin: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	selector := metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web"}}}}
	apps, pods := clients.AppsV1(), clients.CoreV1().Pods(metav1.NamespaceDefault)
	deployment := must.Get(apps.Deployments(metav1.NamespaceDefault).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &selector, Template: template}}, metav1.CreateOptions{}))(t)
	revision := map[string]string{revisionAnnotation: "2"}
	owner := *metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	set := must.Get(apps.ReplicaSets(metav1.NamespaceDefault).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-2", Annotations: revision, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       appsv1.ReplicaSetSpec{Selector: &selector, Template: template}}, metav1.CreateOptions{}))(t)
	owner = *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	must.Get(clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}))(t)
	pod := must.Get(pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-2-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: template.Spec}, metav1.CreateOptions{}))(t)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: maxStarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	must.Get(pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)

	resources, err := c.Build(strings.NewReader("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}}}"), false)
	if err != nil || len(resources) != 1 {
		t.Fatalf("%v, %v", resources, err)
	}
	failed := make(chan error, 1)
	go func() { failed <- c.wait(resources, time.Hour) }()
	eventually.Soon(t, "the hopeless pod waits for the Deployment", func() error {
		if n := watches.Load(); n < 2 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})

	deployment.Annotations = maps.Clone(revision)
	deployment = must.Get(apps.Deployments(metav1.NamespaceDefault).Update(t.Context(), deployment, metav1.UpdateOptions{}))(t)
	deployment.Status.ObservedGeneration = deployment.Generation
	must.Get(apps.Deployments(metav1.NamespaceDefault).UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{}))(t)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "pod web-2-1: the container web has ended 4 times") {
		t.Errorf("got %v", err)
	}
}
