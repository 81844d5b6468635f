package hostedcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/stubkubelet"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keys of the secrets that HyperShift creates.
const (
	caCertKey     = "ca.crt"
	caKeyKey      = "ca.key"
	kubeconfigKey = "kubeconfig"
	passwordKey   = "password"
	signingKeyKey = "key"
)

// pkiMaterial is the PKI of a control plane, as it is stored in its namespace.
type pkiMaterial struct {
	root *pki.Authority
	// serving is empty in status fidelity, which has no API server.
	serving   pki.Pair
	admin     pki.Pair
	signing   *signingKey
	clientCA  []byte
	named     map[string]pki.Pair
	servingCA []byte
	// kubeletClient is empty in status fidelity.
	kubeletClient pki.Pair
	// encryptionKeys are zero in status fidelity, which stores nothing in etcd.
	encryptionKeys kubeapi.EncryptionKeys
	// problem is why the API server cannot be started. The other fields are valid.
	problem error
}

// ensurePKI creates the missing parts of a control plane's PKI and reads the others. It never replaces existing ones,
// so issued certificates stay valid. given is the key to which the spec refers for service-account tokens; if it is nil, the control plane has one of its own.
func (r *Reconciler) ensurePKI(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, given *signingKey, now time.Time) (*pkiMaterial, error) {
	owner := []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}
	secret := func(name string, kind corev1.SecretType, fill func() (map[string][]byte, error)) (map[string][]byte, error) {
		s, err := r.ensureSecret(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: name}, kind, owner, controlPlaneManager, fill)
		if err != nil {
			return nil, err
		}
		return s.Data, nil
	}
	var m pkiMaterial

	data, err := secret(contract.RootCASecret, corev1.SecretTypeOpaque, func() (map[string][]byte, error) {
		root, err := pki.NewAuthority("root-ca", now)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{caCertKey: root.Cert, caKeyKey: root.Key}, nil
	})
	if err != nil {
		return nil, err
	}
	if m.root, err = pki.ReadAuthority(pki.Pair{Cert: data[caCertKey], Key: data[caKeyKey]}); err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", hcp.Namespace, contract.RootCASecret, err)
	}
	m.servingCA = m.root.Cert
	if err := r.ensureRootAuthority(ctx, hcp, m.root.Cert); err != nil {
		return nil, err
	}

	tlsData := func(pair pki.Pair) map[string][]byte {
		return map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key}
	}
	writes := []func() error{
		func() error {
			data, err := secret(contract.AdminClientSecret, corev1.SecretTypeTLS, func() (map[string][]byte, error) {
				pair, err := m.root.Client("system:admin", []string{"system:masters"}, now)
				return tlsData(pair), err
			})
			m.admin = pki.Pair{Cert: data[corev1.TLSCertKey], Key: data[corev1.TLSPrivateKeyKey]}
			return err
		},
		func() error {
			if !hasPassword(hc, hcp) {
				return nil
			}
			data, err := secret(contract.KubeadminPasswordSecret, corev1.SecretTypeOpaque, func() (map[string][]byte, error) {
				password, err := newPassword()
				return map[string][]byte{passwordKey: password}, err
			})
			if err != nil {
				return err
			}
			return r.copySecret(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: contract.KubeadminPassword(hc.Name)}, corev1.SecretTypeOpaque,
				map[string][]byte{passwordKey: data[passwordKey]}, []metav1.OwnerReference{ownerOf(hc, "HostedCluster")}, operatorManager)
		},
		func() error {
			var source corev1.Secret
			if err := r.Management.Get(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: hc.Spec.PullSecret.Name}, &source); err != nil {
				return fmt.Errorf("getting the pull secret: %w", err)
			}
			return r.copySecret(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: contract.PullSecret}, source.Type, source.Data, owner, controlPlaneManager)
		},
		func() (err error) {
			m.named, err = r.ensureNamedCertificates(ctx, hc, hcp, m.root, now)
			return err
		},
		func() (err error) {
			m.clientCA, err = r.ensureClientCA(ctx, hcp, m.root.Cert)
			return err
		},
		func() (err error) {
			if m.signing = given; given == nil {
				m.signing, err = generatedSigningKey(secret)
			}
			return err
		},
	}
	// Nothing reads the others in status fidelity, which has no API server.
	if hcp.Annotations[contract.FidelityAnnotation] == string(contract.FidelityProcess) {
		writes = append(writes,
			func() error {
				data, err := secret(contract.ServingCertSecret, corev1.SecretTypeTLS, func() (map[string][]byte, error) {
					pair, err := m.root.Server("kubernetes", servingNames(hc), now)
					return tlsData(pair), err
				})
				m.serving = pki.Pair{Cert: data[corev1.TLSCertKey], Key: data[corev1.TLSPrivateKeyKey]}
				return err
			},
			func() error {
				data, err := secret(contract.KubeletClientSecret, corev1.SecretTypeTLS, func() (map[string][]byte, error) {
					pair, err := m.root.Client(stubkubelet.ClientName, []string{stubkubelet.ClientGroup}, now)
					return tlsData(pair), err
				})
				m.kubeletClient = pki.Pair{Cert: data[corev1.TLSCertKey], Key: data[corev1.TLSPrivateKeyKey]}
				return err
			},
			func() (err error) {
				m.encryptionKeys, err = r.encryptionKeys(ctx, hcp.Namespace)
				if errors.Is(err, errKeysMissing) {
					m.problem = err
					return nil
				}
				return err
			})
	}
	if err := runConcurrently(componentWriters, writes); err != nil {
		return nil, err
	}
	return &m, nil
}

