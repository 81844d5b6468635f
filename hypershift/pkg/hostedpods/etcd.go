package hostedpods

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// The Secrets of etcd, with HyperShift's names.
const (
	etcdSigner = "etcd-signer"
	etcdServer = "etcd-server-tls"
	etcdClient = "etcd-client-tls"
	authority  = "ca.crt"
)

// etcdCertificates creates the missing certificates of a control plane's etcd, and returns an identification of all of them. They have no
// owner, because they live as long as the data.
func (c *ControlPlanes) etcdCertificates(ctx context.Context, name string) (string, error) {
	now := time.Now()
	signer, err := c.ensureSecret(ctx, name, etcdSigner, corev1.SecretTypeOpaque, func() (map[string][]byte, error) {
		made, err := pki.NewAuthority("etcd-signer", now)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{authority: made.Cert, "ca.key": made.Key}, nil
	})
	if err != nil {
		return "", err
	}
	root, err := pki.ReadAuthority(pki.Pair{Cert: signer.Data[authority], Key: signer.Data["ca.key"]})
	if err != nil {
		return "", fmt.Errorf("reading Secret %s/%s: %w", name, etcdSigner, err)
	}
	leaf := func(pair pki.Pair, err error) (map[string][]byte, error) {
		return map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, authority: root.Cert}, err
	}
	server, err := c.ensureSecret(ctx, name, etcdServer, corev1.SecretTypeTLS, func() (map[string][]byte, error) {
		return leaf(root.Server("etcd", []string{serviceHost(etcdServiceName, name), "localhost", "127.0.0.1"}, now))
	})
	if err != nil {
		return "", err
	}
	user, err := c.ensureSecret(ctx, name, etcdClient, corev1.SecretTypeTLS, func() (map[string][]byte, error) {
		return leaf(root.Client("etcd-client", nil, now))
	})
	if err != nil {
		return "", err
	}
	return digest(server.Data[corev1.TLSCertKey], user.Data[corev1.TLSCertKey]), nil
}

// ensureSecret returns a Secret. If it does not exist, it is created with the data that fill returns.
func (c *ControlPlanes) ensureSecret(ctx context.Context, namespace, name string, kind corev1.SecretType, fill func() (map[string][]byte, error)) (*corev1.Secret, error) {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: namespace, Name: name}
	err := c.options.Management.Get(ctx, key, secret)
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	data, err := fill()
	if err != nil {
		return nil, fmt.Errorf("generating Secret %s: %w", key, err)
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels("etcd")}, Type: kind, Data: data}
	err = c.options.Management.Create(ctx, secret, fieldManager)
	if apierrors.IsAlreadyExists(err) { // the cache is older
		err = c.options.Live.Get(ctx, key, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", key, err)
	}
	return secret, nil
}

// Encrypted reports whether etcd has encrypted values of a control plane. A control plane without an etcd has none.
func (c *ControlPlanes) Encrypted(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := c.options.Live.Get(ctx, client.ObjectKey{Namespace: name, Name: etcdName}, &appsv1.StatefulSet{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting StatefulSet %s/%s: %w", name, etcdName, err)
	}
	secret := &corev1.Secret{}
	if err := c.options.Live.Get(ctx, client.ObjectKey{Namespace: name, Name: etcdClient}, secret); err != nil {
		return false, fmt.Errorf("getting Secret %s/%s: %w", name, etcdClient, err)
	}
	config, err := clientTLS(secret.Data)
	if err != nil {
		return false, fmt.Errorf("reading Secret %s/%s: %w", name, etcdClient, err)
	}
	etcd, err := etcdusers.Open("https://"+serviceHost(etcdServiceName, name)+":"+strconv.Itoa(etcdPort), config)
	if err != nil {
		return false, err
	}
	defer func() { _ = etcd.Close() }()
	n, err := etcd.CountValues(ctx, hostedapi.Prefix(name), kubeapi.EncryptedPrefix)
	return n > 0, err
}

// clientTLS returns the TLS configuration of a client of etcd.
func clientTLS(data map[string][]byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data[authority]) {
		return nil, errors.New(authority + " has no certificate")
	}
	certificate, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}
