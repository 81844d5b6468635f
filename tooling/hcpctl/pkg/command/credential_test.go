package command

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
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
			"clusters": []any{map[string]any{"name": "k", "cluster": map[string]any{"server": "https://api.example"}}},
			"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "k", "user": "u"}}},
			"users":    []any{map[string]any{"name": "u", "user": map[string]any{"client-certificate-data": []byte(body.CertificateSigningRequest)}}},
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
		must.Do(t, os.WriteFile(name, []byte("before"), 0o644))
	}
	must.Do(t, writeSecret(file, []byte("secret")))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it has the mode %v, %v", info.Mode(), err)
	}
	link := filepath.Join(dir, "link")
	must.Do(t, os.Symlink(elsewhere, link))
	must.Do(t, writeSecret(link, []byte("secret")))
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
	info := must.Get(os.Stat(file))(t)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}

	data := must.Get(os.ReadFile(file))(t)
	var kubeconfig struct {
		CurrentContext string `json:"current-context"`
		Users          []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(data, &kubeconfig); err != nil || len(kubeconfig.Users) != 1 || kubeconfig.CurrentContext != "a" {
		t.Fatalf("%v: %s", err, data)
	}
	block, _ := pem.Decode(kubeconfig.Users[0].User.Certificate)
	request := must.Get(x509.ParseCertificateRequest(block.Bytes))(t)
	if err := request.CheckSignature(); err != nil {
		t.Error(err)
	}
	if got := request.Subject.String(); got != "CN=system:customer-break-glass:system-admin,O=system:masters" {
		t.Errorf("the request is for %s", got)
	}
	block, _ = pem.Decode(kubeconfig.Users[0].User.Key)
	key := must.Get(x509.ParsePKCS8PrivateKey(block.Bytes))(t)
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

// TestCredentialIsAddedToKubeconfig writes the credentials of two clusters to a kubeconfig that has another context.
func TestCredentialIsAddedToKubeconfig(t *testing.T) {
	a := newAzure(t)
	file := filepath.Join(t.TempDir(), "config")
	other := `{"apiVersion": "v1", "kind": "Config", "current-context": "work", "contexts": [{"name": "work", "context": {"cluster": "w", "user": "w"}}],
		"clusters": [{"name": "w", "cluster": {"server": "https://work.example"}}], "users": [{"name": "w", "user": {"token": "t"}}]}`
	must.Do(t, os.WriteFile(file, []byte(other), 0o644))
	mustRun(t, a, "cluster", "create", "a")
	mustRun(t, a, "cluster", "create", "b")
	for _, step := range []struct {
		args    []string
		current string
		want    []string
	}{
		{[]string{"a"}, "a", []string{"a", "work"}},
		{[]string{"b"}, "b", []string{"a", "b", "work"}},
		{[]string{"a"}, "a", []string{"a", "b", "work"}},
		{[]string{"b", "--context", "other"}, "other", []string{"a", "b", "other", "work"}},
		{[]string{"b", "--overwrite"}, "b", []string{"b"}},
	} {
		mustRun(t, a, append([]string{"cluster", "credential", "request", "-f", file}, step.args...)...)
		config := must.Get(clientcmd.LoadFromFile(file))(t)
		if got := slices.Sorted(maps.Keys(config.Contexts)); !slices.Equal(got, step.want) || config.CurrentContext != step.current {
			t.Errorf("%v: the contexts are %v, the current one is %q; want %v and %q", step.args, got, config.CurrentContext, step.want, step.current)
		}
		for name, context := range config.Contexts {
			if config.Clusters[context.Cluster] == nil || config.AuthInfos[context.AuthInfo] == nil {
				t.Errorf("%v: the context %s has no cluster or no user", step.args, name)
			}
		}
	}
}

// TestKubeconfigCommandsMerge checks that each command that writes a kubeconfig has the flags to name the context and to overwrite the file.
func TestKubeconfigCommandsMerge(t *testing.T) {
	for _, path := range []string{"cluster kubeconfig", "cluster credential request", "access open", "mc access", "sc access", "break-glass request"} {
		c, _, err := New(io.Discard, io.Discard).Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"file", "context", "overwrite"} {
			if c.Flags().Lookup(flag) == nil {
				t.Errorf("hcpctl %s has no flag --%s", path, flag)
			}
		}
	}
}

// TestAccessOfOtherClusterIsKept requests break-glass access to a second cluster with the file of the first one.
func TestAccessOfOtherClusterIsKept(t *testing.T) {
	a := newSREs(t)
	a.shown["/me"] = adminv1.Identity{Name: "ada", ObjectID: "object"}
	a.issue("certificate", time.Now().Add(15*time.Minute))
	file := filepath.Join(t.TempDir(), "config")
	must.Get(a.hcpctl(t, "break-glass", "request", "demo", "-f", file))(t)
	first := must.Get(credential.ReadAccess(accessFile(file)))(t)
	a.shown["/clusters/demo"], a.shown["/clusters/two"] = adminv1.Cluster{UID: first.Cluster}, adminv1.Cluster{UID: "another"}
	a.asked = nil
	if _, err := a.hcpctl(t, "break-glass", "request", "two", "-f", file); err == nil || !strings.Contains(err.Error(), first.Cluster) || len(a.asked) != 0 {
		t.Errorf("another cluster: %v; admin was asked %q", err, a.asked)
	}
	for _, args := range [][]string{{"demo"}, {"two", "--overwrite"}} {
		if _, err := a.hcpctl(t, append([]string{"break-glass", "request", "-f", file}, args...)...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}
