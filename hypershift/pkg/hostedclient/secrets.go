package hostedclient

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
)

// ConfigNamespace is the namespace of the objects that the platform's configuration refers to.
const ConfigNamespace = "openshift-config"

// keysBySecret holds the keys that are set, by name of the secret.
type keysBySecret map[string]map[string]bool

// SecretWatcher watches the secrets that the owners of hosted clusters provide for the platform: those in ConfigNamespace,
// which it creates. Of each secret it stores only which keys are set, never a value. Hosted clusters are identified by
// their control-plane namespaces.
type SecretWatcher struct {
	*Watcher[keysBySecret]
}

// NewSecretWatcher returns a SecretWatcher without hosted clusters. changed is called with a control-plane namespace when its
// secrets changed. The caller must call Close.
func NewSecretWatcher(connect Connect, changed func(controlPlane string), log *slog.Logger) *SecretWatcher {
	return &SecretWatcher{NewWatcher(Resource[keysBySecret]{
		Plural: "secrets", UserAgent: "hosted-cluster-config-operator/hcpmesh", NewState: func() keysBySecret { return keysBySecret{} },
		NewInformer: newSecretInformer, Add: addSecret, Remove: removeSecret,
	}, connect, changed, log)}
}

// Has reports whether a secret has a key, and starts to watch the hosted cluster if necessary. known is false until the
// secrets have been listed; changed is called afterwards.
func (w *SecretWatcher) Has(ctx context.Context, controlPlane, secret, key string) (has, known bool) {
	known = w.Read(ctx, controlPlane, func(secrets keysBySecret) { has = secrets[secret][key] })
	return has, known
}

func newSecretInformer(ctx context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ConfigNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating namespace %s: %w", ConfigNamespace, err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ConfigNamespace), informers.WithTransform(dropValues))
	return factory.Core().V1().Secrets().Informer(), nil
}

// dropValues removes all values before the informer stores a secret.
func dropValues(object any) (any, error) {
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

func addSecret(secrets keysBySecret, object any) (changed bool) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return false
	}
	keys := map[string]bool{}
	for key := range secret.Data {
		keys[key] = true
	}
	secrets[secret.Name] = keys
	return true
}

func removeSecret(secrets keysBySecret, object any) (changed bool) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return false
	}
	delete(secrets, secret.Name)
	return true
}
