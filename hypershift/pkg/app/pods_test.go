package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// withPods makes a runtime run control planes as pods.
func withPods(o *Options) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	*o = Options{Kubeconfig: o.Kubeconfig, CRDDir: o.CRDDir, Fidelity: "process", Ports: o.Ports, ConcurrentStarts: o.ConcurrentStarts,
		APIServerImage: "registry.example/kube-apiserver" + digest, EtcdImage: "registry.example/etcd" + digest}
}

// TestControlPlanesArePods runs a runtime on a management cluster without nodes, with the rights of its chart. It creates the objects of a
// control plane that real nodes would accept, changes them, and reports what the control plane waits for.
func TestControlPlanesArePods(t *testing.T) {
	t.Parallel()
	m := newManagementCluster(t)
	limited := m.asServiceAccount(t)
	limited.startRuntime(t, m.options(t.TempDir(), withPods))
	s := m.sample(t, "pods")
	s.create(t)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.KubeAPIServerAvailable))
		if c == nil || c.Status == metav1.ConditionTrue || hc.Status.ControlPlaneEndpoint.Host != "kube-apiserver."+s.controlPlane()+".svc" {
			return fmt.Errorf("condition %v, endpoint %v", c, hc.Status.ControlPlaneEndpoint)
		}
		return nil
	})
	if c := meta.FindStatusCondition(s.hostedCluster(t).Status.Conditions, string(hyperv1.HostedClusterAvailable)); c == nil || c.Status == metav1.ConditionTrue {
		t.Errorf("without nodes, the cluster is reported as %v", c)
	}
	server, etcd := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	get := func() {
		t.Helper()
		for name, object := range map[string]client.Object{"kube-apiserver": server, "etcd": etcd} {
			must.Do(t, m.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: name}, object))
		}
	}
	get()
	member := etcd.Spec.Template
	member.Spec.Volumes = append(slices.Clone(member.Spec.Volumes), corev1.Volume{Name: etcd.Spec.VolumeClaimTemplates[0].Name}) // the StatefulSet adds it
	s.expectRestrictedPods(t, server.Spec.Template, member)
	if claim := etcd.Spec.VolumeClaimTemplates[0].Spec; *claim.StorageClassName != "managed-csi" || claim.Resources.Requests.Storage().String() != "8Gi" {
		t.Errorf("etcd claims %v", claim)
	}

	// Files change under the running API server.
	serverBefore, etcdBefore := server.Generation, etcd.Generation
	files := func() map[string][]byte {
		t.Helper()
		secret := &corev1.Secret{}
		must.Do(t, m.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: "kube-apiserver-files"}, secret))
		return secret.Data
	}
	before := string(files()["authentication.json"])
	// The cluster has no controller that would create it.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: "kube-apiserver-1", Labels: server.Spec.Template.Labels}, Spec: server.Spec.Template.Spec}
	must.Do(t, m.client.Create(t.Context(), pod))
	issuer := newIssuer(t)
	s.configureOIDC(t, issuer.URL, issuer.authority)
	eventually.Soon(t, "the API server gets the issuer in a file", func() error {
		if now := string(files()["authentication.json"]); now == before || !strings.Contains(now, issuer.URL) {
			return fmt.Errorf("the file is %s", now)
		}
		return nil
	})
	eventually.Soon(t, "the pod has an annotation, so that its kubelet copies the file", func() error {
		err := m.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.Annotations["runtime.hcpmesh.io/files"] == "" {
			err = fmt.Errorf("its annotations are %v", pod.Annotations)
		}
		return err
	})

	program := pod.DeepCopy()
	program.Spec.Containers[0].Image = "registry.example/program"
	if err := limited.client.Patch(t.Context(), program, client.MergeFrom(pod), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("another program in a pod: %v, want it forbidden", err)
	}
	if get(); server.Generation != serverBefore || etcd.Generation != etcdBefore {
		t.Errorf("a changed file has changed pods: generations %d and %d, before %d and %d", server.Generation, etcd.Generation, serverBefore, etcdBefore)
	}

	// A restart replaces the pods of the API server only.
	s.annotate(hyperv1.RestartDateAnnotation, "2026-11-23T00:00:00Z")
	s.apply(t, s.cluster)
	eventually.Soon(t, "the pods of the API server are replaced", func() error {
		if get(); server.Generation == serverBefore {
			return fmt.Errorf("generation %d", server.Generation)
		}
		return nil
	})
	if etcd.Generation != etcdBefore {
		t.Errorf("the restart changed etcd: generation %d, before %d", etcd.Generation, etcdBefore)
	}

	// An object that somebody removes is created again.
	must.Do(t, m.client.Delete(t.Context(), server.DeepCopy()))
	removed := server.UID
	eventually.Soon(t, "another Deployment replaces the removed one", func() error {
		err := m.client.Get(t.Context(), client.ObjectKeyFromObject(server), server)
		if err == nil && server.UID == removed {
			err = fmt.Errorf("it is the removed one")
		}
		return err
	})

	s.delete(t)
}

// expectRestrictedPods creates pods from templates, as a dry run, in the namespace of the control plane, in which Kubernetes enforces the standard restricted.
func (s *sample) expectRestrictedPods(t *testing.T, templates ...corev1.PodTemplateSpec) {
	t.Helper()
	for name, value := range map[string]int32{"hypershift-etcd": 100002000, "hypershift-api-critical": 100001000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		clients := must.Get(kubernetes.NewForConfig(s.config))(t)
		if _, err := clients.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: "default"}}
	if err := s.client.Create(t.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, template := range templates {
		name := template.Labels["app"]
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: name}, Spec: template.Spec}
		if err := s.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a pod of %s: %v", name, err)
		}
	}
}
