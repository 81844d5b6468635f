package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/etcdrotation"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// etcdKind is the kind of the keys with which API servers encrypt etcd.
const etcdKind = "etcd"

// etcdRequestTimeout bounds a request to an API server.
const etcdRequestTimeout = time.Minute

// hostedKubeconfigSecret is HyperShift's Secret in a control plane's namespace with the administrator's kubeconfig.
const hostedKubeconfigSecret = "admin-kubeconfig"

// controlPlaneLabel is HyperShift's label of namespaces of control planes.
const controlPlaneLabel = "hypershift.openshift.io/hosted-control-plane=true"

// rotateEtcd replaces the key with which an API server of the local region encrypts etcd.
func (e *environment) rotateEtcd(c *cobra.Command, o keysRotateOptions) error {
	for _, flag := range []string{"service", "keyset", "public-keyset", "replica", "publish", "former-needed", "no-wait"} {
		if c.Flags().Changed(flag) {
			return invalid("--%s: the kind %s does not use it", flag, etcdKind)
		}
	}
	if o.shard == "" {
		return invalid("--shard: required for the kind %s", etcdKind)
	}
	if o.controlPlane == "" && c.Flags().Changed("control-plane") {
		return invalid("--control-plane: must not be empty")
	}
	dir, endpoints, err := e.localKeys(o)
	if err != nil {
		return err
	}
	// The engineer's, so that the audit records of the management cluster have the engineer's name.
	kubeconfig, ok := endpoints.EngineerKubeconfigs[o.shard]
	if !ok {
		return invalid("--shard: %q is not a management cluster of the region", o.shard)
	}
	management, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	tls, err := endpoints.EtcdTLS.Config()
	if err != nil {
		return err
	}
	r := &etcdrotation.Rotation{Note: func(text string) { fmt.Fprintln(e.err, text) }}
	if r.Etcd, err = etcdusers.Open(endpoints.Etcd, tls); err != nil {
		return err
	}
	defer func() { _ = r.Etcd.Close() }()
	what := "management cluster " + o.shard
	if o.controlPlane == "" {
		unlock, err := ofManagementCluster(r, local.EncryptionFileOf(dir, o.shard), "/"+o.shard, management)
		if err != nil {
			return err
		}
		defer unlock()
	} else {
		what = "control plane " + o.controlPlane
		if err := ofControlPlane(c.Context(), r, o.controlPlane, management); err != nil {
			return err
		}
	}
	return e.runRotation(c.Context(), r.Run, what+": etcd is encrypted with the new key, and the former key is removed")
}

// ofManagementCluster completes the rotation of a management cluster's key.
func ofManagementCluster(r *etcdrotation.Rotation, file, prefix string, management *rest.Config) (unlock func(), err error) {
	server, err := serverOf(management)
	if err != nil {
		return nil, err
	}
	r.Prefix, r.Server = prefix, func(context.Context) (*etcdrotation.Server, error) { return server, nil }
	r.Store, unlock, err = etcdrotation.OpenFile(file)
	return unlock, err
}

// ofControlPlane completes the rotation of a control plane's key.
func ofControlPlane(ctx context.Context, r *etcdrotation.Rotation, namespace string, management *rest.Config) error {
	server, err := serverOf(management)
	if err != nil {
		return err
	}
	client, err := corev1client.NewForConfig(management)
	if err != nil {
		return err
	}
	if _, err := client.Secrets(namespace).Get(ctx, kubeapi.HostedEncryptionSecret, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return unknownControlPlane(ctx, client.Namespaces(), namespace)
	} else if err != nil {
		return err
	}
	r.Store, r.Prefix = &etcdrotation.Secret{Management: *server, Namespace: namespace}, kubeapi.HostedPrefix(namespace)
	var current *etcdrotation.Server
	var used []byte
	r.Server = func(ctx context.Context) (*etcdrotation.Server, error) {
		secret, err := client.Secrets(namespace).Get(ctx, hostedKubeconfigSecret, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig of the hosted API server: %w", err)
		}
		kubeconfig := secret.Data["kubeconfig"]
		if current != nil && slices.Equal(used, kubeconfig) {
			return current, nil
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("the kubeconfig in Secret %s/%s cannot be used", namespace, hostedKubeconfigSecret) // the cause could quote it
		}
		hosted, err := serverOf(config)
		if err != nil {
			return nil, err
		}
		current, used = hosted, kubeconfig
		return current, nil
	}
	return nil
}

// unknownControlPlane returns an error with the namespaces that can be named.
func unknownControlPlane(ctx context.Context, client corev1client.NamespaceInterface, namespace string) error {
	namespaces, err := client.List(ctx, metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil {
		return err
	}
	var known []string
	for _, namespace := range namespaces.Items {
		known = append(known, namespace.Name)
	}
	slices.Sort(known)
	return invalid("--control-plane: %q is not the namespace of a control plane with a hosted API server: use one of [%s]", namespace, strings.Join(known, " "))
}

// serverOf returns the API server of a client configuration.
func serverOf(config *rest.Config) (*etcdrotation.Server, error) {
	config = rest.CopyConfig(config)
	config.Timeout = etcdRequestTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &etcdrotation.Server{URL: strings.TrimSuffix(url.String(), "/"), HTTP: client}, nil
}
