package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

var nodePools = schema.GroupResource{Group: "hypershift.openshift.io", Resource: "nodepools"}

// TestRefusalReason: what a retry can change has no reason.
func TestRefusalReason(t *testing.T) {
	forbidden := func(text string) error { return apierrors.NewForbidden(nodePools, "demo", errors.New(text)) }
	terminating := apierrors.NewForbidden(nodePools, "demo", errors.New("unable to create new content in namespace ocm because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"none":              {nil, ""},
		"connection":        {errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"), ""},
		"deadline":          {context.DeadlineExceeded, ""},
		"timeout":           {apierrors.NewTimeoutError("etcd", 1), ""},
		"server timeout":    {apierrors.NewServerTimeout(nodePools, "patch", 1), ""},
		"conflict":          {apierrors.NewConflict(nodePools, "demo", errors.New("changed")), ""},
		"namespace missing": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ocm"), ""},
		"throttled":         {apierrors.NewTooManyRequests("slow down", 1), ""},
		"unavailable":       {apierrors.NewServiceUnavailable("starting"), ""},
		"internal":          {apierrors.NewInternalError(errors.New("etcd has no leader")), ""},
		"webhook away":      {apierrors.NewInternalError(errors.New(`failed calling webhook "nodepools.hypershift": connection refused`)), ""},
		"webhook away, quoting a denial": {apierrors.NewInternalError(
			errors.New(`failed calling webhook "a": admission webhook "b" denied the request`)), ""},
		"quota":             {forbidden("exceeded quota: pools, requested: 1, used: 1, limited: 1"), ""},
		"rights":            {forbidden(`User "agent" cannot patch resource "nodepools" in API group "hypershift.openshift.io"`), ""},
		"terminating":       {terminating, ""},
		"policies starting": {forbidden("not yet ready to handle request"), ""},
		"unauthorized":      {apierrors.NewUnauthorized("expired"), ""},
		"invalid":           {apierrors.NewInvalid(schema.GroupKind{Kind: "NodePool"}, "demo", nil), maestroapi.RefusedInvalid},
		"bad request":       {apierrors.NewBadRequest("not an object"), maestroapi.RefusedMalformed},
		"too large":         {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), maestroapi.RefusedTooLarge},
		"policy":            {forbidden("ValidatingAdmissionPolicy 'maestro-agent' with binding 'maestro-agent' denied request: no"), maestroapi.RefusedByPolicy},
		"webhook":           {forbidden(`admission webhook "nodepools.hypershift" denied the request: no`), maestroapi.RefusedByPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusalReason(c.err); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestRefusalIsBounded: neither the number of violations nor their length makes a report large.
func TestRefusalIsBounded(t *testing.T) {
	var list field.ErrorList
	for range 100 {
		list = append(list, field.Invalid(field.NewPath("spec").Child(strings.Repeat("x", 1000)), strings.Repeat("é", 5000), "long"))
		list = append(list, field.Invalid(field.NewPath("spec").Child("vmSize"), "x", "short"))
	}
	for i := range 100 {
		list = append(list, field.Invalid(field.NewPath("spec").Index(i), "x", "many"))
	}
	r := refusalOf(apierrors.NewInvalid(schema.GroupKind{Kind: "NodePool"}, "demo", list))
	fields, text := maestroapi.ParseRefusal(r.message)
	if len(fields) != maestroapi.MaxRefusedFields || fields[0] != "spec.vmSize" || len(text) > maxRefusalText || strings.ToValidUTF8(text, "") != text {
		t.Errorf("fields %v, %d bytes of text", fields, len(text))
	}
}

// TestRefusalOfEarlierGenerationEnds: the condition follows the latest attempt.
func TestRefusalOfEarlierGenerationEnds(t *testing.T) {
	pool := workv1.ManifestResourceMeta{Group: nodePools.Group, Version: "v1beta1", Kind: "NodePool", Resource: nodePools.Resource, Namespace: "ocm", Name: "demo"}
	manifests := []workv1.ManifestCondition{{ResourceMeta: pool}}
	applied := func(status metav1.ConditionStatus, generation int64) {
		meta.SetStatusCondition(&manifests[0].Conditions, metav1.Condition{Type: workv1.ManifestApplied, Status: status, ObservedGeneration: generation})
	}
	attempt := func(err error, generation int64) *metav1.Condition {
		ctx := withAttempt(t.Context(), "")
		attemptOf(ctx).record(objectKey{nodePools, "ocm", "demo"}, refusalOf(err))
		attemptOf(ctx).report(manifests, generation)
		return meta.FindStatusCondition(manifests[0].Conditions, maestroapi.ConditionRefused)
	}
	invalid := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}}
	applied(metav1.ConditionFalse, 1)
	if c := attempt(invalid, 1); c == nil || c.ObservedGeneration != 1 {
		t.Fatalf("refused: %+v", c)
	}
	attemptOf(t.Context()).report(manifests, 2) // another controller's status
	if c := meta.FindStatusCondition(manifests[0].Conditions, maestroapi.ConditionRefused); c == nil || c.ObservedGeneration != 1 {
		t.Errorf("after the status of another controller: %+v", c)
	}
	applied(metav1.ConditionFalse, 2)
	if c := attempt(apierrors.NewServiceUnavailable("starting"), 2); c != nil {
		t.Errorf("after a temporary failure: %+v", c)
	}
	if c := attempt(invalid, 2); c == nil || c.ObservedGeneration != 2 {
		t.Errorf("refused again: %+v", c)
	}
	applied(metav1.ConditionTrue, 2)
	if c := attempt(nil, 2); c != nil {
		t.Errorf("after it was applied: %+v", c)
	}
}