// signingKey is a key for service-account tokens.
type signingKey struct{ private, public []byte }

// generatedSigningKey returns the key of a control plane whose spec refers to none, which it creates if it is missing. secret returns the data of a secret.
func generatedSigningKey(secret func(string, corev1.SecretType, func() (map[string][]byte, error)) (map[string][]byte, error)) (*signingKey, error) {
	const private, public = "service-account.key", "service-account.pub"
	data, err := secret(contract.ServiceAccountKeySecret, corev1.SecretTypeOpaque, func() (map[string][]byte, error) {
		key, publicKey, err := pki.NewSigningKey()
		return map[string][]byte{private: key, public: publicKey}, err
	})
	return &signingKey{data[private], data[public]}, err
}

// givenSigningKey returns the key to which the spec refers, or why the operator refuses it.
func (r *Reconciler) givenSigningKey(ctx context.Context, hc *hyperv1.HostedCluster) (given *signingKey, invalid, err error) {
	var s corev1.Secret
	name := hc.Spec.ServiceAccountSigningKey.Name
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: name}, &s); err != nil {
		return nil, nil, fmt.Errorf("getting the service account signing key: %w", err)
	}
	private := s.Data[signingKeyKey]
	public, err := pki.SigningPublicKey(private)
	if err != nil {
		return nil, fmt.Errorf("invalid service account signing key: cannot decode private key in secret %s: %w", name, err), nil
	}
	return &signingKey{private, public}, nil, nil
}

// ensureNamedCertificates copies the certificates that the spec names for the API server to the control plane's
// namespace. It issues missing ones in the HostedCluster's namespace, in place of Azure Key Vault and SecretSync. The
// root is appended, so that clients that trust the bundle trust the server.
func (r *Reconciler) ensureNamedCertificates(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, root *pki.Authority, now time.Time) (map[string]pki.Pair, error) {
	named := map[string]pki.Pair{}
	if hc.Spec.Configuration == nil || hc.Spec.Configuration.APIServer == nil {
		return named, nil
	}
	for _, certificate := range hc.Spec.Configuration.APIServer.ServingCerts.NamedCertificates {
		name := certificate.ServingCertificate.Name
		if name == "" {
			continue
		}
		source, err := r.ensureSecret(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: name}, corev1.SecretTypeTLS, []metav1.OwnerReference{ownerOf(hc, "HostedCluster")}, operatorManager,
			func() (map[string][]byte, error) {
				pair, err := root.Server(name, certificate.Names, now)
				return map[string][]byte{corev1.TLSCertKey: append(pair.Cert, root.Cert...), corev1.TLSPrivateKeyKey: pair.Key}, err
			})
		if err != nil {
			return nil, err
		}
		if err := r.copySecret(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: name}, source.Type, source.Data, []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}, controlPlaneManager); err != nil {
			return nil, err
		}
		for _, host := range certificate.Names {
			named[host] = pki.Pair{Cert: source.Data[corev1.TLSCertKey], Key: source.Data[corev1.TLSPrivateKeyKey]}
		}
	}
	return named, nil
}

// ensureClientCA writes the bundle that verifies client certificates: the control plane's root and the content of
// total-client-ca, in which signers for break-glass credentials publish their certificates.
func (r *Reconciler) ensureClientCA(ctx context.Context, hcp *hyperv1.HostedControlPlane, root []byte) ([]byte, error) {
	bundle := bytes.Clone(root)
	var total corev1.ConfigMap
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: contract.TotalClientCAConfigMap}, &total)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	default:
		bundle = append(bundle, total.Data[contract.CABundleKey]...)
	}
	key := client.ObjectKey{Namespace: hcp.Namespace, Name: contract.ClientCAConfigMap}
	var current corev1.ConfigMap
	err = r.Management.Get(ctx, key, &current)
	if apierrors.IsNotFound(err) {
		current = corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}},
			Data:       map[string]string{contract.CABundleKey: string(bundle)},
		}
		if err = r.Management.Create(ctx, &current, controlPlaneManager); apierrors.IsAlreadyExists(err) {
			err = r.Live.Get(ctx, key, &current)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ensuring ConfigMap %s: %w", key, err)
	}
	if current.Data[contract.CABundleKey] == string(bundle) {
		return bundle, nil
	}
	base := current.DeepCopy()
	current.Data = map[string]string{contract.CABundleKey: string(bundle)}
	if err := r.Management.Patch(ctx, &current, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
		return nil, fmt.Errorf("updating ConfigMap %s: %w", key, err)
	}
	return bundle, nil
}

