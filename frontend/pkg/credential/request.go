// Package credential validates and generates the certificate signing requests of admin credentials and writes
// kubeconfigs.
//
// The package validates form only and stores nothing. It returns private keys to its caller and does not write them
// anywhere else.
package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/certificaterequest"
)

// The subject that a request must have: the user and group of the administrator on the hosted API server.
const (
	CommonName   = "system:customer-break-glass:system-admin"
	Organization = "system:masters"
)

// maxRequest is the longest request in bytes of PEM. A request with an RSA key of maxRSABits has 3 KiB.
const maxRequest = 16 << 10

// The accepted sizes of RSA keys in bits. Larger keys only cost the service time.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

const requestType = "CERTIFICATE REQUEST"

// The object identifiers of a subject's attributes (RFC 5280, appendix A.1).
var (
	commonNameOID   = asn1.ObjectIdentifier{2, 5, 4, 3}
	organizationOID = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// report collects the violations of one field.
type report struct {
	field string
	found []apierror.Violation
}

func (r *report) invalid(value any, format string, args ...any) {
	r.found = append(r.found, apierror.Violation{Field: r.field,
		Message: fmt.Sprintf("Invalid value: %s: %s", wire.FormatValue(value), fmt.Sprintf(format, args...))})
}

// hidden adds a violation without the value, which may be a secret that was sent by mistake. Errors are logged.
func (r *report) hidden(message string) {
	r.found = append(r.found, apierror.Violation{Field: r.field, Message: "Invalid value: " + message})
}

// CheckRequest returns all violations of a certificate signing request: PEM of PKCS #10 (RFC 2986).
func CheckRequest(field, text string) []apierror.Violation {
	r := &report{field: field}
	if text == "" {
		return []apierror.Violation{{Field: field, Message: "Required value"}}
	}
	if len(text) > maxRequest {
		return []apierror.Violation{{Field: field, Message: fmt.Sprintf("Too long: may not be more than %d bytes", maxRequest)}}
	}
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil:
		r.hidden("must be PEM of type " + requestType)
		return r.found
	case block.Type != requestType:
		r.invalid(block.Type, "must be PEM of type %s", requestType)
		return r.found
	case len(bytes.TrimSpace(rest)) > 0:
		r.hidden("must be one PEM block, with nothing after it")
		return r.found
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		r.hidden("must be a PKCS #10 certificate signing request: " + err.Error())
		return r.found
	}
	checkSubject(r, request)
	if checkKey(r, request) {
		checkSignature(r, request)
	}
	return r.found
}

func checkSubject(r *report, request *x509.CertificateRequest) {
	var names, organizations []string
	for _, attribute := range request.Subject.Names {
		text, _ := attribute.Value.(string)
		switch {
		case attribute.Type.Equal(commonNameOID):
			names = append(names, text)
		case attribute.Type.Equal(organizationOID):
			organizations = append(organizations, text)
		}
	}
	only := func(values []string, attribute, want string) {
		if len(values) != 1 || values[0] != want {
			r.invalid(request.Subject.String(), "the subject's %s must be %s, once", attribute, want)
		}
	}
	only(names, "common name (CN)", CommonName)
	only(organizations, "organization (O)", Organization)
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		r.invalid(request.Subject.String(), "must not have subject alternative names")
	}
}

// checkKey validates the key and reports whether its signature can be checked.
func checkKey(r *report, request *x509.CertificateRequest) bool {
	switch key := request.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			r.invalid(fmt.Sprintf("RSA %d", bits), "an RSA key must have %d to %d bits", minRSABits, maxRSABits)
			return false
		}
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			r.invalid("ECDSA "+key.Params().Name, "an ECDSA key must be on the curve P-256, P-384 or P-521")
			return false
		}
	case ed25519.PublicKey:
	default:
		r.invalid(request.PublicKeyAlgorithm.String(), "the key must be RSA, ECDSA or Ed25519")
		return false
	}
	return true
}

func checkSignature(r *report, request *x509.CertificateRequest) {
	switch request.SignatureAlgorithm {
	case x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1:
		r.invalid(request.SignatureAlgorithm.String(), "must be signed with SHA-256 or better")
		return
	}
	if err := request.CheckSignature(); err != nil {
		r.invalid(request.SignatureAlgorithm.String(), "the signature does not verify with the request's own key")
	}
}

// NewRequest generates a private key and a request for it, both PEM.
func NewRequest() (key, request []byte, err error) {
	return certificaterequest.New(CommonName, Organization)
}
