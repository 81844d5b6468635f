package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// rightsInterval is the time for which the answer about the rights is kept, so that frequent readiness checks do not load the API server.
const rightsInterval = 30 * time.Second

// neededVerbs are the verbs that the agent uses for the kinds that works apply.
var neededVerbs = []string{"get", "list", "watch", "create", "patch", "delete"}

// rights checks that the agent may do on the management cluster what its works need. Without it, an agent that lost its rights would be
// ready until the next apply or the end of a watch, which can be minutes later, and nothing but a log would name the cause.
type rights struct {
	reviews authorizationclient.AuthorizationV1Interface
	// kinds returns the kinds that works apply.
	kinds func() []schema.GroupResource
	now   func() time.Time

	mu      sync.Mutex
	checked time.Time
	missing []string
}

// check returns an error that names the missing rights. The rights are those for all namespaces, as the agent's role grants them.
func (r *rights) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); r.checked.IsZero() || now.Sub(r.checked) >= rightsInterval {
		missing, err := r.review(ctx)
		if err != nil {
			return fmt.Errorf("asking for the agent's rights: %w", err)
		}
		r.checked, r.missing = now, missing
	}
	if len(r.missing) > 0 {
		return fmt.Errorf("forbidden: the agent may not %s; restore its ClusterRole and the binding", strings.Join(r.missing, ", "))
	}
	return nil
}

// noNamespace is not a valid name of a namespace, so that no RoleBinding is in it: rules for it are rules for all namespaces.
const noNamespace = "-"

// review returns the missing rights: for each kind, the verbs. One request returns the rules of RBAC, which grant all rights to an agent that has its role.
// Other authorizers do not list their rules, so review asks for each right that the rules do not grant. It asks for all kinds at once, because a
// readiness check has little time.
func (r *rights) review(ctx context.Context) ([]string, error) {
	granted, err := r.reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{
		Namespace: noNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	kinds := append([]schema.GroupResource{{Group: "work.open-cluster-management.io", Resource: "appliedmanifestworks"}}, r.kinds()...)
	missing, failures := make([]string, len(kinds)), make([]error, len(kinds))
	var all sync.WaitGroup
	for i, kind := range kinds {
		verbs := slices.DeleteFunc(slices.Clone(neededVerbs), func(verb string) bool { return grants(granted.Status.ResourceRules, verb, kind) })
		all.Go(func() { missing[i], failures[i] = r.reviewKind(ctx, kind, verbs) })
	}
	all.Wait()
	return slices.DeleteFunc(missing, func(text string) bool { return text == "" }), errors.Join(failures...)
}

// grants reports whether rules grant a verb for all objects of a kind.
func grants(rules []authorizationv1.ResourceRule, verb string, kind schema.GroupResource) bool {
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
		return len(rule.ResourceNames) == 0 && has(rule.Verbs, verb) && has(rule.APIGroups, kind.Group) && has(rule.Resources, kind.Resource)
	})
}

// reviewKind returns those of some verbs that are missing for a kind, with its name; empty if none is missing.
func (r *rights) reviewKind(ctx context.Context, kind schema.GroupResource, verbs []string) (string, error) {
	var missing []string
	for _, verb := range verbs {
		review, err := r.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: kind.Group, Resource: kind.Resource}}}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		if !review.Status.Allowed {
			missing = append(missing, verb)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return strings.Join(missing, "/") + " " + kind.String(), nil
}
