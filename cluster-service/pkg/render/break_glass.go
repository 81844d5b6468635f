package render

import (
	"fmt"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// certificateRequest returns the CertificateSigningRequest of a credential. It is not in a namespace; the name of its signer
// identifies the control plane.
func (r *Renderer) certificateRequest(cluster *fleet.Cluster, c *fleet.Credential) (*certificatesv1.CertificateSigningRequest, error) {
	class, err := fleet.SignerClass(c.Spec.GetClass())
	if err != nil {
		return nil, fmt.Errorf("spec.class: %w", err)
	}
	name, err := fleet.CredentialName(c)
	if err != nil {
		return nil, fmt.Errorf("spec.class: %w", err)
	}
	lifetime := fleet.DefaultLifetime
	if requested := c.Spec.GetLifetime(); requested != nil {
		lifetime = requested.AsDuration()
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   typeMeta(certificatesv1.SchemeGroupVersion, "CertificateSigningRequest"),
		ObjectMeta: r.breakGlassMetadata(cluster, name, ""),
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName:        "hypershift.openshift.io/" + fleet.ControlPlaneNamespace(r.Environment, cluster) + "." + class,
			Request:           []byte(c.Spec.GetCertificateSigningRequest()),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			ExpirationSeconds: new(int32(lifetime / time.Second)),
		},
	}, nil
}

// approval returns the object that makes the control plane approve the request with the same name. The right to create it is
// the authorization.
func (r *Renderer) approval(cluster *fleet.Cluster, name string) *certificatesv1alpha1.CertificateSigningRequestApproval {
	return &certificatesv1alpha1.CertificateSigningRequestApproval{
		TypeMeta:   typeMeta(certificatesv1alpha1.SchemeGroupVersion, "CertificateSigningRequestApproval"),
		ObjectMeta: r.breakGlassMetadata(cluster, name, fleet.ControlPlaneNamespace(r.Environment, cluster)),
	}
}

// revocation returns the request to replace the signer of a class.
func (r *Renderer) revocation(cluster *fleet.Cluster, v *fleet.Revocation) (*certificatesv1alpha1.CertificateRevocationRequest, error) {
	class, err := fleet.SignerClass(v.Class)
	if err != nil {
		return nil, fmt.Errorf("class: %w", err)
	}
	return &certificatesv1alpha1.CertificateRevocationRequest{
		TypeMeta:   typeMeta(certificatesv1alpha1.SchemeGroupVersion, "CertificateRevocationRequest"),
		ObjectMeta: r.breakGlassMetadata(cluster, fleet.RevocationName(v), fleet.ControlPlaneNamespace(r.Environment, cluster)),
		Spec:       certificatesv1alpha1.CertificateRevocationRequestSpec{SignerClass: class},
	}, nil
}

func (r *Renderer) breakGlassMetadata(cluster *fleet.Cluster, name, namespace string) metav1.ObjectMeta {
	metadata := r.metadata(cluster, name, namespace)
	metadata.Labels["api.openshift.com/type"] = "break-glass-credential"
	return metadata
}
