package render

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// kinds lists the kinds of objects that are rendered. resource is the plural name in URLs. rules, where set, returns the
// values that the agent reports about an object.
var kinds = map[string]struct {
	resource string
	rules    func() []workv1.FeedbackRule
}{
	"Namespace":                         {"namespaces", feedback.NamespaceRules},
	"Secret":                            {"secrets", nil},
	"ConfigMap":                         {"configmaps", nil},
	"HostedCluster":                     {"hostedclusters", feedback.HostedClusterRules},
	"NodePool":                          {"nodepools", feedback.NodePoolRules},
	"ControlPlaneComponent":             {"controlplanecomponents", feedback.ComponentRules},
	"CertificateSigningRequest":         {"certificatesigningrequests", feedback.CertificateRequestRules},
	"CertificateSigningRequestApproval": {"certificatesigningrequestapprovals", nil},
	"CertificateRevocationRequest":      {"certificaterevocationrequests", feedback.RevocationRules},
	"SecretProviderClass":               {"secretproviderclasses", nil},
	"SecretSync":                        {"secretsyncs", nil},
}

// manifestConfig returns the agent's instructions for an object: apply it server-side and report the values of its kind.
// Force takes over a field that another manager owns, because manifests list only fields that Cluster Service owns.
func manifestConfig(o *unstructured.Unstructured) workv1.ManifestConfigOption {
	kind := kinds[o.GetKind()]
	option := workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: o.GroupVersionKind().Group, Resource: kind.resource,
			Name: o.GetName(), Namespace: o.GetNamespace()},
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
			ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, FieldManager: workv1.DefaultFieldManager}},
	}
	if kind.rules != nil {
		option.FeedbackRules, option.FeedbackScrapeType = kind.rules(), workv1.FeedbackWatchType
	}
	return option
}

// manifest converts an object of a Go API type to its manifest. Server-side apply makes Cluster Service the owner of
// every field of a manifest, so manifest removes the fields that the type writes although they are not set: the status, the
// creation timestamp, an empty spec, and empty values below a HostedCluster's spec.autoscaling and spec.configuration.
func manifest(object metav1.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("convert %T %s to a manifest: %w", object, object.GetName(), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	if spec, isObject := content["spec"].(map[string]any); isObject {
		// OpenShift's configuration types write references, lists and objects without `omitempty`.
		for _, field := range []string{"autoscaling", "configuration"} {
			if isEmpty(pruned(spec[field])) {
				delete(spec, field)
			}
		}
		if len(spec) == 0 {
			delete(content, "spec")
		}
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// manifests converts a list of objects.
func manifests(objects ...metav1.Object) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for _, object := range objects {
		m, err := manifest(object)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// pruned removes null, empty strings, empty lists and empty objects from value, at every depth, and returns value.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if isEmpty(pruned(field)) {
				delete(value, key)
			}
		}
	case []any:
		for _, item := range value {
			pruned(item)
		}
	}
	return value
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

func typeMeta(gv schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gv.String(), Kind: kind}
}

// metadata returns the metadata that every object of a cluster has. namespace is empty for objects without one.
func (r *Renderer) metadata(c *fleet.Cluster, name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
		"api.openshift.com/id":          c.ID(),
		"api.openshift.com/name":        labelValue(c.Spec.GetName()),
		"api.openshift.com/environment": r.Environment,
	}}
}

func (r *Renderer) namespaceOf(c *fleet.Cluster) string {
	return fleet.Namespace(r.Environment, c.ID())
}

// maxLabelValue is the maximum length of a label's value.
const maxLabelValue = 63

func labelValue(s string) string { return s[:min(len(s), maxLabelValue)] }
