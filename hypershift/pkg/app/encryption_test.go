package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// encryptionStatus reads status.secretEncryption, which the Go types do not have.
func (s *sample) encryptionStatus(t *testing.T, kind, namespace string) (active, target string, states []string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(hyperv1.GroupVersion.WithKind(kind))
	key := s.key()
	key.Namespace = namespace
	must.Do(t, s.client.Get(t.Context(), key, u))
	raw, _, err := unstructured.NestedMap(u.Object, "status", "secretEncryption")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(raw)
	var status struct {
		ActiveKey, TargetKey struct{ Azure struct{ KeyVersion string } }
		History              []struct{ State string }
	}
	must.Do(t, json.Unmarshal(text, &status))
	for _, h := range status.History {
		states = append(states, h.State)
	}
	return status.ActiveKey.Azure.KeyVersion, status.TargetKey.Azure.KeyVersion, states
}

// TestEncryptionKeyRotation checks that a new version of the key is reported step by step until all data is encrypted
// with it, and that a restarted runtime continues the rotation.
func TestEncryptionKeyRotation(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	options := m.options(t.TempDir(), func(o *Options) { o.TimeScale = 0.002 })
	stop := m.startRuntime(t, options)
	s := m.sample(t, "keys")
	s.create(t)
	upToDate := func(version string) func(*hyperv1.HostedCluster) error {
		return func(hc *hyperv1.HostedCluster) error {
			c := meta.FindStatusCondition(hc.Status.Conditions, "EtcdDataEncryptionUpToDate")
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != hc.Generation {
				return fmt.Errorf("EtcdDataEncryptionUpToDate is %v at generation %d", c, hc.Generation)
			}
			if active, target, _ := s.encryptionStatus(t, "HostedCluster", s.namespace); active != version || target != "" {
				return fmt.Errorf("the active key is %s, the target %q", active, target)
			}
			return nil
		}
	}
	const first, second = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	s.waitCluster(t, available)
	s.waitCluster(t, upToDate(first))

	s.set(t, second, "spec", "secretEncryption", "kms", "azure", "activeKey", "keyVersion")
	s.apply(t, s.cluster)
	var reasons []string
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, "EtcdDataEncryptionUpToDate"); c != nil && !slices.Contains(reasons, c.Reason) {
			reasons = append(reasons, c.Reason)
		}
		if len(reasons) < 2 {
			return fmt.Errorf("no rotation yet: %v", reasons)
		}
		return nil
	})
	if active, target, _ := s.encryptionStatus(t, "HostedCluster", s.namespace); target != "" && (active != first || target != second) {
		t.Errorf("during the rotation the active key is %s and the target %s", active, target)
	}
	stop()
	m.startRuntime(t, options)
	s.waitCluster(t, upToDate(second))
	for kind, namespace := range map[string]string{"HostedCluster": s.namespace, "HostedControlPlane": s.controlPlane()} {
		if active, _, states := s.encryptionStatus(t, kind, namespace); active != second || len(states) != 1 || states[0] != "Completed" {
			t.Errorf("%s: active key %s, rotations %v", kind, active, states)
		}
	}
	s.delete(t)
}
