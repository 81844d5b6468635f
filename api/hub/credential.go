package hub

import "time"

// AdminCredentialRequest is a request for an admin credential of a cluster.
type AdminCredentialRequest struct {
	// CertificateSigningRequest is PEM for a key that only the client has. If it is empty, the service generates the key.
	CertificateSigningRequest string
}

// AdminCredential is an admin credential of a cluster. It is a secret: it is returned once and never logged.
type AdminCredential struct {
	// Kubeconfig contains the certificate, and the private key if the service generated it.
	Kubeconfig          string
	ExpirationTimestamp time.Time
}
