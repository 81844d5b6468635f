package hostedcluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// errKeysMissing is returned by encryptionKeys if the keys cannot be replaced by a new one.
var errKeysMissing = errors.New("it is missing, and etcd has values that its key encrypted, which a new key cannot decrypt")

// encryptionKeys returns the keys with which the hosted API server of a namespace encrypts etcd. It creates the first one, unless etcd
// already has encrypted values.
func (r *Reconciler) encryptionKeys(ctx context.Context, namespace string) (kubeapi.EncryptionKeys, error) {
	// No owner: the keys live as long as etcd's data, which outlives the HostedControlPlane in the namespace.
	key := client.ObjectKey{Namespace: namespace, Name: contract.EncryptionKeySecret}
	secret, err := r.ensureSecret(ctx, key, corev1.SecretTypeOpaque, nil, controlPlaneManager, func() (map[string][]byte, error) {
		if r.ControlPlanes == nil {
			return nil, errNoControlPlanes
		}
		if encrypted, err := r.ControlPlanes.Encrypted(ctx, namespace); err != nil {
			return nil, err
		} else if encrypted {
			return nil, errKeysMissing
		}
		return kubeapi.NewEncryptionKeys().SecretData(), nil
	})
	if errors.Is(err, errKeysMissing) {
		// The cache can be older than the Secret.
		secret = &corev1.Secret{}
		if err = r.Live.Get(ctx, key, secret); apierrors.IsNotFound(err) {
			err = fmt.Errorf("reading the Secret %s: %w; restore it from a backup, or from the file of the hosted API server", key, errKeysMissing)
		}
	}
	if err != nil {
		return kubeapi.EncryptionKeys{}, err
	}
	return kubeapi.EncryptionKeysOf(secret.Data)
}
