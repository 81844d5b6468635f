package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// targetWithDigests returns the configuration of a region or a stamp with a digest of each image.
func targetWithDigests(t *testing.T, name string) values.Target {
	t.Helper()
	root := must.Get(chart.Root(workingFolder(t)))(t)
	list := &imagelist.List{Images: map[string]imagelist.Image{}}
	for _, w := range workload.All() {
		list.Images[w.Program()] = imagelist.Image{Repository: "hcpmesh/" + w.Program(), Digest: "sha256:" + strings.Repeat("0", 64)}
	}
	for _, program := range []string{"etcd", "kube-apiserver"} {
		list.Images[program] = imagelist.Image{Repository: "third-party/" + program, Digest: "sha256:" + strings.Repeat("0", 64)}
	}
	return must.Get(installation.Target(root, name, list))(t)
}

// TestSupplierCreatesWhatChartsExpect checks that each program gets all secrets that its chart mounts. A second supply renews certificates and
// changes no key.
func TestSupplierCreatesWhatChartsExpect(t *testing.T) {
	nightly.Only(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	secrets, client := keepSecrets(ctx, t)
	dir := t.TempDir()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), "region.example"))(t)
	outside := &installation.Outside{Target: targetWithDigests(t, target), Dir: dir}
	given := must.Get(outside.GivenSecrets())(t)
	ofStamp := targetWithDigests(t, stamp)
	givenToStamp := must.Get(outside.StampSecrets(ofStamp))(t)
	suppliers := map[bool]*installation.Supplier{ // by Workload.Management
		false: {Target: outside.Target, Authority: authority, Secrets: secrets, Dir: dir, Given: given},
		true:  {Target: ofStamp, Authority: authority, Secrets: secrets, Dir: dir, Given: givenToStamp},
	}
	content := func(namespace, name string) map[string][]byte {
		t.Helper()
		secret := must.Get(client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}))(t)
		return secret.Data
	}
	for _, w := range workload.All() {
		name, supplier := string(w.Peer), suppliers[w.Management]
		if !values.Applies(w, supplier.Target) {
			continue
		}
		must.Get(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
		must.Do(t, supplier.Supply(ctx, name))
		computed := must.Get(values.Of(w, supplier.Target))(t)
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
		// The certificate of a program is in the Secret of its identity, or only in that with which it authenticates to the broker.
		identity, host := name+"-mqtt-identity", "mgmt-usw3-1"
		if computed.Identity.Secret != "" {
			identity, host = computed.Identity.Secret, name+"."+name+".svc"
		}
		var first map[string][]byte
		certified := computed.Identity.Secret != "" || kept["mqtt-identity"] != nil
		if certified {
			first = content(name, identity)
			pair := must.Get(tls.X509KeyPair(first["tls.crt"], first["tls.key"]))(t)
			if err := pair.Leaf.VerifyHostname(host); err != nil {
				t.Errorf("%s: the identity: %v", name, err)
			}
		}
		if computed.Identity.Secret != "" && !bytes.Equal(first["ca.crt"], authority.CertificatePEM()) {
			t.Errorf("%s: the identity has another authority", name)
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

		must.Do(t, supplier.Supply(ctx, name))
		if certified && bytes.Equal(content(name, identity)["tls.crt"], first["tls.crt"]) {
			t.Errorf("%s: the second supply did not renew the certificate", name)
		}
		for volume, before := range kept {
			if volume != "mqtt-identity" && fmt.Sprint(content(name, name+"-"+volume)) != fmt.Sprint(before) {
				t.Errorf("%s: the second supply changed the volume %s", name, volume)
			}
		}
	}
}

// TestAdminVerifiesAllWriters signs a checkpoint with the audit key that the chart of each program mounts. Admin verifies it with the files that its own chart
// mounts, also after the key was rotated.
func TestAdminVerifiesAllWriters(t *testing.T) {
	outside := &installation.Outside{Target: targetWithDigests(t, target), Dir: t.TempDir()}
	given := must.Get(outside.GivenSecrets())(t)
	// mounted returns the file that the chart of a program mounts at a path.
	mounted := func(program mesh.Peer, path string) string {
		t.Helper()
		w, _ := workload.Find(program)
		computed := must.Get(values.Of(w, outside.Target))(t)
		for _, volume := range computed.Secrets.Volumes {
			for _, file := range volume.Files {
				if "/secrets/"+volume.Name+"/"+file.Path == path {
					return given[file.Secret]
				}
			}
		}
		t.Fatalf("%s does not mount %s", program, path)
		return ""
	}
	for _, w := range workload.All() {
		if !w.Audit {
			continue
		}
		key := must.Get(audit.LoadKey(mounted(w.Peer, "/secrets/keys/audit-signing-key")))(t)
		public := mounted(mesh.Admin, "/secrets/audit-keys/"+string(w.Peer)+".pem")
		next := must.Get(audit.GenerateKey())(t)
		writer, rotated := string(w.Peer)+"-0123456789abcdef", time.Now()
		verify := func(key *audit.SigningKey, at time.Time) error {
			t.Helper()
			keys := must.Get(audit.FollowKeys(string(w.Peer), public))(t)
			checkpoint, _, err := audit.AppendCheckpoint(nil, audit.Head{Writer: writer, Time: at}, audit.Position{}, key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = keys().ParseCheckpoint(writer, bytes.TrimSuffix(checkpoint, []byte("\n")))
			return err
		}
		if err := verify(key, rotated); err != nil {
			t.Errorf("a checkpoint of %s: %v", w.Peer, err)
		}
		must.Do(t, errors.Join(next.Publish(public), audit.Retire(public, next.ID(), rotated)))
		if err := errors.Join(verify(key, rotated), verify(next, rotated.Add(time.Hour))); err != nil {
			t.Errorf("checkpoints of %s after the rotation: %v", w.Peer, err)
		}
		if err := verify(key, rotated.Add(time.Hour)); err == nil {
			t.Errorf("the former key of %s signs after the rotation", w.Peer)
		}
	}
}

// TestSupplierNamesWhatIsMissing checks the errors for a secret without a file, and for a program without a chart or with one elsewhere.
func TestSupplierNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), "region.example"))(t)
	for name, c := range map[string]struct{ target, want string }{
		"cluster-service": {target, "cluster-service-audit-signing-key"},
		"maestro-agent":   {target, "public/local/westus3 has no chart of it"},
		"admin":           {stamp, "public/local/westus3/1 has no chart of it"},
		"fronted":         {target, "fronted"},
	} {
		supplier := &installation.Supplier{Target: targetWithDigests(t, c.target), Authority: authority, Dir: dir}
		if err := supplier.Supply(t.Context(), name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Supply of %s: %v, want an error with %q", name, err, c.want)
		}
	}
	supplier := &installation.Supplier{Target: targetWithDigests(t, stamp), Authority: authority, Dir: dir}
	if err := supplier.Supply(t.Context(), "maestro-agent"); err == nil || !strings.Contains(err.Error(), "maestro-agent-secrets-key") {
		t.Errorf("Supply of the agent: %v, want an error that names its key", err)
	}
}
