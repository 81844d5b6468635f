package portal

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var fetch = flag.Bool("fetch", false, "fetch the packages of assets/lock.json with npm, check them, and write their files and hashes")

// lock is the content of assets/lock.json.
type lock struct {
	Packages []lockedPackage `json:"packages"`
}

// lockedPackage is an npm package of which the portal uses files.
type lockedPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
	// Integrity is the hash of the package's archive, as the npm registry publishes it.
	Integrity string `json:"integrity"`
	// Folder holds the files, relative to the folder of this package.
	Folder string       `json:"folder"`
	Files  []lockedFile `json:"files"`
}

// lockedFile is a file of a package. Path is its path in the package, below Strip, and in Folder.
type lockedFile struct {
	Path   string `json:"path"`
	From   string `json:"from,omitempty"`
	SHA512 string `json:"sha512"`
}

// TestVendoredFilesMatchTheLock compares each vendored file with its hash in assets/lock.json, and checks that there are no others. With -fetch
// it fetches the packages, compares them with the hashes that npm publishes, and writes the files.
func TestVendoredFilesMatchTheLock(t *testing.T) {
	const file = "assets/lock.json"
	text := must.Get(os.ReadFile(file))(t)
	var locked lock
	must.Do(t, json.Unmarshal(text, &locked))
	if *fetch {
		for i := range locked.Packages {
			fetchPackage(t, &locked.Packages[i])
		}
		text := must.Get(json.MarshalIndent(locked, "", "  "))(t)
		must.Do(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	var known []string
	for _, p := range locked.Packages {
		if !strings.HasPrefix(p.Integrity, "sha512-") || p.Version == "" || p.License == "" {
			t.Errorf("%s lacks its version, license or integrity", p.Name)
		}
		for _, f := range p.Files {
			path := filepath.Join(p.Folder, f.Path)
			known = append(known, path)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
				continue
			}
			if hash(content) != f.SHA512 {
				t.Errorf("%s differs from the file of %s %s; `make portal-assets` restores it", path, p.Name, p.Version)
			}
		}
	}
	for _, folder := range []string{"assets/vendor", "testdata/vendor"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && !slices.Contains(known, path) {
				t.Errorf("%s is not in %s", path, file)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestTheLockHasEachUsedFile checks that each file that the portal loads is locked or its own.
func TestTheLockHasEachUsedFile(t *testing.T) {
	a := must.Get(loadAssets())(t)
	for name, file := range a.byName {
		if len(file.plain) == 0 || file.contentType == "" {
			t.Errorf("%s is empty or has no type", name)
		}
		if bytes.Contains(file.plain, []byte("sourceMappingURL=")) {
			t.Errorf("%s names a source map, which the portal does not serve", name)
		}
	}
	sheet := a.byName[strings.TrimPrefix(a.urls["portal.css"], "/assets/")]
	for _, font := range fonts {
		if url := a.urls[filepath.Base(font)]; !bytes.Contains(sheet.plain, []byte(url)) {
			t.Errorf("the style sheet does not name %s", url)
		}
	}
	if size := len(sheet.zipped); size > 100<<10 {
		t.Errorf("the compressed style sheet has %d bytes, want at most 100 KiB", size)
	}
}

func hash(content []byte) string {
	sum := sha512.Sum512(content)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// fetchPackage writes the files of a package and their hashes.
func fetchPackage(t *testing.T, p *lockedPackage) {
	t.Helper()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "--ignore-scripts", p.Name+"@"+p.Version)
	command.Dir, command.Stderr = dir, os.Stderr
	name, err := command.Output()
	if err != nil {
		t.Fatalf("fetching %s: %v", p.Name, err)
	}
	archive := must.Get(os.ReadFile(filepath.Join(dir, strings.TrimSpace(string(name)))))(t)
	if integrity := "sha512-" + hash(archive); p.Integrity != integrity {
		t.Fatalf("%s %s has the integrity %s, want %s", p.Name, p.Version, integrity, p.Integrity)
	}
	content := unpack(t, archive)
	must.Do(t, os.RemoveAll(p.Folder))
	for i := range p.Files {
		f := &p.Files[i]
		from := f.From
		if from == "" {
			from = f.Path
		}
		data, found := content["package/"+from]
		if !found {
			t.Fatalf("%s %s has no file %s", p.Name, p.Version, from)
		}
		path := filepath.Join(p.Folder, f.Path)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, data, 0o644))
		f.SHA512 = hash(data)
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	unzipped := must.Get(gzip.NewReader(bytes.NewReader(archive)))(t)
	content := map[string][]byte{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		content[header.Name] = must.Get(io.ReadAll(reader))(t)
	}
}
