package skew

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestFilesAreRestored checks that the same files give the same archive, that it lacks what a start of a region writes, and that files keep
// their content and permissions.
func TestFilesAreRestored(t *testing.T) {
	from := t.TempDir()
	for name, mode := range map[string]fs.FileMode{
		"ca/ca.key": 0o600, "cosmos/items": 0o644, "management/mgmt-1/ca.crt": 0o644,
		"management/mgmt-1/admin.kubeconfig": 0o600, "region.json": 0o644, "postgres/PG_VERSION": 0o600, "logs/backend.log": 0o644, "hosted/mgmt-1/a/server.log": 0o644,
		"hosted/mgmt-1/a/pid": 0o644, "hosted/mgmt-1/a/egress.json": 0o600, "secrets/postgres-administrator.url": 0o600, "cluster-service.yaml": 0o644,
	} {
		file := filepath.Join(from, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte("content of "+name), mode))
	}
	must.Do(t, os.Symlink("/etc/hostname", filepath.Join(from, "cosmos", "link")))
	var archive, again bytes.Buffer
	must.Do(t, pack(from, &archive))
	must.Do(t, os.Chtimes(filepath.Join(from, "ca/ca.key"), time.Unix(1, 0), time.Unix(1, 0)))
	if err := pack(from, &again); err != nil || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Errorf("the archive of the same files differs: %v", err)
	}
	into := t.TempDir()
	must.Do(t, unpack(&archive, into))
	got := map[string]string{}
	must.Do(t, filepath.WalkDir(into, func(path string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		name, _ := filepath.Rel(into, path)
		content, err := os.ReadFile(path)
		info, _ := found.Info()
		got[name] = info.Mode().String() + " " + string(content)
		return err
	}))
	want := map[string]string{
		"ca/ca.key": "-rw------- content of ca/ca.key", "cosmos/items": "-rw-r--r-- content of cosmos/items",
		"management/mgmt-1/ca.crt": "-rw-r--r-- content of management/mgmt-1/ca.crt",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("restored files (-want +got):\n%s", diff)
	}
}

func TestFilesOutsideAreNotRestored(t *testing.T) {
	for reason, header := range map[string]tar.Header{
		"a path out of the folder": {Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o600},
		"an absolute path":         {Name: "/outside", Typeflag: tar.TypeReg, Mode: 0o600},
		"a link":                   {Name: "link", Linkname: "/etc", Typeflag: tar.TypeSymlink},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		must.Do(t, w.WriteHeader(&header))
		must.Do(t, w.Close())
		dir := filepath.Join(t.TempDir(), "state")
		must.Do(t, os.Mkdir(dir, 0o755))
		if err := unpack(&archive, dir); err == nil {
			t.Errorf("%s was restored", reason)
		}
	}
}
