package hostedcluster

import (
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// TestVanishedClusterIsReleased reconciles a HostedCluster that has disappeared without its deletion. Its annotation is removed from the Secret to which it
// referred, and that of another HostedCluster stays. A HostedCluster that the controller has never seen is left alone.
func TestVanishedClusterIsReleased(t *testing.T) {
	cluster := kubeapitest.Start(t)
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{hyperv1.AddToScheme, corev1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	management, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(kubeapitest.HostedClusters), definition); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull-secret",
		Annotations: map[string]string{contract.ReferencedResourcePrefix + "vanished": "vanished", contract.ReferencedResourcePrefix + "other": "other"}}}
	for _, object := range []client.Object{definition, secret} {
		if err := management.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reconciler{Management: readyourwrites.New(management, management), Live: management}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "vanished"}}
	marked := func() bool {
		if err := management.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		if secret.Annotations[contract.ReferencedResourcePrefix+"other"] == "" {
			t.Error("the annotation of the other HostedCluster was removed")
		}
		return secret.Annotations[contract.ReferencedResourcePrefix+"vanished"] != ""
	}
	eventually.Soon(t, "the API server has the definition", func() error {
		_, err := r.Reconcile(t.Context(), request)
		return err
	})

	if !marked() {
		t.Error("the controller has changed a Secret for a HostedCluster that it has never seen")
	}
	r.owners.Store(contract.ControlPlaneNamespace("default", "vanished"), request)
	if _, err := r.Reconcile(t.Context(), request); err != nil || marked() {
		t.Errorf("the annotation was not removed: %v", err)
	}
	if _, seen := r.owners.Load(contract.ControlPlaneNamespace("default", "vanished")); seen {
		t.Error("the controller remembers the HostedCluster")
	}
}
