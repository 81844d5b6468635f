package server_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// serviceKeys is an api-version at which the service generates the keys of credentials.
const serviceKeys = "2025-12-23-preview"

// signingRequest returns the body of a request for a credential.
func signingRequest(t testing.TB) string {
	t.Helper()
	content := must.Get(os.ReadFile("../../testdata/bodies/credential-request.json"))(t)
	return string(content)
}

// resultOf returns the URL of the result of an accepted operation.
func resultOf(header http.Header) string {
	location := header.Get("Location")
	return location[strings.Index(location, "/subscriptions/"):]
}

// TestCredentialOfServiceKey: a credential with a generated key contains the complete client identity and is returned
// once. Neither the store nor the log ever contains its key or certificate.
func TestCredentialOfServiceKey(t *testing.T) {
	t.Parallel()
	var log journal
	h := newHarness(t, func(config *server.Config) { config.Log = log.logger() })
	y := h.newSubscription(t)
	y.createCluster("cluster")
	header := y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/requestAdminCredential?api-version="+serviceKeys, "")
	stored := all(y, h.db.Credentials())
	if len(stored) != 1 || len(stored[0].Value.SealedPrivateKey) == 0 {
		t.Fatalf("%d credentials are stored", len(stored))
	}
	must.Do(t, y.finishOperations(context.Background()))

	// Of many concurrent requests, one receives the key.
	var mu sync.Mutex
	var answers []string
	counts := concurrently(8, func(int) int {
		status, _, body := y.do(http.MethodGet, resultOf(header), "")
		if status == http.StatusOK {
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, body)
		}
		return status
	})
	if counts[http.StatusOK] != 1 || counts[http.StatusConflict] != 7 {
		t.Fatalf("responses: %v", counts)
	}
	kubeconfig := decode[struct{ Kubeconfig string }](t, answers[0]).Kubeconfig
	var config struct {
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
				Key         string `yaml:"client-key-data"`
			}
		}
	}
	must.Do(t, yaml.Unmarshal([]byte(kubeconfig), &config))
	certificate, _ := base64.StdEncoding.DecodeString(config.Users[0].User.Certificate)
	key, _ := base64.StdEncoding.DecodeString(config.Users[0].User.Key)
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		t.Errorf("the certificate and the key are no pair: %v", err)
	}

	stored = all(y, h.db.Credentials())
	if len(stored) != 1 || len(stored[0].Value.SealedPrivateKey) != 0 || !stored[0].Value.KeyHandedOut {
		t.Errorf("the key is still stored")
	}
	document := must.Get(json.Marshal(stored[0].Value))(t)
	for name, secret := range map[string]string{"the key": config.Users[0].User.Key[60:120], "the key's PEM": "PRIVATE KEY", "the certificate": "BEGIN CERTIFICATE-"} {
		if strings.Contains(string(document), secret) {
			t.Errorf("%s is in the store", name)
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log", name)
		}
	}
	if log.String() == "" {
		t.Error("the log is empty")
	}
}

// TestCredentialsAndRevocations: with concurrent requests, revocations and backend, the stored documents are consistent
// whenever nothing writes. No credential survives a revocation that started after it.
func TestCredentialsAndRevocations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	y.createCluster("cluster")
	body := signingRequest(t)
	for round := range 5 {
		counts := concurrently(12, func(i int) int {
			switch {
			case i%6 == 5:
				status, _, _ := y.do(http.MethodPost, y.cluster("cluster")+"/revokeCredentials", "")
				return status
			default:
				status, _, answer := y.do(http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", body)
				if status != http.StatusAccepted && status != http.StatusConflict {
					t.Error(answer)
				}
				return status
			}
		})
		if counts[http.StatusAccepted]+counts[http.StatusConflict] != 12 || counts[http.StatusAccepted] == 0 {
			t.Errorf("round %d: responses: %v", round, counts)
		}
		y.documents().check(t)
		must.Do(t, y.finishOperations(context.Background()))
		y.documents().check(t)
	}
	y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/revokeCredentials", "")
	must.Do(t, y.finishOperations(context.Background()))
	for _, credential := range all(y, h.db.Credentials()) {
		if state := credential.Value.State; state != database.CredentialCanceled && state != database.CredentialRevoked {
			t.Errorf("%s is %s after the revocation of all", credential.Key.ResourceID, state)
		}
	}
}

