package command

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// act simulates signing: the issued certificate is the certificate signing request.
func (a *azure) act(w http.ResponseWriter, r *http.Request, id string) {
	switch {
	case strings.HasSuffix(id, "/revokecredentials"):
		a.results[id] = nil
	case strings.HasSuffix(id, "/requestadmincredential"):
		var body struct {
			CertificateSigningRequest string `json:"certificateSigningRequest"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			problem(w, http.StatusBadRequest, "InvalidRequestContent", err.Error())
			return
		}
		kubeconfig, _ := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"users": []any{map[string]any{"name": "u", "user": map[string]any{"client-certificate-data": []byte(body.CertificateSigningRequest)}}},
		})
		a.results[id] = map[string]any{"kubeconfig": string(kubeconfig), "expirationTimestamp": "2026-03-03T10:00:00Z"}
	}
	a.polls[id] = 0
	w.Header().Set("Azure-AsyncOperation", a.URL+"/operations"+id)
	w.Header().Set("Location", a.URL+"/results"+id)
	w.WriteHeader(http.StatusAccepted)
}

// TestSecretFileHasOwnPermissions checks that existing files with the same or the temporary name do not decide who can read a
// secret.
func TestSecretFileHasOwnPermissions(t *testing.T) {
	dir := t.TempDir()
	file, elsewhere := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "elsewhere")
	for _, name := range []string{file, file + ".part", elsewhere} {
		if err := os.WriteFile(name, []byte("before"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&environment{}).writeSecret(file, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it has the mode %v, %v", info.Mode(), err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if err := (&environment{}).writeSecret(link, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(elsewhere); err != nil || string(content) != "before" {
		t.Errorf("it went where a link leads: %q, %v", content, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("something is left over: %v, %v", entries, err)
	}
}

func TestTheKeyOfACredentialStaysHere(t *testing.T) {
	a := newAzure(t)
	mustRun(t, a, "cluster", "create", "a")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	out, progress := mustRun(t, a, "cluster", "credential", "request", "a", "-f", file)
	if out != "" || !strings.Contains(progress, "expires at 2026-03-03T10:00:00Z") {
		t.Errorf("output %q, progress %q", out, progress)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kubeconfig struct {
		CurrentContext string `json:"current-context"`
		Users          []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(data, &kubeconfig); err != nil || len(kubeconfig.Users) != 1 || kubeconfig.CurrentContext != "c" {
		t.Fatalf("%v: %s", err, data)
	}
	block, _ := pem.Decode(kubeconfig.Users[0].User.Certificate)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := request.CheckSignature(); err != nil {
		t.Error(err)
	}
	if got := request.Subject.String(); got != "CN=system:customer-break-glass:system-admin,O=system:masters" {
		t.Errorf("the request is for %s", got)
	}
	block, _ = pem.Decode(kubeconfig.Users[0].User.Key)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.(*ecdsa.PrivateKey).PublicKey.Equal(request.PublicKey) {
		t.Error("the kubeconfig's key is not the one that the request was signed with")
	}
	sent, _ := json.Marshal(a.results)
	if strings.Contains(string(sent), "PRIVATE KEY") {
		t.Error("the key was sent")
	}

	_, progress = mustRun(t, a, "cluster", "credential", "revoke", "a")
	if !strings.Contains(progress, "done") {
		t.Errorf("progress of the revocation: %q", progress)
	}
}
