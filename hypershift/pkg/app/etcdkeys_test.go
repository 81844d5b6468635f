package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// keysMissing requires that a HostedCluster reports the missing keys, and that it is available or not.
func keysMissing(available metav1.ConditionStatus) func(*hyperv1.HostedCluster) error {
	return func(hc *hyperv1.HostedCluster) error {
		c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationSucceeded))
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, contract.EncryptionKeySecret) {
			return fmt.Errorf("ReconciliationSucceeded is %v", c)
		}
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable)); c == nil || c.Status != available {
			return fmt.Errorf("Available is %v", c)
		}
		return nil
	}
}

// awaitKind waits until a spawned runtime has created the CustomResourceDefinition of HostedClusters.
func (s *sample) awaitKind(t *testing.T) {
	t.Helper()
	eventually.Soon(t, "HostedClusters are served", func() error { return s.client.List(t.Context(), &hyperv1.HostedClusterList{}) })
}

// TestMissingKeysAreNotReplaced deletes the Secret with the keys of etcd. A new key could not decrypt what etcd has. The API server that
// runs keeps its keys; after a restart of the runtime there is none until the Secret was restored.
func TestMissingKeysAreNotReplaced(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	options := m.options(t.TempDir(), withProcessFidelity)
	runtime := m.spawnRuntime(t, options)
	s := m.sample(t, "lost-key")
	s.awaitKind(t)
	s.create(t)
	s.waitCluster(t, available)
	s.expectEncryption(t)
	endpoint := s.hostedCluster(t).Status.ControlPlaneEndpoint
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: contract.EncryptionKeySecret}}
	expectMissing := func() {
		t.Helper()
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the Secret was created again: %v", err)
		}
	}
	must.Do(t, s.client.Delete(t.Context(), secret))
	s.waitCluster(t, keysMissing(metav1.ConditionTrue))
	expectMissing()
	s.expectCanary(t)

	runtime.Kill()
	s.expectNothingRuns(t)
	m.spawnRuntime(t, options)
	s.waitCluster(t, keysMissing(metav1.ConditionFalse))
	expectMissing()
	if pids := s.servers(t); len(pids) > 0 {
		t.Errorf("API servers run without keys: %v", pids)
	}

	text := must.Get(os.ReadFile(filepath.Join(options.StateDir, s.controlPlane(), kubeapi.EncryptionFile)))(t)
	keys, _, err := kubeapi.ReadEncryptionConfiguration(text)
	if err != nil {
		t.Fatal(err)
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: contract.EncryptionKeySecret}, Data: keys.SecretData()}
	must.Do(t, s.client.Create(t.Context(), secret))
	s.waitCluster(t, available)
	s.expectCanary(t)
	if now := s.hostedCluster(t).Status.ControlPlaneEndpoint; now != endpoint {
		t.Errorf("the endpoint is %v, before %v", now, endpoint)
	}
	s.delete(t)
}
