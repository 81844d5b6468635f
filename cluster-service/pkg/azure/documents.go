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

// The documents of an issuer, below its id: those that OpenID Connect Discovery 1.0 and Kubernetes name.
const (
	discoveryDocument = "/.well-known/openid-configuration"
	keysDocument      = "/openid/v1/jwks"
)

// publishDocuments writes the documents by which anybody, Microsoft Entra first of all, verifies the cluster's tokens.
func (a *attempt) publishDocuments(ctx context.Context) error {
	pemKey, err := a.Open(a.cluster.UID, a.cluster.SigningKey)
	if err != nil {
		return errors.New("the cluster's signing key cannot be opened")
	}
	keys, err := keySet(pemKey)
	if err != nil {
		return err
	}
	discovery, err := json.Marshal(map[string]any{
		"issuer": a.outcome.Input, "jwks_uri": a.outcome.Input + keysDocument,
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "claims_supported": []string{"aud", "exp", "sub", "iat", "iss"},
	})
	if err != nil {
		return err
	}
	documents, err := a.Clients.Documents()
	if err != nil {
		return err
	}
	// The keys first: whoever finds the discovery document finds them.
	for _, d := range []struct {
		name    string
		content []byte
	}{{keysDocument, keys}, {discoveryDocument, discovery}} {
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
		if _, err := documents.DeleteBlob(ctx, a.Config.Documents.Container, a.cluster.ID()+name, nil); err != nil && !gone(err) {
			return err
		}
	}
	a.done()
	return nil
}

// keySet is the public half of a signing key as a JSON Web Key Set (RFC 7517). The key's id is the one that Kubernetes puts
// into tokens: the SHA-256 of the key's SubjectPublicKeyInfo.
func keySet(pemKey []byte) ([]byte, error) {
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
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	id := sha256.Sum256(der)
	encode := base64.RawURLEncoding.EncodeToString
	return json.Marshal(map[string]any{"keys": []any{map[string]string{"use": "sig", "kty": "RSA", "alg": "RS256", "kid": encode(id[:]),
		"n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes())}}})
}
