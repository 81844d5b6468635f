package render

import (
	"encoding/base64"
	"time"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// Where the certificates are that an API server's own certificate is to be judged by: what it serves, where the service
// gave it a certificate, and the control plane's own root otherwise.
const (
	rootCASecret     = "root-ca"
	rootCAKey        = "ca.crt"
	servingCertField = "tls.crt"
)

// DefaultLifetime is how long a certificate lives when nothing shorter was asked for.
const DefaultLifetime = 24 * time.Hour

// certificateRequest is the CertificateSigningRequest of a credential. Requests are not in a namespace; their signer's
// name says which control plane they are for.
func (r *Renderer) certificateRequest(cluster *fleet.Cluster, c *fleet.Credential) object {
	lifetime := DefaultLifetime
	if asked := c.Spec.GetLifetime(); asked != nil {
		lifetime = asked.AsDuration()
	}
	return object{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": r.credentialMetadata(cluster, c, ""),
		"spec": object{
			"signerName":        "hypershift.openshift.io/" + fleet.ControlPlaneNamespace(r.Environment, cluster) + "." + fleet.SignerClass(c.Spec.GetClass()),
			"request":           base64.StdEncoding.EncodeToString([]byte(c.Spec.GetCertificateSigningRequest())),
			"usages":            []any{"client auth"},
			"expirationSeconds": int64(lifetime / time.Second),
		}}
}

// approval is what has the control plane approve the request: that it may be created is the authority to ask.
func (r *Renderer) approval(cluster *fleet.Cluster, c *fleet.Credential) object {
	return object{"apiVersion": "certificates.hypershift.openshift.io/v1alpha1", "kind": "CertificateSigningRequestApproval",
		"metadata": r.credentialMetadata(cluster, c, fleet.ControlPlaneNamespace(r.Environment, cluster))}
}

func (r *Renderer) credentialMetadata(cluster *fleet.Cluster, c *fleet.Credential, namespace string) object {
	metadata := r.metadata(cluster, fleet.CredentialName(c), namespace)
	metadata["labels"].(object)["api.openshift.com/type"] = "break-glass-credential"
	return metadata
}

// servingCA has the agent read the API server's certificate authority, and touch nothing.
func (r *Renderer) servingCA(cluster *fleet.Cluster) (object, workv1.ManifestConfigOption) {
	name, key := rootCASecret, rootCAKey
	if r.Config.ServingCertificates != nil {
		name, key = servingCertName, servingCertField
	}
	secret := object{"apiVersion": "v1", "kind": "Secret",
		"metadata": object{"name": name, "namespace": fleet.ControlPlaneNamespace(r.Environment, cluster)}}
	config := manifestConfig(secret)
	config.FeedbackRules = feedback.ServingCARules(key)
	return secret, config
}

// revocation is the CertificateRevocationRequest of a class.
func (r *Renderer) revocation(cluster *fleet.Cluster, v *fleet.Revocation) object {
	metadata := r.metadata(cluster, fleet.RevocationName(v), fleet.ControlPlaneNamespace(r.Environment, cluster))
	metadata["labels"].(object)["api.openshift.com/type"] = "break-glass-credential"
	return object{"apiVersion": "certificates.hypershift.openshift.io/v1alpha1", "kind": "CertificateRevocationRequest", "metadata": metadata,
		"spec": object{"signerClass": fleet.SignerClass(v.Class)}}
}
