package assemble_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/assemble"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

const definitions = `
images:
- {name: a, repository: test/a, title: Program a, programs: [{package: ./cmd/a}]}
- name: b
  repository: test/b
  title: Program b, and a program that another module pins
  programs: [{package: ./cmd/b}, {pin: pinned, package: example.test/other/cmd/c, ldflags: "-X main.version={version}"}]
  files: [{pin: pinned, module: example.test/other, folder: definitions, into: usr/share/definitions}]
`

// sources are a repository with two programs that share a package, and a module of third-party programs.
func sources() map[string]string {
	return map[string]string{
		"go.mod":                        "module example.test\n\ngo 1.26.0\n",
		"cmd/a/main.go":                 "package main\n\nimport \"example.test/shared\"\n\nfunc main() { shared.Print() }\n",
		"cmd/b/main.go":                 "package main\n\nimport _ \"embed\"\n\n//go:embed texts/b.txt\nvar text string\n\nfunc main() { print(text) }\n",
		"cmd/b/texts/b.txt":             "b\n",
		"shared/shared.go":              "package shared\n\nfunc Print() { print(\"shared\") }\n",
		"images.yaml":                   definitions,
		"pinned/go.mod":                 "module example.test/pinned\n\ngo 1.26.0\n\nrequire example.test/other v1.2.3\n\nreplace example.test/other v1.2.3 => ../other\n",
		"other/go.mod":                  "module example.test/other\n\ngo 1.26.0\n",
		"other/cmd/c/main.go":           "package main\n\nvar version string\n\nfunc main() { print(version) }\n",
		"other/definitions/x/some.yaml": "kind: Some\n",
		"other/definitions/notes.txt":   "not included\n",
	}
}

// repository is a Git repository of a test.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	r.git("init", "-q")
	return r
}

func (r repository) git(arguments ...string) {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "git", append([]string{"-C", r.dir, "-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "commit.gpgsign=false"}, arguments...)...)
	command.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	if output, err := command.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v: %s", arguments, err, output)
	}
}

// commit writes files and commits them.
func (r repository) commit(files map[string]string) {
	r.t.Helper()
	r.write(files)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "change")
}

func (r repository) write(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		file := filepath.Join(r.dir, name)
		must.Do(r.t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
	}
}

// build builds images of the repository; no names mean all.
func (r repository) build(into string, names ...string) map[string]imagelist.Image {
	r.t.Helper()
	defined := must.Get(assemble.LoadImages(filepath.Join(r.dir, "images.yaml")))(r.t)
	selected := slices.Clone(defined)
	if len(names) > 0 {
		selected = slices.DeleteFunc(selected, func(image assemble.Image) bool { return !slices.Contains(names, image.Name) })
	}
	list := must.Get(assemble.Build(r.t.Context(), assemble.Options{Root: r.dir, Into: into, File: "images.yaml"}, defined, selected))(r.t)
	return list.Images
}

func TestImageOfACommitIsReproducible(t *testing.T) {
	nightly.Only(t)
	first, second := newRepository(t), newRepository(t)
	first.commit(sources())
	second.commit(sources())
	a, b := t.TempDir(), t.TempDir()
	if one, two := first.build(a), second.build(b); !maps.Equal(one, two) || len(one) != 2 {
		t.Errorf("two builds in different folders:\n%v\n%v", one, two)
	}
	// The attached documents are reproducible too.
	if one, two := readFile(t, filepath.Join(a, "layout/index.json")), readFile(t, filepath.Join(b, "layout/index.json")); one != two {
		t.Errorf("the indexes of two builds differ:\n%s\n%s", one, two)
	}
}

func TestImageChangesOnlyWithItsSources(t *testing.T) {
	r := newRepository(t)
	r.commit(sources())
	into := t.TempDir()
	before := r.build(into)
	for reason, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a file without an image": {map[string]string{"README.md": "text\n", "shared/shared_test.go": "package shared\n"}, nil},
		"a shared package":        {map[string]string{"shared/shared.go": "package shared\n\nfunc Print() { print(\"other\") }\n"}, []string{"a"}},
		"an embedded file":        {map[string]string{"cmd/b/texts/b.txt": "other\n"}, []string{"b"}},
		"a pin":                   {map[string]string{"pinned/go.mod": strings.ReplaceAll(sources()["pinned/go.mod"], "v1.2.3", "v1.2.4")}, []string{"b"}},
	} {
		r.commit(c.files)
		after := r.build(into)
		var changed []string
		for name := range after {
			if after[name].Digest != before[name].Digest {
				changed = append(changed, name)
			}
			if (after[name].Digest == before[name].Digest) != (after[name].Revision == before[name].Revision) {
				t.Errorf("%s: %s: %+v and %+v", reason, name, before[name], after[name])
			}
		}
		if !slices.Equal(changed, c.want) {
			t.Errorf("%s changed %v, not %v", reason, changed, c.want)
		}
		before = after
	}
}

