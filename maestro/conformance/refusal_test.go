package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// refusal returns the condition Refused of the first manifest.
func (s statusEvent) refusal() *metav1.Condition {
	if len(s.Resources) == 0 {
		return nil
	}
	return meta.FindStatusCondition(s.Resources[0].Conditions, maestroapi.ConditionRefused)
}

// untilRefused waits until a version is reported as refused.
func (s *source) untilRefused(id string, version int64) *metav1.Condition {
	s.t.Helper()
	return s.until(id, "refused", func(st statusEvent) bool { c := st.refusal(); return c != nil && c.ObservedGeneration == version }).refusal()
}

// machines installs a kind whose spec has a size and a number, and returns its plural name and its kind.
func (r *region) machines() (plural, kind string) {
	r.t.Helper()
	kind = "M" + strings.ReplaceAll(unique("achine"), "-", "")
	plural = strings.ToLower(kind) + "s"
	one := 1.0
	must.Get(envtest.InstallCRDs(cluster(r.t), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".test.hcpmesh.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "test.hcpmesh.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"size": {Type: "string"}, "count": {Type: "integer", Minimum: &one}}}}}}}}},
	}}}))(r.t)
	return plural, kind
}

// restrictSize sets the pattern of the size of a kind, and waits until the API server refuses a size that does not match it.
func (r *region) restrictSize(kind, plural, pattern, refused string) {
	r.t.Helper()
	patch := []byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/pattern","value":"` + pattern + `"}]`)
	must.Get(r.dynamic().Resource(definitions).Patch(r.t.Context(), plural+".test.hcpmesh.io", types.JSONPatchType, patch, metav1.PatchOptions{}))(r.t)
	name := unique("probe")
	body := must.Get(json.Marshal(map[string]any{"apiVersion": "test.hcpmesh.io/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": refused}}))(r.t)
	eventually.Soon(r.t, "the pattern is in effect", func() error {
		if err := r.dryRun(schema.GroupVersionResource{Group: "test.hcpmesh.io", Version: "v1", Resource: plural}, name, body); !apierrors.IsInvalid(err) {
			return fmt.Errorf("the size %s: %w", refused, err)
		}
		return nil
	})
}

// machine returns a bundle with one object of a kind.
func machine(consumer, kind, plural string, spec map[string]any) bundle {
	b := newBundle(consumer, "x")
	b.Manifests = []any{map[string]any{"apiVersion": "test.hcpmesh.io/v1", "kind": kind,
		"metadata": map[string]any{"name": b.configMapName(), "namespace": "default"}, "spec": spec}}
	b.Configs[0].ResourceIdentifier.Group, b.Configs[0].ResourceIdentifier.Resource, b.Configs[0].FeedbackRules = "test.hcpmesh.io", plural, nil
	b.Configs[0].UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}
	return b
}

// TestStricterKindIsReportedAsPermanent makes a kind stricter, as the next release of an operator does. The agent reports the refusal with
// the field for the refused version, and not for a version that the API server accepts. It applies the object once the kind permits it.
func TestStricterKindIsReportedAsPermanent(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	plural, kind := r.machines()
	b := machine(consumer, kind, plural, map[string]any{"size": "large"})
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)

	r.restrictSize(kind, plural, "^small", "large")
	set := func(size string) int64 {
		b.Manifests[0].(map[string]any)["spec"] = map[string]any{"size": size}
		return cs.must("update", b)
	}
	version := set("larger")
	c := cs.untilRefused(b.ID, version)
	fields, text := maestroapi.ParseRefusal(c.Message)
	if c.Status != metav1.ConditionTrue || c.Reason != maestroapi.RefusedInvalid || !slices.Equal(fields, []string{"spec.size"}) || !strings.Contains(text, "should match '^small'") {
		t.Errorf("reported %+v", c)
	}
	applied := meta.FindStatusCondition(cs.status(b.ID).Resources[0].Conditions, workv1.ManifestApplied)
	if applied.Status != metav1.ConditionFalse || applied.Reason != "AppliedManifestFailed" || applied.ObservedGeneration != version {
		t.Errorf("the published condition is %+v", applied)
	}
	// What the API server had accepted stays.
	object, err := r.dynamic().Resource(schema.GroupVersionResource{Group: "test.hcpmesh.io", Version: "v1", Resource: plural}).Namespace("default").
		Get(t.Context(), b.configMapName(), metav1.GetOptions{})
	if err != nil || object.Object["spec"].(map[string]any)["size"] != "large" {
		t.Errorf("the object is %v, %v", object, err)
	}

	version = set("small-1")
	if st := cs.until(b.ID, "applied", func(st statusEvent) bool { return st.applied(version) }); st.refusal() != nil {
		t.Errorf("after the correction: %+v", st.refusal())
	}
	version = set("large")
	cs.untilRefused(b.ID, version)
	r.restrictSize(kind, plural, "^(small|large)", "other")
	if st := cs.until(b.ID, "applied", func(st statusEvent) bool { return st.applied(version) }); st.refusal() != nil {
		t.Errorf("after the kind permits it: %+v", st.refusal())
	}
}

