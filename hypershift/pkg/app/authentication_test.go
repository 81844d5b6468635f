package app

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// issuer is an OpenID Connect issuer with a key set, served with HTTPS.
type issuer struct {
	*httptest.Server
	authority []byte
	key       *rsa.PrivateKey
	requests  atomic.Int64
}

func newIssuer(t testing.TB) *issuer { return newIssuerWithName(t, "") }

// newIssuerWithName returns an issuer whose URL has a name that does not resolve to its address.
func newIssuerWithName(t testing.TB, name string) *issuer {
	t.Helper()
	authority, pair := serverPair(t, append([]string{"127.0.0.1"}, strings.Fields(name)...)...)
	certificate := must.Get(tls.X509KeyPair(pair.Cert, pair.Key))(t)
	i := &issuer{authority: authority}
	i.key = must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	respond := func(w http.ResponseWriter, v any) {
		i.requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1",
			"n": base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.key.E)).Bytes())}}})
	})
	i.Server = httptest.NewUnstartedServer(mux)
	i.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	i.StartTLS()
	if name != "" {
		i.URL = "https://" + name
	}
	t.Cleanup(i.Close)
	return i
}

// serverPair returns the certificate of a server with its key, and the certificate of its authority.
func serverPair(t testing.TB, names ...string) (authority []byte, pair pki.Pair) {
	t.Helper()
	root := must.Get(pki.NewAuthority("server-root", time.Now()))(t)
	pair = must.Get(root.Server("server", names, time.Now()))(t)
	return root.Cert, pair
}

// token returns a token that is signed with the issuer's key.
func (i *issuer) token(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": i.URL, "aud": "cli-id", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
	}
	part := func(v any) string {
		text := must.Get(json.Marshal(v))(t)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "RS256", "kid": "1", "typ": "JWT"}) + "." + part(all)
	sum := sha256.Sum256([]byte(signed))
	signature := must.Get(rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:]))(t)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func withToken(token string) func(*rest.Config) {
	return func(config *rest.Config) { config.BearerToken = token }
}

const consoleSecret = "entra-console-openshift-console"

