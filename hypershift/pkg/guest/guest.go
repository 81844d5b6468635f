// Package guest follows, inside hosted clusters, the secrets that their owners provide for the platform: those in the
// namespace openshift-config. It makes that namespace, and remembers of each secret only which keys are set, never a value.
// A Follower owns one watch per hosted cluster for as long as somebody there is waited for.
package guest

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/follow"
)

// ConfigNamespace is where the owner of a cluster puts what the platform refers to.
const ConfigNamespace = "openshift-config"

// keysBySecret are the keys that are set, by secret.
type keysBySecret map[string]map[string]bool

// Follower follows the secrets of many hosted clusters, named by their control-plane namespaces.
type Follower struct {
	*follow.Follower[keysBySecret]
}

// NewFollower returns a follower of nothing. changed is called with a control plane of whose secrets something else is known
// now. Close must be called.
func NewFollower(connect follow.Connect, changed func(controlPlane string), log *slog.Logger) *Follower {
	return &Follower{follow.New(follow.Kind[keysBySecret]{
		Plural: "secrets", UserAgent: "hosted-cluster-config-operator/hcpmesh", New: func() keysBySecret { return keysBySecret{} },
		Informer: informer, Learn: learn, Unlearn: unlearn,
	}, connect, changed, log)}
}

// Has reports whether a secret has a key, and begins to follow the hosted cluster if it is not followed yet. Until its
// secrets have been listed nothing is known; changed is called when that is over.
func (f *Follower) Has(ctx context.Context, controlPlane, secret, key string) (has, known bool) {
	known = f.Look(ctx, controlPlane, func(kept keysBySecret) { has = kept[secret][key] })
	return has, known
}

func informer(ctx context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ConfigNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("making namespace %s: %w", ConfigNamespace, err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ConfigNamespace), informers.WithTransform(onlyKeys))
	return factory.Core().V1().Secrets().Informer(), nil
}

// onlyKeys drops every value before it is kept.
func onlyKeys(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	bare := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion},
		Data: map[string][]byte{}}
	for key, value := range secret.Data {
		if len(value) > 0 {
			bare.Data[key] = nil
		}
	}
	return bare, nil
}

func learn(kept keysBySecret, object any) (changed bool) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return false
	}
	keys := map[string]bool{}
	for key := range secret.Data {
		keys[key] = true
	}
	kept[secret.Name] = keys
	return true
}

func unlearn(kept keysBySecret, object any) (changed bool) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return false
	}
	delete(kept, secret.Name)
	return true
}
