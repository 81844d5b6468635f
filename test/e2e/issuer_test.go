package e2e

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hcpmesh/hcpmesh/test/customer"
)

// verifyByDocuments has the hosted API server issue a token for a service account, and verifies it as anybody does who is
// shown one: by the documents that are published for its issuer.
func verifyByDocuments(t *testing.T, ctx context.Context, hosted *kubernetes.Clientset, issuer string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "e2e-issuer"}}
	if _, err := hosted.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"openshift"}}}
	issued, err := hosted.CoreV1().ServiceAccounts("default").CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(issued.Status.Token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	var header struct {
		KeyID string `json:"kid"`
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(unbase64(t, parts[0]), &header); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(unbase64(t, parts[1]), &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Issuer != issuer {
		t.Errorf("the token's issuer is %q, the cluster's %q", claims.Issuer, issuer)
	}
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	anybodyReads(t, ctx, issuer+"/.well-known/openid-configuration", &discovery)
	if discovery.Issuer != issuer {
		t.Errorf("the discovery document is of issuer %q, want %q", discovery.Issuer, issuer)
	}
	var set struct {
		Keys []struct {
			ID       string `json:"kid"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	anybodyReads(t, ctx, discovery.Keys, &set)
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	for _, k := range set.Keys {
		if k.ID != header.KeyID {
			continue
		}
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(unbase64(t, k.Modulus)), E: int(new(big.Int).SetBytes(unbase64(t, k.Exponent)).Int64())}
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], unbase64(t, parts[2])); err != nil {
			t.Errorf("the token is not signed with the published key: %v", err)
		}
		return
	}
	t.Errorf("the token's key %q is not among the published: %v", header.KeyID, set.Keys)
}

func unbase64(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// anybodyReads gets a JSON document without any credential.
func anybodyReads(t *testing.T, ctx context.Context, address string, into any) {
	t.Helper()
	client, err := customer.NewHTTPClient(region.Endpoints().CAFile)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", address, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}
