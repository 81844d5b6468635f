package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// targetWithDigests returns the configuration with a digest of each program.
func targetWithDigests(t *testing.T) values.Target {
	t.Helper()
	root, err := chart.Root(workingFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	list := &imagelist.List{Images: map[string]imagelist.Image{}}
	for _, w := range workload.All() {
		list.Images[w.Program()] = imagelist.Image{Repository: "hcpmesh/" + w.Program(), Digest: "sha256:" + strings.Repeat("0", 64)}
	}
	configured, err := installation.Target(root, target, list)
	if err != nil {
		t.Fatal(err)
	}
	return configured
}

// TestSupplierCreatesWhatChartsExpect checks that each service gets all secrets that its chart mounts. A second supply renews certificates and
// changes no key.
func TestSupplierCreatesWhatChartsExpect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	secrets, client := keepSecrets(ctx, t)
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(filepath.Join(dir, "ca"), "region.example")
	if err != nil {
		t.Fatal(err)
	}
	given := filepath.Join(dir, "given")
	if err := os.WriteFile(given, []byte("given"), 0o600); err != nil {
		t.Fatal(err)
	}
	configured := targetWithDigests(t)
	supplier := &installation.Supplier{Target: configured, Authority: authority, Secrets: secrets, Dir: dir,
		Given: map[string]string{"openshift-pull-secret": given, "maestro-agent-public-key-1": given, "release-trust-root": given}}
	content := func(namespace, name string) map[string][]byte {
		t.Helper()
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	for _, w := range workload.All() {
		if w.Management {
			continue
		}
		name := string(w.Peer)
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := supplier.Supply(ctx, name); err != nil {
			t.Fatal(err)
		}
		computed, err := values.Of(w, configured)
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string]map[string][]byte{}
		for _, volume := range computed.Secrets.Volumes {
			kept[volume.Name] = content(name, name+"-"+volume.Name)
			var want []string
			for _, file := range volume.Files {
				want = append(want, file.Path)
				if len(kept[volume.Name][file.Path]) == 0 {
					t.Errorf("%s: the file %s of the volume %s is empty", name, file.Path, volume.Name)
				}
			}
			if have := slices.Sorted(maps.Keys(kept[volume.Name])); !slices.Equal(have, want) {
				t.Errorf("%s: the volume %s has %v, want %v", name, volume.Name, have, want)
			}
		}
		identity := content(name, computed.Identity.Secret)
		pair, err := tls.X509KeyPair(identity["tls.crt"], identity["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname(name + "." + name + ".svc"); err != nil || !bytes.Equal(identity["ca.crt"], authority.CertificatePEM()) {
			t.Errorf("%s: the identity: %v", name, err)
		}
		if w.Migration {
			if files := content(name, computed.Migration.Identity.Secret); len(files) != 3 {
				t.Errorf("%s: the migration has %d files", name, len(files))
			}
		}
		authorities, err := client.CoreV1().ConfigMaps(name).Get(ctx, values.AuthoritiesName, metav1.GetOptions{})
		if err != nil || authorities.Data["region.crt"] != string(authority.CertificatePEM()) {
			t.Errorf("%s: the authorities: %v, %v", name, authorities, err)
		}

		if err := supplier.Supply(ctx, name); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(content(name, computed.Identity.Secret)["tls.crt"], identity["tls.crt"]) {
			t.Errorf("%s: the second supply did not renew the certificate", name)
		}
		for volume, before := range kept {
			if volume != "mqtt-identity" && fmt.Sprint(content(name, name+"-"+volume)) != fmt.Sprint(before) {
				t.Errorf("%s: the second supply changed the volume %s", name, volume)
			}
		}
	}
}

// TestSupplierNamesWhatIsMissing checks the errors for a secret without a file and for a chart that it does not know.
func TestSupplierNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(filepath.Join(dir, "ca"), "region.example")
	if err != nil {
		t.Fatal(err)
	}
	supplier := &installation.Supplier{Target: targetWithDigests(t), Authority: authority, Dir: dir}
	for name, want := range map[string]string{"cluster-service": "openshift-pull-secret", "maestro-agent": "maestro-agent", "fronted": "fronted"} {
		if err := supplier.Supply(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Supply of %s: %v, want an error that names %s", name, err, want)
		}
	}
}
