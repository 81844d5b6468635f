package render

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// servingCertName is the name of the Secret with the API server's serving certificate, and of the objects that fill it.
const servingCertName = "kube-apiserver-tls-cert"

// secretProviderClass is a SecretProviderClass of the Secrets Store CSI driver, secrets-store.csi.x-k8s.io/v1. It has only
// the fields that are rendered: the driver's module would bring its own versions of Kubernetes.
type secretProviderClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Provider   string            `json:"provider"`
		Parameters map[string]string `json:"parameters"`
	} `json:"spec"`
}

// secretSync is a SecretSync of the Secrets Store Sync Controller, secret-sync.x-k8s.io/v1alpha1. It has only the fields that
// are rendered.
type secretSync struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              secretSyncSpec `json:"spec"`
}

type secretSyncSpec struct {
	ServiceAccountName      string       `json:"serviceAccountName"`
	SecretProviderClassName string       `json:"secretProviderClassName"`
	SecretObject            secretObject `json:"secretObject"`
	// ForceSynchronization makes the controller fetch the content at once when its value changes.
	ForceSynchronization string `json:"forceSynchronization,omitempty"`
}

type secretObject struct {
	Type corev1.SecretType `json:"type"`
	Data []secretSource    `json:"data"`
}

// secretSource copies the object SourcePath of the vault to key TargetKey of the Secret.
type secretSource struct {
	SourcePath string `json:"sourcePath"`
	TargetKey  string `json:"targetKey"`
}

// servingCertificate returns the objects that copy the API server's certificate from Key Vault to the Secret that the
// HostedCluster names. They name no version, so the newest one is copied. The version of a renewed certificate forces a
// synchronization, so that it is copied at once.
func (r *Renderer) servingCertificate(t *fleet.ClusterAggregate) []metav1.Object {
	c, certificates := t.Cluster, r.Config.ServingCertificates
	if certificates == nil {
		return nil
	}
	source := "kas-" + c.ID()
	class := &secretProviderClass{TypeMeta: metav1.TypeMeta{APIVersion: "secrets-store.csi.x-k8s.io/v1", Kind: "SecretProviderClass"},
		ObjectMeta: r.metadata(c, servingCertName, r.namespaceOf(c))}
	class.Spec.Provider = "azure"
	class.Spec.Parameters = map[string]string{"clientID": certificates.ClientID, "keyvaultName": certificates.Vault, "tenantID": certificates.TenantID,
		"objects": fmt.Sprintf("array:\n- |\n  objectName: %s\n  objectType: secret\n", source)}
	sync := &secretSync{TypeMeta: metav1.TypeMeta{APIVersion: "secret-sync.x-k8s.io/v1alpha1", Kind: "SecretSync"},
		ObjectMeta: r.metadata(c, servingCertName, r.namespaceOf(c)),
		Spec: secretSyncSpec{ServiceAccountName: "default", SecretProviderClassName: servingCertName, ForceSynchronization: t.RenewedCertificate(),
			SecretObject: secretObject{Type: corev1.SecretTypeTLS,
				Data: []secretSource{{source, corev1.TLSCertKey}, {source, corev1.TLSPrivateKeyKey}}}}}
	return []metav1.Object{class, sync}
}

// The Secret and key that hold the certificate authority of an API server without a serving certificate of its own.
const (
	rootCASecret = "root-ca"
	rootCAKey    = "ca.crt"
)

// servingCA returns the Secret with the certificate authority of the API server's certificate, and which of its values the agent
// reports: the certificates, and no key. The agent only reads it.
func (r *Renderer) servingCA(c *fleet.Cluster) (*unstructured.Unstructured, workv1.ManifestConfigOption, error) {
	name, key := rootCASecret, rootCAKey
	if r.Config.ServingCertificates != nil {
		name, key = servingCertName, corev1.TLSCertKey
	}
	secret, err := manifest(&corev1.Secret{TypeMeta: typeMeta(corev1.SchemeGroupVersion, "Secret"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fleet.ControlPlaneNamespace(r.Environment, c)}})
	if err != nil {
		return nil, workv1.ManifestConfigOption{}, err
	}
	config := manifestConfig(secret)
	config.FeedbackRules = feedback.ServingCARules(key)
	return secret, config, nil
}
