package version

import (
	"maps"
	"slices"
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

// signingRequest is the only field of the body of requestAdminCredential.
const signingRequest = "certificateSigningRequest"

// AdminCredentialForm returns the form of the body of requestAdminCredential.
func AdminCredentialForm() *wire.Form {
	return wire.Fields(map[string]*wire.Form{signingRequest: wire.Scalar()})
}

// DecodeAdminCredentialRequest decodes the body of requestAdminCredential at a version that has one.
func DecodeAdminCredentialRequest(body *wire.Body) *hub.AdminCredentialRequest {
	return &hub.AdminCredentialRequest{CertificateSigningRequest: body.String(signingRequest, "")}
}

// UnknownAdminCredentialField returns the first field, in order of names, of a body of requestAdminCredential that no version
// has, and the empty string if there is none.
func UnknownAdminCredentialField(fields map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != signingRequest {
			return name
		}
	}
	return ""
}
