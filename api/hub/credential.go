package hub

import "time"

// AdminCredentialRequest asks for a break-glass credential of a cluster.
type AdminCredentialRequest struct {
	// CertificateSigningRequest is PEM, for a key that the client keeps; empty when the service makes the key.
	CertificateSigningRequest string
}

// AdminCredential is a break-glass credential of a cluster. It is a secret: it is shown once, and never logged.
type AdminCredential struct {
	// Kubeconfig holds the certificate, and the private key if the service made it.
	Kubeconfig          string
	ExpirationTimestamp time.Time
}
