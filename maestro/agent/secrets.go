package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/ocm/pkg/work/spoke/auth"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// secretOpener opens sealed Secrets before they are applied. The controller that applies works passes each object to its validator
// before it applies the object, whatever the update strategy, and reports the validator's error as the reason why the object is
// not applied.
type secretOpener struct {
	auth.ExecutorValidator
	consumer string
	// keys is nil if the agent has no keys. It then applies Secrets that are not sealed, and refuses those that are.
	keys *seal.PrivateKeys
}

// Validate implements auth.ExecutorValidator.
func (o secretOpener) Validate(ctx context.Context, executor *workv1.ManifestWorkExecutor, gvr schema.GroupVersionResource,
	namespace, name string, owned bool, object *unstructured.Unstructured) error {
	if gvr.Group == "" && gvr.Resource == "secrets" {
		if err := o.open(object); err != nil {
			return fmt.Errorf("open Secret %s/%s: %w", namespace, name, err)
		}
	}
	return o.ExecutorValidator.Validate(ctx, executor, gvr, namespace, name, owned, object)
}

func (o secretOpener) open(object *unstructured.Unstructured) error {
	if o.keys != nil {
		return seal.OpenSecret(object.Object, o.consumer, o.keys)
	}
	if _, sealed := object.GetAnnotations()[seal.SecretAnnotation]; sealed {
		return errors.New("the Secret is sealed, and the agent has no keys")
	}
	return nil
}
