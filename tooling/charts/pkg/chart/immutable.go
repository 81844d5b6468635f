package chart

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// immutable has the paths of the fields of kinds that charts use which the API server does not let an update change, by kind. Jobs are not in it:
// they are hooks, which Helm deletes before it creates them again.
var immutable = map[schema.GroupKind][]string{
	{Group: "apps", Kind: "StatefulSet"}:                             {"spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"},
	{Group: "apps", Kind: "Deployment"}:                              {"spec.selector"},
	{Kind: "Service"}:                                                {"spec.clusterIP"},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: {"roleRef"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        {"roleRef"},
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:              {"value", "preemptionPolicy"},
}

// ImmutableChanges returns the paths of the fields of an object in the cluster, or of an earlier rendering, that cannot be changed and that a
// rendering has with another value. It ignores what the rendering does not have: the API server sets defaults.
func ImmutableChanges(existing, rendered *unstructured.Unstructured) []string {
	var changed []string
	for _, field := range immutable[rendered.GroupVersionKind().GroupKind()] {
		path := strings.Split(field, ".")
		before, _, _ := unstructured.NestedFieldNoCopy(existing.Object, path...)
		after, ok, _ := unstructured.NestedFieldNoCopy(rendered.Object, path...)
		if ok && !contains(before, after) {
			changed = append(changed, field)
		}
	}
	return changed
}

// contains reports whether a value has all fields and elements of another one.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		for name, value := range want {
			ok = ok && contains(fields[name], value)
		}
		return ok
	case []any:
		elements, ok := have.([]any)
		return ok && slices.EqualFunc(elements, want, contains)
	}
	return have == want
}
