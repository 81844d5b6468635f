package installation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// TestSecretsFollowFiles checks that a Secret has the content of its files, and follows a file that is replaced.
func TestSecretsFollowFiles(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := installation.KeepSecrets(ctx, client, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := secrets.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	files := map[string]string{"tls.crt": filepath.Join(dir, "tls.crt"), "tls.key": filepath.Join(dir, "tls.key")}
	replace := func(content string) {
		for _, file := range files {
			if err := authority.WriteFile(file, []byte(content+filepath.Base(file)), 0o600); err != nil {
				t.Fatal(err)
			}
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
	if err := secrets.Keep(ctx, "default", "identity", files); err != nil {
		t.Fatal(err)
	}
	if err := has("first "); err != nil {
		t.Error(err)
	}
	replace("second ")
	eventually.Before(ctx, t, "the content of the replaced files", func() error { return has("second ") })
	// Somebody else's change does not prevent the next renewal.
	if err := client.CoreV1().Secrets("default").Delete(ctx, "identity", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	replace("third ")
	eventually.Before(ctx, t, "the Secret again", func() error { return has("third ") })
}

// TestTargetHasDigests checks that the values of a chart have the digests of built images, and that an image that was not built is an error.
func TestTargetHasDigests(t *testing.T) {
	root := filepath.Join(workingFolder(t), "../..")
	digest := "sha256:" + strings.Repeat("1", 64)
	list := &imagelist.List{Images: map[string]imagelist.Image{"frontend": {Repository: "hcpmesh/frontend", Digest: digest}}}
	configured, err := installation.Target(root, target, list)
	if err != nil {
		t.Fatal(err)
	}
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
