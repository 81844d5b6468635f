package azure

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

// Paths of an issuer's documents below its URL, as OpenID Connect Discovery 1.0 and Kubernetes define them.
const (
	discoveryDocument = "/.well-known/openid-configuration"
	keysDocument      = "/openid/v1/jwks"
)

// discovery is the provider metadata of OpenID Connect Discovery 1.0, section 3.
type discovery struct {
	Claims        []string `json:"claims_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
}

// publishDocuments uploads the documents with which others, above all Microsoft Entra, verify the cluster's tokens.
func (a *attempt) publishDocuments(ctx context.Context) error {
	pemKey, err := a.Open(a.cluster.UID, a.cluster.SigningKey)
	if err != nil {
		return errors.New("the cluster's signing key cannot be decrypted")
	}
	keys, err := keySetOf(pemKey)
	if err != nil {
		return err
	}
	metadata, err := json.Marshal(discovery{Issuer: a.outcome.Input, KeysURI: a.outcome.Input + keysDocument,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
		Algorithms: []string{"RS256"}, Claims: []string{"aud", "exp", "sub", "iat", "iss"}})
	if err != nil {
		return err
	}
	documents, err := a.Clients.Documents()
	if err != nil {
		return err
	}
	// The keys are uploaded first, because the discovery document refers to them.
	for _, d := range []struct {
		name    string
		content []byte
	}{{keysDocument, keys}, {discoveryDocument, metadata}} {
		_, err := documents.UploadBuffer(ctx, a.Config.Documents.Container, a.cluster.ID()+d.name, d.content, &azblob.UploadBufferOptions{
			HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json"), BlobCacheControl: to.Ptr("max-age=300")}})
		if err != nil {
			return err
		}
	}
	a.done()
	return nil
}

func (a *attempt) removeDocuments(ctx context.Context) error {
	documents, err := a.Clients.Documents()
	if err != nil {
		return err
	}
	for _, name := range []string{discoveryDocument, keysDocument} {
		if _, err := documents.DeleteBlob(ctx, a.Config.Documents.Container, a.cluster.ID()+name, nil); err != nil && !isNotFound(err) {
			return err
		}
	}
	a.done()
	return nil
}

// webKey is a public RSA key as a JSON Web Key (RFC 7517; parameters n and e: RFC 7518, section 6.3).
type webKey struct {
	Algorithm string `json:"alg"`
	Exponent  string `json:"e"`
	ID        string `json:"kid"`
	Type      string `json:"kty"`
	Modulus   string `json:"n"`
	Use       string `json:"use"`
}

// keySetOf returns the public key of a signing key as a JSON Web Key Set (RFC 7517). The key ID is the one that Kubernetes
// writes into tokens: the SHA-256 of the key's SubjectPublicKeyInfo.
func keySetOf(pemKey []byte) ([]byte, error) {
	block, _ := pem.Decode(pemKey)
	if block == nil {
		return nil, errors.New("the cluster's signing key is not PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the cluster's signing key is not an RSA key")
	}
	return publicKeySet(&key.PublicKey)
}

func publicKeySet(key *rsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a public key: %w", err)
	}
	id := sha256.Sum256(der)
	encode := base64.RawURLEncoding.EncodeToString
	return json.Marshal(map[string][]webKey{"keys": {{Use: "sig", Type: "RSA", Algorithm: "RS256", ID: encode(id[:]),
		Modulus: encode(key.N.Bytes()), Exponent: encode(big.NewInt(int64(key.E)).Bytes())}}})
}