func TestImage(t *testing.T) {
	r := newRepository(t)
	r.commit(sources())
	into := t.TempDir()
	images := r.build(into)
	from := must.Get(layout.FromPath(filepath.Join(into, "layout")))(t)
	digest := must.Get(v1.NewHash(images["b"].Digest))(t)
	image := must.Get(from.Image(digest))(t)
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	config := must.Get(image.ConfigFile())(t)
	if c := config.Config; c.User != assemble.User || !slices.Equal(c.Entrypoint, []string{"/usr/bin/b"}) || config.OS != "linux" || config.Architecture != "amd64" ||
		c.Labels["org.opencontainers.image.revision"] != images["b"].Revision || len(images["b"].Revision) != 40 ||
		!strings.HasPrefix(c.Labels["org.opencontainers.image.version"], "v0.0.0-20260102030405-") {
		t.Errorf("%+v", config)
	}
	files := filesOf(t, image)
	for _, want := range []string{"usr/bin/b", "usr/bin/c", "usr/share/definitions/x/some.yaml", "etc/passwd", assemble.CertificatesFile, "usr/share/zoneinfo/UTC"} {
		if files[want] == nil {
			t.Errorf("the image has no %s", want)
		}
	}
	for name, header := range files {
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o022 != 0 || header.ModTime.Unix() != 0 || strings.Contains(name, "notes.txt") {
			t.Errorf("%+v", header)
		}
	}
	if files["usr/bin/b"].Mode != 0o755 || files["etc/passwd"].Mode != 0o644 {
		t.Errorf("modes %o and %o", files["usr/bin/b"].Mode, files["etc/passwd"].Mode)
	}
	documents := attached(t, from, digest)
	if got := slices.Sorted(maps.Keys(documents)); !slices.Equal(got, []string{"application/vnd.cyclonedx+json b", "application/vnd.cyclonedx+json c", "application/vnd.in-toto+json b"}) {
		t.Fatalf("attached: %v", got)
	}
	var statement struct {
		Subject []struct{ Digest map[string]string }
	}
	if err := json.Unmarshal([]byte(documents["application/vnd.in-toto+json b"]), &statement); err != nil || len(statement.Subject) != 1 || statement.Subject[0].Digest["sha256"] != digest.Hex {
		t.Errorf("%v: %s", err, documents["application/vnd.in-toto+json b"])
	}
	if !strings.Contains(documents["application/vnd.cyclonedx+json c"], "example.test/other") {
		t.Errorf("%s", documents["application/vnd.cyclonedx+json c"])
	}
}

func TestUncommittedSourcesHaveNoProvenance(t *testing.T) {
	r := newRepository(t)
	r.commit(sources())
	into := t.TempDir()
	committed := r.build(into)
	r.write(map[string]string{"cmd/a/main.go": "package main\n\nfunc main() {}\n"})
	changed := r.build(into, "a")
	if changed["b"] != committed["b"] {
		t.Errorf("the image that was not selected changed: %+v", changed["b"])
	}
	if a := changed["a"]; a.Revision != "" || !strings.HasSuffix(a.Version, "+uncommitted") {
		t.Errorf("%+v", a)
	}
	from := must.Get(layout.FromPath(filepath.Join(into, "layout")))(t)
	for name, want := range map[string]int{"a": 1, "b": 3} {
		digest := must.Get(v1.NewHash(changed[name].Digest))(t)
		if documents := attached(t, from, digest); len(documents) != want {
			t.Errorf("%s has %v", name, slices.Collect(maps.Keys(documents)))
		}
	}
	// The blobs of the earlier image a are removed.
	old := must.Get(v1.NewHash(committed["a"].Digest))(t)
	if _, err := from.Blob(old); !os.IsNotExist(err) {
		t.Errorf("the earlier image: %v", err)
	}
}

// attached returns the documents that refer to an image, by media type and title.
func attached(t *testing.T, from layout.Path, digest v1.Hash) map[string]string {
	t.Helper()
	index := must.Get(from.ImageIndex())(t)
	list := must.Get(index.IndexManifest())(t)
	documents := map[string]string{}
	for _, d := range list.Manifests {
		image := must.Get(from.Image(d.Digest))(t)
		manifest := must.Get(image.Manifest())(t)
		if manifest.Subject == nil || manifest.Subject.Digest != digest {
			continue
		}
		text := must.Get(from.Bytes(manifest.Layers[0].Digest))(t)
		documents[manifest.ArtifactType+" "+manifest.Layers[0].Annotations["org.opencontainers.image.title"]] = string(text)
	}
	return documents
}

// filesOf returns the headers of the files and folders of all layers.
func filesOf(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	layers := must.Get(image.Layers())(t)
	files := map[string]*tar.Header{}
	for _, layer := range layers {
		in := must.Get(layer.Compressed())(t)
		defer in.Close()
		zip := must.Get(gzip.NewReader(in))(t)
		for archive := tar.NewReader(zip); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files[header.Name] = header
		}
	}
	return files
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}
