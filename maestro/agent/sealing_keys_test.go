package agent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"
)

// TestSealedSecretsAreCountedByKey counts only Secrets of works that are not deleted.
func TestSealedSecretsAreCountedByKey(t *testing.T) {
	sealed := func(kind, key string) workv1.Manifest {
		return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{"kind":"` + kind + `","metadata":{"annotations":{"maestro.hcpmesh.io/sealed-with-key":"` + key + `"}}}`)}}
	}
	clear := workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{"kind":"Secret","metadata":{}}`)}}
	stored := newWorks("mgmt-1", func(string) {})
	add := func(name string, deletion *metav1.Time, manifests ...workv1.Manifest) {
		stored.receive(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deletion, Generation: 1}, Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: manifests}}})
	}
	add("a", nil, sealed("Secret", "1"), sealed("Secret", "1"), clear)
	add("b", nil, sealed("Secret", "1"), sealed("Secret", "2"), sealed("ConfigMap", "3"))
	now := metav1.Now()
	add("c", &now, sealed("Secret", "4"))
	const want = `
# HELP maestro_agent_sealed_secrets Secrets in the works of the agent, without works in deletion, by the ID of the key that sealed them.
# TYPE maestro_agent_sealed_secrets gauge
maestro_agent_sealed_secrets{key="1"} 3
maestro_agent_sealed_secrets{key="2"} 1
`
	if err := testutil.CollectAndCompare(&sealingKeys{stored}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