// TestActionsCheckPreconditions: an action with a condition that does not hold anymore is rejected and stores nothing.
func TestActionsCheckPreconditions(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	for _, action := range []string{"/requestAdminCredential", "/revokeCredentials"} {
		t.Run(action[1:], func(t *testing.T) {
			y := y.in(t)
			before, operations := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag"), len(all(y, y.db.Operations()))
			for _, condition := range [][2]string{{"If-Match", `"another"`}, {"If-None-Match", "*"}, {"If-None-Match", before}} {
				status, header, answer := y.do(http.MethodPost, y.cluster("cluster")+action, signingRequest(t), condition[0], condition[1])
				if status != http.StatusPreconditionFailed || header.Get("X-Ms-Error-Code") != "PreconditionFailed" {
					t.Errorf("with %s: %s it got status %d %s", condition[0], condition[1], status, answer)
				}
			}
			if now := len(all(y, y.db.Operations())); now != operations {
				t.Errorf("the rejected requests created %d operations", now-operations)
			}
			y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+action, signingRequest(t), "If-Match", before)
			must.Do(t, y.finishOperations(context.Background()))
		})
	}
}

// TestPendingCredentialsLimit: the limit of pending credentials is the number that a revocation can cancel in its batch,
// and it cancels that many.
func TestPendingCredentialsLimit(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	body := signingRequest(t)
	for range database.MaxPendingCredentials {
		y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", body)
	}
	status, header, answer := y.do(http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", body)
	if status != http.StatusConflict || header.Get("Retry-After") == "" {
		t.Errorf("another request got status %d %s", status, answer)
	}
	y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/revokeCredentials", "")
	for _, credential := range all(y, y.db.Credentials()) {
		if credential.Value.State != database.CredentialCanceled {
			t.Errorf("%s is %s", credential.Key.ResourceID, credential.Value.State)
		}
	}
	y.documents().check(t)
}

// TestCredentialWhileClusterServiceUnavailable: an issued credential cannot be read while Cluster Service is unavailable, and its private
// key is not lost.
func TestCredentialWhileClusterServiceUnavailable(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	y.createCluster("cluster")
	header := y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/requestAdminCredential?api-version="+serviceKeys, "")
	must.Do(t, y.finishOperations(context.Background()))
	h.clusterService.silence(true)
	status, answered, _ := y.do(http.MethodGet, resultOf(header), "")
	if status != http.StatusServiceUnavailable || answered.Get("Retry-After") == "" {
		t.Errorf("status %d with Retry-After %q", status, answered.Get("Retry-After"))
	}
	h.clusterService.silence(false)
	y.mustDo(http.StatusOK, http.MethodGet, resultOf(header), "")
}

// FuzzCredentialRequest: any body is accepted, or rejected with the field and without storing anything.
func FuzzCredentialRequest(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	f.Add([]byte(signingRequest(f)))
	f.Add([]byte(`{"certificateSigningRequest":"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"}`))
	f.Add([]byte(`{"certificateSigningRequest":null}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, body []byte) {
		y := y.in(t)
		before := len(all(y, y.db.Credentials()))
		status, header, answer := y.do(http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", string(body))
		answerable(t, status, header, answer)
		stored := len(all(y, y.db.Credentials())) - before
		if accepted := status == http.StatusAccepted; accepted != (stored == 1) {
			t.Fatalf("status %d, stored %d", status, stored)
		}
		if status == http.StatusAccepted {
			y.mustDo(http.StatusAccepted, http.MethodPost, y.cluster("cluster")+"/revokeCredentials", "")
			y.finishAndRemoveOperations()
		}
	})
}
