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

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// verifyWithPublishedKeys requests a service account token from the hosted API server and verifies it with the published OpenID
// documents of the cluster's issuer.
func verifyWithPublishedKeys(t *testing.T, ctx context.Context, hosted *kubernetes.Clientset, issuer string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "e2e-issuer"}}
	must.Get(hosted.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}))(t)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"openshift"}}}
	issued := must.Get(hosted.CoreV1().ServiceAccounts("default").CreateToken(ctx, account.Name, request, metav1.CreateOptions{}))(t)
	parts := strings.Split(issued.Status.Token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts", len(parts))
	}
	var header struct {
		KeyID string `json:"kid"`
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	must.Do(t, json.Unmarshal(decodeBase64(t, parts[0]), &header))
	must.Do(t, json.Unmarshal(decodeBase64(t, parts[1]), &claims))
	if claims.Issuer != issuer {
		t.Errorf("issuer of the token is %q, of the cluster %q", claims.Issuer, issuer)
	}
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	getPublic(t, ctx, issuer+"/.well-known/openid-configuration", &discovery)
	if discovery.Issuer != issuer {
		t.Errorf("issuer of the discovery document is %q, want %q", discovery.Issuer, issuer)
	}
	var set struct {
		Keys []struct {
			ID       string `json:"kid"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	getPublic(t, ctx, discovery.Keys, &set)
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	for _, k := range set.Keys {
		if k.ID != header.KeyID {
			continue
		}
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(decodeBase64(t, k.Modulus)), E: int(new(big.Int).SetBytes(decodeBase64(t, k.Exponent)).Int64())}
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], decodeBase64(t, parts[2])); err != nil {
			t.Errorf("the token is not signed with the published key: %v", err)
		}
		return
	}
	t.Errorf("key %q of the token is not published: %v", header.KeyID, set.Keys)
}

func decodeBase64(t *testing.T, text string) []byte {
	t.Helper()
	return must.Get(base64.RawURLEncoding.DecodeString(text))(t)
}

// getPublic reads a JSON document without credentials.
func getPublic(t *testing.T, ctx context.Context, address string, into any) {
	t.Helper()
	client := must.Get(customer.NewHTTPClient(region.Endpoints().CAFile))(t)
	defer client.CloseIdleConnections()
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, address, nil))(t)
	response := must.Get(client.Do(request))(t)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", address, response.Status)
	}
	must.Do(t, json.NewDecoder(response.Body).Decode(into))
}
