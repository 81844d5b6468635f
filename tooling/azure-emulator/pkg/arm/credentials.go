package arm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// CredentialsPath is the beginning of the paths of the data plane of managed identities. ARM sends a resource provider a URL of the data plane in the
// header x-ms-identity-url. IdentityAudience is the audience of the tokens for it.
const (
	CredentialsPath  = "/identity/"
	IdentityAudience = "https://identity.azure.net"
)

const (
	credentialsVersion = "2024-01-01"
	// credentialLifetime is the validity period of a credential. A credential is renewed from the middle of it on, and can be renewed until
	// the same time after its end.
	credentialLifetime = 90 * 24 * time.Hour
	// maxCredentials bounds the identities of a request.
	maxCredentials = 100
)

// credential is the credential of an identity: the base64 of a certificate and its key in PEM. In Azure it is the base64 of PKCS #12.
type credential struct {
	ClientID               string `json:"client_id"`
	ObjectID               any    `json:"object_id"`
	TenantID               any    `json:"tenant_id"`
	ResourceID             string `json:"resource_id"`
	ClientSecret           string `json:"client_secret"`
	ClientSecretURL        string `json:"client_secret_url"`
	AuthenticationEndpoint string `json:"authentication_endpoint"`
	NotBefore              string `json:"not_before"`
	NotAfter               string `json:"not_after"`
	RenewAfter             string `json:"renew_after"`
	CannotRenewAfter       string `json:"cannot_renew_after"`
}

// ServeCredentials serves the data plane of managed identities: it issues credentials of the requested identities to resource providers.
func (s *Server) ServeCredentials(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	issued, err := s.issueCredentials(r)
	if err != nil {
		WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"explicit_identities": issued}) // an error means that the client has disconnected
}

func (s *Server) issueCredentials(r *http.Request) ([]*credential, error) {
	caller := rbac.FromContext(r.Context())
	if !slices.ContainsFunc(s.ResourceProviders, func(id string) bool { return strings.EqualFold(id, caller.ObjectID) }) {
		return nil, &rbac.Denied{Caller: caller, Action: rbac.Action{Name: identityType + "/credentials/action"}, Scope: r.URL.Path}
	}
	if version := r.URL.Query().Get("api-version"); r.Method != http.MethodPost || version != credentialsVersion {
		return nil, notImplemented("%s with the api-version '%s' is not emulated for credentials of identities.", r.Method, version)
	}
	var requested struct {
		IdentityIDs []string `json:"identityIds"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&requested); err != nil || len(requested.IdentityIDs) == 0 || len(requested.IdentityIDs) > maxCredentials {
		return nil, badRequest("BadRequest", "The request names no identities, or more than %d.", maxCredentials)
	}
	var issued []*credential
	err := s.Store.View(func(tx *store.Tx) error {
		c := &call{Server: s, tx: tx}
		for _, id := range requested.IdentityIDs {
			identity, err := c.find(id)
			if err != nil {
				return err
			}
			if identity == nil || !strings.EqualFold(identity.Type, identityType) {
				return &Error{Status: http.StatusNotFound, Code: "IdentityNotFound", Message: "The identity '" + id + "' was not found."}
			}
			one, err := s.issueCredential(identity, "https://"+r.Host+r.URL.RequestURI())
			if err != nil {
				return err
			}
			issued = append(issued, one)
		}
		return nil
	})
	return issued, err
}

// credentialKeys are the keys of the credentials of identities.
type credentialKeys struct {
	// identity is the key of all identities, because the generation of a key takes longer than a whole creation of a cluster. The libraries that
	// use a credential support RSA only.
	identity *rsa.PrivateKey
	// issuer signs the certificates. It is an elliptic curve key, because a signature with it takes much less time than one with RSA.
	issuer *ecdsa.PrivateKey
}

func newCredentialKeys() (*credentialKeys, error) {
	identity, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &credentialKeys{identity, issuer}, err
}

// issueCredential issues a certificate for an identity.
func (s *Server) issueCredential(identity *Resource, url string) (*credential, error) {
	keys, err := s.credentialKeys()
	if err != nil {
		return nil, err
	}
	lifetime := s.CredentialLifetime
	if lifetime == 0 {
		lifetime = credentialLifetime
	}
	begins := s.Now().UTC().Truncate(time.Second)
	ends := begins.Add(lifetime)
	clientID, _ := identity.Properties["clientId"].(string)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: clientID}, NotBefore: begins, NotAfter: ends, KeyUsage: x509.KeyUsageDigitalSignature}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: "issuer of managed identities"}}
	raw, err := x509.CreateCertificate(rand.Reader, template, issuer, keys.identity.Public(), keys.issuer)
	if err != nil {
		return nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(keys.identity)
	if err != nil {
		return nil, err
	}
	text := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	return &credential{
		ClientID: clientID, ObjectID: identity.Properties["principalId"], TenantID: identity.Properties["tenantId"], ResourceID: identity.ID,
		ClientSecret: base64.StdEncoding.EncodeToString(text), ClientSecretURL: url, AuthenticationEndpoint: s.Authority,
		NotBefore: at(begins), NotAfter: at(ends), RenewAfter: at(begins.Add(lifetime / 2)), CannotRenewAfter: at(ends.Add(lifetime)),
	}, nil
}
