package conformance

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

const canary = "the-value-of-the-secret"

// newSecret returns a bundle with one Secret whose value is in clear.
func newSecret(consumer string, strategy workv1.UpdateStrategyType) (b bundle, secret map[string]any) {
	b = newBundle(consumer, "x")
	secret = map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": b.configMapName(), "namespace": "default"},
		"data": map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(canary))}}
	b.Manifests = []any{secret}
	b.Configs[0].ResourceIdentifier.Resource, b.Configs[0].UpdateStrategy = "secrets", &workv1.UpdateStrategy{Type: strategy}
	b.Configs[0].FeedbackRules = nil
	return b, secret
}

// TestSealedSecrets sends Secrets to an agent with keys. The management cluster gets the values of those that are sealed for it, and
// the Maestro server has them only sealed. The agent refuses all others.
func TestSealedSecrets(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	sealer, opener, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	r.StartAgent(consumer, agent.Options{Cluster: cluster(t), SecretKeys: opener})
	cs := r.source(s, "cluster-service")
	cs.subscribe()

	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly} {
		b, secret := newSecret(consumer, strategy)
		must.Do(t, seal.SealSecret(secret, consumer, sealer))
		cs.must("create", b)
		cs.until(b.ID, "applied", func(st statusEvent) bool { return st.applied(1) })
		got := must.Get(r.dynamic().Resource(secrets).Namespace("default").Get(t.Context(), b.configMapName(), metav1.GetOptions{}))(t)
		data, _ := got.Object["data"].(map[string]any)
		if value, _ := base64.StdEncoding.DecodeString(data["key"].(string)); string(value) != canary {
			t.Errorf("%s: the value in the management cluster is not the one that was sealed", strategy)
		}
		if _, still := got.GetAnnotations()[seal.SecretAnnotation]; still {
			t.Errorf("%s: the applied Secret is still marked as sealed", strategy)
		}
		requireNoCanary(t, r, s, cs.status(b.ID))
		cs.must("delete", b)
		cs.untilDeleted(b.ID)
	}

	for name, c := range map[string]struct {
		change func(secret map[string]any) error
		why    string
	}{
		"in clear":            {func(map[string]any) error { return nil }, seal.ErrClearSecret.Error()},
		"for another cluster": {func(secret map[string]any) error { return seal.SealSecret(secret, "another", sealer) }, seal.ErrInvalid.Error()},
	} {
		b, secret := newSecret(consumer, workv1.UpdateStrategyTypeServerSideApply)
		must.Do(t, c.change(secret))
		cs.must("create", b)
		refused := cs.until(b.ID, "refused", func(st statusEvent) bool { return meta.IsStatusConditionFalse(st.Conditions, workv1.WorkApplied) })
		if text, _ := json.Marshal(refused); !strings.Contains(string(text), c.why) || !strings.Contains(string(text), "default/"+b.configMapName()) {
			t.Errorf("%s: the status is %s, want the name of the Secret and %q", name, text, c.why)
		}
		if _, err := r.dynamic().Resource(secrets).Namespace("default").Get(t.Context(), b.configMapName(), metav1.GetOptions{}); err == nil {
			t.Errorf("%s: the Secret was applied", name)
		}
		cs.must("delete", b)
		cs.untilDeleted(b.ID)
	}
}

// requireNoCanary checks that the Maestro server and the statuses of the agent do not contain the canary.
func requireNoCanary(t *testing.T, r *region, s *maestrotest.Server, status statusEvent) {
	t.Helper()
	var bundles json.RawMessage
	if code := r.CallAs(mesh.Admin, s, "GET", "/resource-bundles", nil, &bundles); code != 200 {
		t.Fatalf("listing the bundles: %d", code)
	}
	text := must.Get(json.Marshal(status))(t)
	for where, content := range map[string]string{"the REST API": string(bundles), "the status": string(text)} {
		for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))} {
			if strings.Contains(content, form) {
				t.Errorf("%s shows the value", where)
			}
		}
	}
}