// configureOIDC configures an issuer in the sample, with the fields that Cluster Service renders.
func (s *sample) configureOIDC(t testing.TB, issuerURL string, authority []byte) {
	t.Helper()
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "entra-issuer-ca"}, Data: map[string]string{"ca-bundle.crt": string(authority)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: consoleSecret,
			Annotations: map[string]string{hyperv1.HostedClusterSourcedAnnotation: "true"}}},
	} {
		err := s.client.Create(t.Context(), object, workAgent)
		if apierrors.IsAlreadyExists(err) { // of another issuer, if the test runs again on the same management cluster
			err = s.client.Update(t.Context(), object, workAgent)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.set(t, map[string]any{"type": "OIDC", "oidcProviders": []any{map[string]any{
		"name": "entra", "issuer": map[string]any{"issuerURL": issuerURL, "audiences": []any{"console-id", "cli-id"}, "issuerCertificateAuthority": map[string]any{"name": "entra-issuer-ca"}},
		"oidcClients": []any{map[string]any{"componentName": "console", "componentNamespace": "openshift-console", "clientID": "console-id", "clientSecret": map[string]any{"name": consoleSecret}}},
		"claimMappings": map[string]any{"username": map[string]any{"claim": "email", "prefixPolicy": "Prefix", "prefix": map[string]any{"prefixString": "entra:"}},
			"groups": map[string]any{"claim": "groups", "prefix": "entra:"}},
		"claimValidationRules": []any{map[string]any{"type": "RequiredClaim", "requiredClaim": map[string]any{"claim": "tid", "requiredValue": "tenant"}}},
	}}}, "spec", "configuration", "authentication")
	s.apply(t, s.cluster)
}

// consoleReports returns a check of the Degraded condition of the console's client.
func consoleReports(degraded metav1.ConditionStatus, reason string) func(*hyperv1.HostedCluster) error {
	return func(hc *hyperv1.HostedCluster) error {
		if hc.Status.Configuration == nil || len(hc.Status.Configuration.Authentication.OIDCClients) != 1 {
			return fmt.Errorf("configuration %v", hc.Status.Configuration)
		}
		reported := hc.Status.Configuration.Authentication.OIDCClients[0]
		c := meta.FindStatusCondition(reported.Conditions, "Degraded")
		if c == nil || c.Status != degraded || c.Reason != reason {
			return fmt.Errorf("conditions %v", reported.Conditions)
		}
		if reported.ComponentName != "console" || reported.CurrentOIDCClients[0].ClientID != "console-id" {
			return fmt.Errorf("client %v", reported)
		}
		return nil
	}
}

// testAuthentication checks that the hosted API server accepts the tokens of an issuer, and rejects them after
// the issuer was removed, without a restart.
func (s *sample) testAuthentication(t *testing.T) {
	issuer := newIssuer(t)
	before := s.servers(t)

	s.configureOIDC(t, issuer.URL, issuer.authority)
	s.waitCluster(t, consoleReports(metav1.ConditionTrue, "OIDCClientSecretGet"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: consoleSecret}, Data: map[string][]byte{"clientSecret": []byte("s")}}
	secrets := s.hosted(t).CoreV1().Secrets("openshift-config")
	must.Get(secrets.Create(t.Context(), secret, metav1.CreateOptions{}))(t)
	s.waitCluster(t, consoleReports(metav1.ConditionFalse, "OIDCConfigAvailable"))
	must.Do(t, secrets.Delete(t.Context(), consoleSecret, metav1.DeleteOptions{}))
	s.waitCluster(t, consoleReports(metav1.ConditionTrue, "OIDCClientSecretGet"))

	claims := map[string]any{"email": "ada@example.com", "groups": []string{"engineers"}, "tid": "tenant"}
	eventually.Soon(t, "a token of the issuer is accepted", func() error {
		user, err := s.whoAmI(t, withToken(issuer.token(t, claims)))
		if err == nil && (user.Username != "entra:ada@example.com" || !slices.Contains(user.Groups, "entra:engineers")) {
			err = fmt.Errorf("authenticated as %v", user)
		}
		return err
	})

	for name, wrong := range map[string]map[string]any{"another tenant": {"tid": "other"}, "another audience": {"aud": "other"}, "an expired token": {"exp": time.Now().Add(-time.Hour).Unix()}} {
		changed := map[string]any{}
		for k, v := range claims {
			changed[k] = v
		}
		for k, v := range wrong {
			changed[k] = v
		}
		if user, err := s.whoAmI(t, withToken(issuer.token(t, changed))); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s is authenticated as %v, %v", name, user, err)
		}
	}

	// A configuration that the API server would reject is reported, and the previous one stays in effect.
	s.set(t, "https://westus3.oic.aro-hcp.azure.com/2qrppk0otds3rdmdcojqcqkqq8f0s591", "spec", "issuerURL")
	s.configureOIDC(t, s.hostedCluster(t).Spec.IssuerURL, issuer.authority)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ValidHostedClusterConfiguration)); c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != hc.Generation {
			return fmt.Errorf("condition %v", c)
		}
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.HostedClusterProgressing)); c.Reason != hyperv1.BlockedReason {
			return fmt.Errorf("condition %v", c)
		}
		return available(hc)
	})
	if _, err := s.whoAmI(t, withToken(issuer.token(t, claims))); err != nil {
		t.Errorf("an invalid configuration removed the previous one: %v", err)
	}

	delete(s.cluster.Object["spec"].(map[string]any)["configuration"].(map[string]any), "authentication")
	s.apply(t, s.cluster)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if hc.Status.Configuration != nil {
			return errors.New("its clients are still reported")
		}
		return nil
	})
	eventually.Soon(t, "no token of the issuer is accepted", func() error {
		if user, err := s.whoAmI(t, withToken(issuer.token(t, claims))); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("authenticated as %v, %v", user, err)
		}
		return nil
	})
	if after := s.servers(t); !slices.Equal(before, after) {
		t.Errorf("the API server restarted: %v, then %v", before, after)
	}
}

// testReportedAuthentication runs without an API server. The content of the annotated secret takes the
// place of the secret inside the cluster.
func testReportedAuthentication(t *testing.T, m *managementCluster) {
	s := m.available(t, "reported-oidc")
	s.configureOIDC(t, "https://login.example.com", newIssuer(t).authority)
	s.waitCluster(t, consoleReports(metav1.ConditionTrue, "OIDCClientSecretGet"))
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: consoleSecret})
	secret.Data = map[string][]byte{"clientSecret": []byte("s")}
	must.Do(t, s.client.Update(t.Context(), &secret))
	s.waitCluster(t, consoleReports(metav1.ConditionFalse, "OIDCConfigAvailable"))
	s.delete(t)
}