// ensureKubeconfigs writes the administrator's kubeconfig and its copies.
func (r *Reconciler) ensureKubeconfigs(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, m *pkiMaterial, endpoint hyperv1.APIEndpoint) error {
	admin, err := kubeconfig(hc.Name, endpoint, "", m.servingCA, m.admin)
	if err != nil {
		return err
	}
	writes := []func() error{
		func() error {
			return r.copySecret(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: contract.AdminKubeconfigSecret}, corev1.SecretTypeOpaque,
				map[string][]byte{kubeconfigKey: admin}, []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}, controlPlaneManager)
		},
		func() error {
			return r.copySecret(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: contract.AdminKubeconfig(hc.Name)}, corev1.SecretTypeOpaque,
				map[string][]byte{kubeconfigKey: admin}, []metav1.OwnerReference{ownerOf(hc, "HostedCluster")}, operatorManager)
		},
	}
	if dnsName := hc.Spec.KubeAPIServerDNSName; dnsName != "" {
		custom, err := kubeconfig(hc.Name, endpoint, dnsName, m.servingCA, m.admin)
		if err != nil {
			return err
		}
		writes = append(writes, func() error {
			return r.copySecret(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: contract.CustomKubeconfig(hc.Name)}, corev1.SecretTypeOpaque,
				map[string][]byte{kubeconfigKey: custom}, []metav1.OwnerReference{ownerOf(hc, "HostedCluster")}, operatorManager)
		})
	}
	return runConcurrently(componentWriters, writes)
}

// kubeconfig renders a kubeconfig. If serverName is set, clients verify the server's certificate for it. The address
// remains the endpoint's, because the cluster's DNS name does not resolve on a local machine.
func kubeconfig(cluster string, endpoint hyperv1.APIEndpoint, serverName string, ca []byte, user pki.Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server:                   "https://" + endpoint.Host + ":" + strconv.Itoa(int(endpoint.Port)),
		TLSServerName:            serverName,
		CertificateAuthorityData: ca,
	}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key}
	config.Contexts["admin"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "admin", Namespace: "default"}
	config.CurrentContext = "admin"
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("rendering the kubeconfig of %s: %w", cluster, err)
	}
	return text, nil
}

// servingNames returns the names and addresses of a hosted API server.
func servingNames(hc *hyperv1.HostedCluster) []string {
	names := []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"kube-apiserver", "kube-apiserver." + contract.ControlPlaneNamespace(hc.Namespace, hc.Name) + ".svc"}
	for _, name := range []string{hc.Spec.KubeAPIServerDNSName, externalHost(hc)} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// newPassword returns a password in the format of an initial kubeadmin password: four groups of five characters.
func newPassword() ([]byte, error) {
	random := make([]byte, 18)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	letters := base64.RawURLEncoding.EncodeToString(random)
	letters = strings.NewReplacer("-", "x", "_", "y").Replace(letters)[:20]
	return []byte(letters[:5] + "-" + letters[5:10] + "-" + letters[10:15] + "-" + letters[15:]), nil
}

// ensureSecret returns a secret. If it does not exist, it is created with the data that fill returns. If another client
// creates it at the same time, that secret is returned.
func (r *Reconciler) ensureSecret(ctx context.Context, key client.ObjectKey, kind corev1.SecretType, owners []metav1.OwnerReference, manager client.FieldOwner, fill func() (map[string][]byte, error)) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := r.Management.Get(ctx, key, &secret)
	if err == nil {
		return &secret, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("getting Secret %s: %w", key, err)
	}
	data, err := fill()
	if err != nil {
		return nil, fmt.Errorf("generating the data of Secret %s: %w", key, err)
	}
	secret = corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: owners},
		Type:       kind,
		Data:       data,
	}
	err = r.Management.Create(ctx, &secret, manager)
	if apierrors.IsAlreadyExists(err) {
		secret = corev1.Secret{}
		err = r.Live.Get(ctx, key, &secret)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", key, err)
	}
	return &secret, nil
}

// copySecret makes the data of a secret equal to data.
func (r *Reconciler) copySecret(ctx context.Context, key client.ObjectKey, kind corev1.SecretType, data map[string][]byte, owners []metav1.OwnerReference, manager client.FieldOwner) error {
	secret, err := r.ensureSecret(ctx, key, kind, owners, manager, func() (map[string][]byte, error) { return data, nil })
	if err != nil {
		return err
	}
	if maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return nil
	}
	base := secret.DeepCopy()
	secret = secret.DeepCopy()
	secret.Data = data
	if err := r.Management.Patch(ctx, secret, readyourwrites.LockedPatch(base), manager); err != nil {
		return fmt.Errorf("updating Secret %s: %w", key, err)
	}
	return nil
}
