package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

const (
	// maxRefusalText is the maximum length of the API server's message in a report, in bytes.
	maxRefusalText = 512
	// maxRefusedField is the maximum length of a field in a report, in bytes.
	maxRefusedField = 256
)

// refusalReason returns the reason of maestroapi.ConditionRefused for an error of the API server, and "" if a retry can succeed.
//
// An answer with the reason Forbidden is permanent only if a policy or a webhook denies the object. Quotas, namespaces in deletion and
// missing rights have the same reason, and end without a change of the manifest. The API has no field that separates them, so the texts of
// the two denials are matched. A webhook that cannot be reached is an internal error, which is temporary.
func refusalReason(err error) string {
	switch {
	case err == nil:
		return ""
	case deniedByPolicy(err):
		return maestroapi.RefusedByPolicy
	case apierrors.IsInvalid(err):
		return maestroapi.RefusedInvalid
	case apierrors.IsBadRequest(err), mismatchesSchema(err):
		return maestroapi.RefusedMalformed
	case apierrors.IsRequestEntityTooLargeError(err):
		return maestroapi.RefusedTooLarge
	}
	return ""
}

// deniedByPolicy reports whether the error is the denial of a ValidatingAdmissionPolicy or of an admission webhook.
func deniedByPolicy(err error) bool {
	if apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "ValidatingAdmissionPolicy '") && strings.Contains(text, " denied request: ") ||
		strings.Contains(text, "admission webhook \"") && strings.Contains(text, " denied the request")
}

// mismatchesSchema reports whether server-side apply cannot read the manifest with the schema of its kind. The API server answers so, with
// an internal error, if a field has another type or is not in the schema.
func mismatchesSchema(err error) bool {
	return strings.Contains(err.Error(), "failed to create typed patch object")
}

// refusal is the permanent refusal of a manifest.
type refusal struct {
	reason, message string
}

// refusalOf returns the refusal with which an error is reported. It returns the zero refusal if a retry can succeed.
func refusalOf(err error) refusal {
	reason := refusalReason(err)
	if reason == "" {
		return refusal{}
	}
	var fields []string
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			field := cause.Field
			// A rule about the whole object has the field <nil>.
			readable := field != "" && field != "<nil>" && len(field) <= maxRefusedField && !strings.ContainsAny(field, " \t\r\n")
			if readable && !slices.Contains(fields, field) && len(fields) < maestroapi.MaxRefusedFields {
				fields = append(fields, field)
			}
		}
	}
	return refusal{reason: reason, message: maestroapi.RefusalMessage(fields, clip(err.Error(), maxRefusalText))}
}

// clip makes a text valid UTF-8 of at most limit bytes.
func clip(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// attempt is one sync of the controller that applies a work. It collects the permanent refusals, with which the status that the sync stores
// is reported. The controller itself keeps only the texts of errors.
type attempt struct {
	refused map[objectKey]refusal
	work    *workv1.ManifestWork
	// owner owns the objects of the work; nil until it exists.
	owner *workv1.AppliedManifestWork
}

// objectKey identifies an object on the management cluster.
type objectKey struct {
	resource        schema.GroupResource
	namespace, name string
}

func (k objectKey) String() string { return k.resource.String() + "/" + key(k.namespace, k.name) }

type attemptKey struct{}

// withAttempt returns a context for one sync of the controller that applies works.
func withAttempt(ctx context.Context, _ string) context.Context {
	return context.WithValue(ctx, attemptKey{}, &attempt{refused: map[objectKey]refusal{}})
}

// attemptOf returns the attempt of a context, or nil if it belongs to another controller.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// record stores the outcome of a request about an object: its refusal, or the zero refusal. The latest one counts.
func (a *attempt) record(object objectKey, r refusal) {
	switch {
	case a == nil:
	case r.reason == "":
		delete(a.refused, object)
	default:
		a.refused[object] = r
	}
}

// report sets or removes the condition Refused of each manifest of a status that the attempt has produced. generation is that of the work.
func (a *attempt) report(manifests []workv1.ManifestCondition, generation int64) {
	if a == nil {
		return
	}
	for i := range manifests {
		conditions := &manifests[i].Conditions
		if !meta.IsStatusConditionFalse(*conditions, workv1.ManifestApplied) {
			meta.RemoveStatusCondition(conditions, maestroapi.ConditionRefused)
			continue
		}
		r := a.of(manifests[i].ResourceMeta)
		if r.reason == "" {
			meta.RemoveStatusCondition(conditions, maestroapi.ConditionRefused)
			continue
		}
		meta.SetStatusCondition(conditions, metav1.Condition{Type: maestroapi.ConditionRefused, Status: metav1.ConditionTrue, Reason: r.reason,
			Message: r.message, ObservedGeneration: generation})
	}
}

// of returns the refusal of a manifest. A manifest without a resource has a kind that the API server does not serve: applier.prepare
// has discovered all kinds before the sync, and fails if the discovery does.
func (a *attempt) of(m workv1.ManifestResourceMeta) refusal {
	if m.Resource == "" && m.Kind != "" {
		kind := schema.GroupVersionKind{Group: m.Group, Version: m.Version, Kind: m.Kind}
		return refusal{reason: maestroapi.RefusedUnknownKind,
			message: maestroapi.RefusalMessage(nil, clip("The API server does not serve the kind "+kind.String()+".", maxRefusalText))}
	}
	return a.refused[objectKey{schema.GroupResource{Group: m.Group, Resource: m.Resource}, m.Namespace, m.Name}]
}

// observedClient returns a client of the management cluster that records the outcome of each request with a whole manifest in the attempt of its
// context. It removes the values of Secrets from errors. Patches of owner references do not contain the manifest: their outcome says nothing
// about it.
func observedClient(to dynamic.Interface, owners *ownership) dynamic.Interface {
	return wrappedClient{to, func(objects dynamic.ResourceInterface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
		return observedObjects{objects, gvr.GroupResource(), namespace, owners}
	}}
}

// observedObjects are the objects of a resource in a namespace.
type observedObjects struct {
	dynamic.ResourceInterface
	resource  schema.GroupResource
	namespace string
	owners    *ownership
}

// Create implements dynamic.ResourceInterface.
func (o observedObjects) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	created, err := o.ResourceInterface.Create(ctx, object, options, subresources...)
	return created, o.observe(ctx, object.GetName(), err)
}

// Update implements dynamic.ResourceInterface.
func (o observedObjects) Update(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	updated, err := o.ResourceInterface.Update(ctx, object, options, subresources...)
	return updated, o.observe(ctx, object.GetName(), err)
}

// Apply implements dynamic.ResourceInterface.
func (o observedObjects) Apply(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error) {
	applied, err := o.owners.apply(ctx, o.ResourceInterface, objectKey{o.resource, o.namespace, name}, object, options, subresources...)
	return applied, o.observe(ctx, name, err)
}

// observe records the outcome of a change of an object and returns the error that the controller reports. The API server's message about a
// Secret can quote its values, so a permanent refusal of one has another message.
func (o observedObjects) observe(ctx context.Context, name string, err error) error {
	r := refusalOf(err)
	if r.reason != "" && o.resource == (schema.GroupResource{Resource: "secrets"}) {
		fields, _ := maestroapi.ParseRefusal(r.message)
		r.message = maestroapi.RefusalMessage(fields, withheld)
		err = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Message: withheld}}
	}
	attemptOf(ctx).record(objectKey{o.resource, o.namespace, name}, r)
	return err
}

// withheld replaces the API server's message about a Secret.
const withheld = "The API server refuses the Secret. Its message is withheld, because it can contain values of the Secret."
