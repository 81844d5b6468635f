package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// keepSecrets keeps Secrets of an API server until the test ends.
func keepSecrets(ctx context.Context, t *testing.T) (*installation.Secrets, clientset.Interface) {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig()))(t)
	client := must.Get(clientset.NewForConfig(config))(t)
	secrets := must.Get(installation.KeepSecrets(ctx, client, slog.New(slog.NewTextHandler(t.Output(), nil))))(t)
	t.Cleanup(func() {
		if err := secrets.Close(); err != nil {
			t.Error(err)
		}
	})
	return secrets, client
}

// TestSecretsFollowFiles checks that a Secret has the content of its files, and follows a file that is replaced.
func TestSecretsFollowFiles(t *testing.T) {
	nightly.Only(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	secrets, client := keepSecrets(ctx, t)
	dir := t.TempDir()
	files := map[string]string{"ca.crt": filepath.Join(dir, "ca.crt"), "database-url": filepath.Join(dir, "database-url")}
	replace := func(content string) {
		for key, file := range files {
			must.Do(t, authority.WriteFile(file, []byte(content+key), 0o600))
		}
	}
	has := func(content string) error {
		secret, err := client.CoreV1().Secrets("default").Get(ctx, "identity", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for key := range files {
			if got := string(secret.Data[key]); got != content+key {
				return fmt.Errorf("%s is %q", key, got)
			}
		}
		return nil
	}
	if err := secrets.Keep(ctx, "default", "identity", files); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("keeping a Secret of missing files: %v", err)
	}
	replace("first ")
	must.Do(t, secrets.Keep(ctx, "default", "identity", files))
	if err := has("first "); err != nil {
		t.Error(err)
	}
	replace("second ")
	eventually.Before(ctx, t, "the content of the replaced files", func() error { return has("second ") })
	// Somebody else's change does not prevent the next renewal.
	must.Do(t, client.CoreV1().Secrets("default").Delete(ctx, "identity", metav1.DeleteOptions{}))
	replace("third ")
	eventually.Before(ctx, t, "the Secret again", func() error { return has("third ") })
}

// TestSecretsHavePairs renews a certificate repeatedly, which replaces its key and then itself. Each version of the Secret must have a
// certificate with its own key.
func TestSecretsHavePairs(t *testing.T) {
	nightly.Only(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	secrets, client := keepSecrets(ctx, t)
	dir := t.TempDir()
	signer := must.Get(authority.Open(filepath.Join(dir, "ca"), "test"))(t)
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	renew := func() []byte {
		t.Helper()
		must.Do(t, signer.Issue(certificate, key, x509.Certificate{}))
		return must.Get(os.ReadFile(certificate))(t)
	}
	old := renew()
	files := map[string]string{"tls.crt": certificate, "tls.key": key}
	must.Do(t, secrets.Keep(ctx, "default", "identity", files))
	changes := must.Get(client.CoreV1().Secrets("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=identity"}))(t)
	defer changes.Stop()
	for range 20 {
		renewed, follows := renew(), false
		for event := range changes.ResultChan() {
			secret, isSecret := event.Object.(*corev1.Secret)
			if !isSecret {
				t.Fatalf("got %+v", event.Object)
			}
			must.Get(tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"]))(t)
			if follows = bytes.Equal(secret.Data["tls.crt"], renewed); follows {
				break
			}
		}
		if !follows {
			t.Fatal("the Secret does not follow")
		}
	}
	must.Do(t, authority.WriteFile(certificate, old, 0o600))
	if err := secrets.Keep(ctx, "default", "other", files); err == nil || !strings.Contains(err.Error(), certificate) {
		t.Errorf("keeping a Secret of a certificate with another key: %v", err)
	}
}

// TestTargetHasDigests checks that the values of a chart have the digests of built images, and that an image that was not built is an error.
func TestTargetHasDigests(t *testing.T) {
	root := filepath.Join(workingFolder(t), "../..")
	digest := "sha256:" + strings.Repeat("1", 64)
	list := &imagelist.List{Images: map[string]imagelist.Image{"frontend": {Repository: "hcpmesh/frontend", Digest: digest}}}
	configured := must.Get(installation.Target(root, target, list))(t)
	if got := textOf(t, configured, "frontend", "image", "digest"); got != digest {
		t.Errorf("the digest of the frontend is %s", got)
	}
	installer := &installation.Installer{Root: root, Target: configured}
	if _, err := installer.Install(t.Context(), "admin"); err == nil || !strings.Contains(err.Error(), "admin.image.digest: is required") {
		t.Errorf("installing a chart without its image: %v", err)
	}
	if _, err := installer.Install(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), `unknown chart "other"`) {
		t.Errorf("installing an unknown chart: %v", err)
	}
	if _, err := installation.Target(root, "public/local/nowhere", list); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("the target of an unknown region: %v", err)
	}
}
