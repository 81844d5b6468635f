package logforwarder

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestNamespacesOfControlPlanes: the forwarder delivers the logs of the control planes whose HostedClusters have a resource ID, with the rights that it
// has in a local region, and no others. The namespace and the HostedCluster appear in any order.
func TestNamespacesOfControlPlanes(t *testing.T) {
	t.Parallel()
	cluster := kubeapitest.Start(t)
	admin := clientOf(t, cluster.Kubeconfig())
	cluster.AgentKubeconfig(t) // applies the roles of a management cluster
	kubeconfig := cluster.KubeconfigOf(t, "log-forwarder", "programs")
	if _, err := clientOf(t, kubeconfig).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the forwarder can read Secrets: %v", err)
	}
	create := func(name string, labels map[string]string) {
		t.Helper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		must.Get(admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
	}
	dynamicAdmin := dynamicOf(t, cluster.Kubeconfig())
	createObject(t, dynamicAdmin, definitions, "", kubeapitest.HostedClusters)
	createCluster := func(name, annotations string) {
		t.Helper()
		createObject(t, dynamicAdmin, hostedClusters, "default", fmt.Sprintf(`{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster",
			"metadata":{"name":%q,"annotations":%s}}`, name, annotations))
	}
	withID := func(name string) string {
		return fmt.Sprintf(`{%q:%q}`, contract.AzureResourceIDAnnotation, clusterID(name))
	}
	hosted := map[string]string{contract.HostedControlPlaneLabel: "true"}
	create("default-first", hosted)
	createCluster("first", withID("default-first"))
	create("default-unlabelled", nil)
	createCluster("unlabelled", withID("default-unlabelled"))
	create("default-without-id", hosted)
	createCluster("without-id", "{}")
	create("default-without-cluster", hosted)

	w := newWorld(t)
	w.createAccount("one")
	for _, name := range []string{"default-first", "default-second"} {
		w.set(name, "audit", to("one", customerlog.KubeAudit))
	}
	for _, name := range []string{"default-first", "default-second", "default-unlabelled", "default-without-id", "default-without-cluster"} {
		w.write(name, auditFile, event(name, "create"))
	}
	f := must.Get(New(w.options(prometheus.NewRegistry(), slog.Default())))(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	management := must.Get(metadata.NewForConfig(config))(t)
	r := must.Get(newRoster(management, f))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() {
		if err := r.run(ctx); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.await("one", customerlog.KubeAudit, "default-first", "default-first")
	createCluster("second", withID("default-second"))
	create("default-second", hosted)
	w.await("one", customerlog.KubeAudit, "default-second", "default-second")
	names := func() (all []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range f.controlPlanes {
			all = append(all, name)
		}
		return all
	}
	if got := names(); len(got) != 2 {
		t.Errorf("control planes %v", got)
	}
	// Nothing finalizes a namespace here, so that it ends with its finalizer.
	must.Do(t, admin.CoreV1().Namespaces().Delete(t.Context(), "default-first", metav1.DeleteOptions{}))
	namespace := must.Get(admin.CoreV1().Namespaces().Get(t.Context(), "default-first", metav1.GetOptions{}))(t)
	namespace.Spec.Finalizers = nil
	must.Get(admin.CoreV1().Namespaces().Finalize(t.Context(), namespace, metav1.UpdateOptions{}))(t)
	eventually.Soon(t, "the control plane is forgotten", func() error {
		if got := names(); len(got) != 1 {
			return fmt.Errorf("control planes %v", got)
		}
		return nil
	})
}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	client := must.Get(kubernetes.NewForConfig(config))(t)
	return client
}
