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
	reviews authorizationclient.SelfSubjectAccessReviewsGetter
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

// review returns the missing rights: for each kind, the verbs. It asks for all kinds at once, because a readiness check has little time.
func (r *rights) review(ctx context.Context) ([]string, error) {
	kinds := append([]schema.GroupResource{{Group: "work.open-cluster-management.io", Resource: "appliedmanifestworks"}}, r.kinds()...)
	missing, failures := make([]string, len(kinds)), make([]error, len(kinds))
	var all sync.WaitGroup
	for i, kind := range kinds {
		all.Go(func() { missing[i], failures[i] = r.reviewKind(ctx, kind) })
	}
	all.Wait()
	return slices.DeleteFunc(missing, func(text string) bool { return text == "" }), errors.Join(failures...)
}

// reviewKind returns the missing verbs of a kind with its name; empty if none is missing.
func (r *rights) reviewKind(ctx context.Context, kind schema.GroupResource) (string, error) {
	var verbs []string
	for _, verb := range neededVerbs {
		review, err := r.reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: kind.Group, Resource: kind.Resource}}}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		if !review.Status.Allowed {
			verbs = append(verbs, verb)
		}
	}
	if len(verbs) == 0 {
		return "", nil
	}
	return strings.Join(verbs, "/") + " " + kind.String(), nil
}