// TestPermanentRefusals applies what an API server refuses permanently, and what it refuses until another object exists.
func TestPermanentRefusals(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	plural, kind := r.machines()
	elsewhere := machine(consumer, kind, plural, map[string]any{})
	elsewhere.Manifests[0] = in(unique("missing"), elsewhere.Manifests[0].(map[string]any))
	elsewhere.Configs = nil
	for name, c := range map[string]struct {
		bundle bundle
		reason string
		fields []string
	}{
		"rule":              {machine(consumer, kind, plural, map[string]any{"count": 0}), maestroapi.RefusedInvalid, []string{"spec.count"}},
		"another type":      {machine(consumer, kind, plural, map[string]any{"count": "many"}), maestroapi.RefusedMalformed, nil},
		"unknown field":     {machine(consumer, kind, plural, map[string]any{"colour": "red"}), maestroapi.RefusedMalformed, nil},
		"unknown kind":      {machine(consumer, kind+"Set", plural+"ets", map[string]any{}), maestroapi.RefusedUnknownKind, nil},
		"missing namespace": {elsewhere, "", nil},
	} {
		cs.must("create", c.bundle)
		st := cs.until(c.bundle.ID, "refused", func(st statusEvent) bool { return meta.IsStatusConditionFalse(st.Conditions, workv1.WorkApplied) })
		got := st.refusal()
		if c.reason == "" {
			if got != nil {
				t.Errorf("%s: reported %+v", name, got)
			}
			continue
		}
		if got == nil || got.Reason != c.reason {
			text, _ := json.Marshal(st.Resources)
			t.Errorf("%s: reported %s, want the reason %s", name, text, c.reason)
			continue
		}
		if fields, text := maestroapi.ParseRefusal(got.Message); !slices.Equal(fields, c.fields) || text == "" {
			t.Errorf("%s: the fields are %v, the text is %q", name, fields, text)
		}
	}
}

// TestRefusedSecretIsReportedWithoutValues denies a Secret with a policy whose message quotes the value.
func TestRefusedSecretIsReportedWithoutValues(t *testing.T) {
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
	b, secret := newSecret(consumer, workv1.UpdateStrategyTypeServerSideApply)
	label := unique("denied")
	secret["metadata"].(map[string]any)["labels"] = map[string]any{"test": label}
	must.Do(t, seal.SealSecret(secret, consumer, sealer))
	r.deny(label)
	cs.must("create", b)
	c := cs.untilRefused(b.ID, 1)
	if _, text := maestroapi.ParseRefusal(c.Message); c.Reason != maestroapi.RefusedByPolicy || !strings.Contains(text, "withheld") {
		t.Errorf("reported %+v", c)
	}
	requireNoCanary(t, r, s, cs.status(b.ID))
}

// deny creates a policy that denies Secrets with a label and quotes their values, and waits until it is in effect.
func (r *region) deny(label string) {
	r.t.Helper()
	client := must.Get(kubernetes.NewForConfig(cluster(r.t)))(r.t)
	matches := &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": label}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}}}}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: label}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matches, Validations: []admissionv1.Validation{{Expression: "false", MessageExpression: "'value ' + string(object.data.key)"}}}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: label}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: label, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	must.Get(client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(r.t.Context(), policy, metav1.CreateOptions{}))(r.t)
	must.Get(client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(r.t.Context(), binding, metav1.CreateOptions{}))(r.t)
	_, denied := newSecret("", workv1.UpdateStrategyTypeServerSideApply)
	denied["metadata"].(map[string]any)["labels"] = map[string]any{"test": label}
	body := must.Get(json.Marshal(denied))(r.t)
	name := denied["metadata"].(map[string]any)["name"].(string)
	eventually.Soon(r.t, "the policy is in effect", func() error {
		err := r.dryRun(secrets, name, body)
		if err == nil || !strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(canary))) {
			return fmt.Errorf("the answer does not quote the value: %w", err)
		}
		return nil
	})
}

// dryRun applies an object without storing it.
func (r *region) dryRun(gvr schema.GroupVersionResource, name string, body []byte) error {
	force := true
	_, err := r.dynamic().Resource(gvr).Namespace("default").Patch(r.t.Context(), name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "test", Force: &force, DryRun: []string{metav1.DryRunAll}})
	return err
}
