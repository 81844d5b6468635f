// Package hostedclient is the client of the API servers of hosted clusters. FromSecrets finds them, a Watcher watches the
// objects of one kind inside hosted clusters, a SecretWatcher the secrets of their owners, and EnsureReaders gives the
// group of readers its rights.
package hostedclient

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

// Connect returns the administrator's client configuration of a hosted cluster, which is identified by its
// control-plane namespace.
type Connect func(ctx context.Context, controlPlane string) (*rest.Config, error)

// FromSecrets returns a Connect that reads the administrator's kubeconfig in the control-plane namespace.
func FromSecrets(management client.Reader) Connect {
	return func(ctx context.Context, controlPlane string) (*rest.Config, error) {
		var secret corev1.Secret
		if err := management.Get(ctx, client.ObjectKey{Namespace: controlPlane, Name: contract.AdminKubeconfigSecret}, &secret); err != nil {
			return nil, fmt.Errorf("getting the kubeconfig of %s: %w", controlPlane, err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig of %s: %w", controlPlane, err)
		}
		return config, nil
	}
}

// Equal reports whether two configurations reach the same API server with the same credentials. Equal addresses do not suffice: a
// control plane that was removed and built again often gets the port of the previous one, but has authorities and certificates of
// its own.
func Equal(a, b *rest.Config) bool {
	return a.Host == b.Host && bytes.Equal(a.CAData, b.CAData) && bytes.Equal(a.CertData, b.CertData) && bytes.Equal(a.KeyData, b.KeyData)
}
