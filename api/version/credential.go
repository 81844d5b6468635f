package version

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// AdminCredential is the wire form of the result of requestAdminCredential in every version.
type AdminCredential struct {
	Kubeconfig          string    `json:"kubeconfig"`
	ExpirationTimestamp time.Time `json:"expirationTimestamp"`
}

// EncodeAdminCredential returns the wire form of a credential.
func EncodeAdminCredential(credential *hub.AdminCredential) *AdminCredential {
	return &AdminCredential{Kubeconfig: credential.Kubeconfig, ExpirationTimestamp: credential.ExpirationTimestamp}
}

// DecodeAdminCredentialRequest decodes the body of requestAdminCredential at a version that has one.
func DecodeAdminCredentialRequest(body *wire.Body) *hub.AdminCredentialRequest {
	return &hub.AdminCredentialRequest{CertificateSigningRequest: body.String("certificateSigningRequest", "")}
}
