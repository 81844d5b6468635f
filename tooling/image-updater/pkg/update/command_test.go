package update

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// folder copies the configuration of the repository without images.
func folder(t *testing.T) string {
	t.Helper()
	found := must.Get(deployment.Find())(t)
	dir := filepath.Join(t.TempDir(), "config")
	must.Do(t, os.CopyFS(dir, os.DirFS(found)))
	must.Do(t, os.RemoveAll(filepath.Join(dir, layer.ImagesFolder)))
	return dir
}

func digest(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

var revision = strings.Repeat("0", 40)

// list writes a list of images. The image etcd is in no configuration.
func list(t *testing.T, frontend, agent string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.json")
	l := imagelist.List{Images: map[string]imagelist.Image{
		"frontend":      {Repository: "hcpmesh/frontend", Digest: frontend, Revision: revision},
		"maestro-agent": {Repository: "hcpmesh/maestro-agent", Digest: agent, Revision: revision},
		"etcd":          {Repository: "third-party/etcd", Digest: digest("e"), Revision: revision},
		"changed":       {Repository: "hcpmesh/backend", Digest: digest("c")},
	}}
	must.Do(t, l.Write(file))
	return file
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), args, &out, io.Discard)
	return out.String(), err
}

func read(t *testing.T, dir, environment string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "images", filepath.FromSlash(environment)+".yaml"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// snapshot returns all files of a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		files[name] = string(text)
		return err
	}))
	return files
}

func TestDigestsOfABuildAreWritten(t *testing.T) {
	dir := folder(t)
	before := snapshot(t, dir)
	args := []string{"-config-dir", dir, "-environment", "public/dev", "-images", list(t, digest("1"), digest("2")), "frontend", "maestro-agent"}
	lines := "frontend.image.digest: nothing -> " + digest("1") + "\nmanagementCluster.agent.image.digest: nothing -> " + digest("2") + "\n"
	out, err := run(t, append([]string{"-dry-run"}, args...)...)
	if err != nil || out != lines+"dry run: nothing was written\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
		t.Errorf("the dry run wrote:\n%s", diff)
	}
	if out, err = run(t, args...); err != nil || !strings.HasPrefix(out, lines+"wrote ") {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "# Written by image-updater. The file has the digests of the images of an environment.\n\n" +
		"frontend:\n  image:\n    digest: " + digest("1") + "\nmanagementCluster:\n  agent:\n    image:\n      digest: " + digest("2") + "\n"
	if got := read(t, dir, "public/dev"); got != want {
		t.Errorf("the file is\n%s", got)
	}
	if out, err = run(t, args...); err != nil || out != "all digests are up to date\n" {
		t.Errorf("the second time: %v\n%s", err, out)
	}
	after := snapshot(t, dir)
	delete(after, filepath.Join(dir, "images/public/dev.yaml"))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("other files changed:\n%s", diff)
	}

	// Another update keeps the digests that it does not name.
	if out, err = run(t, "-config-dir", dir, "-environment", "public/dev", "-images", list(t, digest("3"), digest("4")), "frontend"); err != nil ||
		!strings.HasPrefix(out, "frontend.image.digest: "+digest("1")+" -> "+digest("3")+"\nwrote ") {
		t.Errorf("%v\n%s", err, out)
	}
	if got := read(t, dir, "public/dev"); got != strings.Replace(want, digest("1"), digest("3"), 1) {
		t.Errorf("the file is\n%s", got)
	}
	if out, err = run(t, "-config-dir", dir, "-environment", "public/int", "-from", "public/dev"); err != nil || read(t, dir, "public/int") != read(t, dir, "public/dev") {
		t.Errorf("-from: %v\n%s", err, out)
	}
	configuration := must.Get(deployment.Open(dir))(t)
	values := must.Get(configuration.Render(layer.Target{"public", "int", "uksouth"}))(t)
	if n := values.Get("frontend", "image", "digest"); n == nil || n.Value != digest("3") || n.Origin.Layer != "images public/int" {
		t.Errorf("the region has the digest %v", n)
	}
}

// TestImagesThatNobodyDeploysAreNotCopied copies the digests of an environment without regions. The repositories of its images are not known.
func TestImagesThatNobodyDeploysAreNotCopied(t *testing.T) {
	dir := folder(t)
	must.Get(run(t, "-config-dir", dir, "-environment", "public/dev", "-images", list(t, digest("1"), digest("2")), "frontend", "maestro-agent"))(t)
	for _, region := range []string{"clouds/public/dev/westus3", "clouds/public/dev/westus3.yaml"} {
		must.Do(t, os.RemoveAll(filepath.Join(dir, region)))
	}
	out, err := run(t, "-config-dir", dir, "-environment", "public/int", "-from", "public/dev")
	if err == nil || !strings.Contains(err.Error(), "-from: public/dev deploys no image that has a digest") || read(t, dir, "public/int") != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWrongUpdatesAreRefused(t *testing.T) {
	dir := folder(t)
	images := list(t, digest("1"), digest("2"))
	uncommitted := filepath.Join(t.TempDir(), "images.json")
	text := must.Get(json.Marshal(imagelist.List{Images: map[string]imagelist.Image{"frontend": {Repository: "hcpmesh/frontend", Digest: "latest"}}}))(t)
	must.Do(t, os.WriteFile(uncommitted, text, 0o644))
	before := snapshot(t, dir)
	for reason, c := range map[string]struct {
		args []string
		want string
	}{
		"no environment":       {[]string{"-images", images}, "-environment: is missing"},
		"an unknown one":       {[]string{"-environment", "public/none", "-images", images}, "-environment: unknown target"},
		"a region":             {[]string{"-environment", "public/dev/westus3", "-images", images}, "-environment: public/dev/westus3 is not an environment"},
		"no source":            {[]string{"-environment", "public/dev"}, "set one of -images, -from and -image"},
		"two sources":          {[]string{"-environment", "public/dev", "-images", images, "-from", "public/int"}, "set one of"},
		"an unknown name":      {[]string{"-environment", "public/dev", "-images", images, "fronted"}, "fronted: the list has no such image; it has changed, etcd, frontend, maestro-agent"},
		"an image of nothing":  {[]string{"-environment", "public/dev", "-images", images, "etcd"}, "-images: no image of public/dev has the repository third-party/etcd"},
		"uncommitted changes":  {[]string{"-environment", "public/dev", "-images", images}, "changed: the image was built from changes that were not committed"},
		"a tag in a list":      {[]string{"-environment", "public/dev", "-images", uncommitted}, `images.frontend.digest: "latest" does not match`},
		"no list":              {[]string{"-environment", "public/dev", "-images", "/nowhere"}, "-images: open /nowhere"},
		"no digests elsewhere": {[]string{"-environment", "public/dev", "-from", "public/int"}, "-from: public/int deploys no image that has a digest"},
		"a tag":                {[]string{"-environment", "public/dev", "-registry", "r.example", "-image", "hcpmesh/frontend:v1"}, "tags are refused"},
		"a tag and a digest":   {[]string{"-environment", "public/dev", "-registry", "r.example", "-image", "hcpmesh/frontend:v1@" + digest("1")}, "tags are refused"},
		"an unknown image":     {[]string{"-environment", "public/dev", "-registry", "r.example", "-image", "hcpmesh/fronted@" + digest("1")}, "-image: no image of public/dev has the repository hcpmesh/fronted"},
		"an unchecked image":   {[]string{"-environment", "public/dev", "-image", "hcpmesh/frontend@" + digest("1")}, "-image: needs -registry"},
		"names without a list": {[]string{"-environment", "public/dev", "-from", "public/int", "frontend"}, `unexpected argument "frontend"`},
	} {
		if out, err := run(t, append([]string{"-config-dir", dir}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s\n%s", reason, err, c.want, out)
		}
	}
	if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
		t.Errorf("a refused update wrote:\n%s", diff)
	}
}

// TestAWrongConfigurationIsNotUpdated checks that an error of the configuration is reported before a file is written.
func TestAWrongConfigurationIsNotUpdated(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "images/public/dev.yaml")
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte("frontend: {replicas: 3}\n"), 0o644))
	_, err := run(t, "-config-dir", dir, "-environment", "public/dev", "-images", list(t, digest("1"), digest("2")), "frontend")
	if err == nil || !strings.Contains(err.Error(), "images/public/dev.yaml:1: frontend.replicas: a layer of images may set only the keys KEY.image.digest") {
		t.Errorf("%v", err)
	}
	if got := read(t, dir, "public/dev"); got != "frontend: {replicas: 3}\n" {
		t.Errorf("the file is %s", got)
	}
}

// TestTheRegistryMustHaveTheImages writes the digest of an image that a registry has, and refuses that of another one.
func TestTheRegistryMustHaveTheImages(t *testing.T) {
	content := must.Get(registry.Open(t.TempDir()))(t)
	registry := httptest.NewServer(registry.New(content, registry.Policy{Open: true}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")
	image := must.Get(random.Image(1000, 1))(t)
	pushed := must.Get(image.Digest())(t)
	reference := must.Get(name.NewDigest(host+"/hcpmesh/frontend@"+pushed.String(), name.Insecure))(t)
	must.Do(t, remote.Write(reference, image))
	dir := folder(t)
	args := []string{"-config-dir", dir, "-environment", "public/dev", "-registry", host, "-plain-http"}
	if _, err := run(t, append(args, "-image", "hcpmesh/frontend@"+pushed.String(), "-image", "hcpmesh/backend@"+pushed.String())...); err == nil ||
		!strings.Contains(err.Error(), "the registry does not have all images; nothing was written: "+host+"/hcpmesh/backend@"+pushed.String()) || strings.Contains(err.Error(), "hcpmesh/frontend") {
		t.Errorf("%v", err)
	}
	if read(t, dir, "public/dev") != "" {
		t.Error("a refused update wrote the file")
	}
	if out, err := run(t, append(args, "-image", "hcpmesh/frontend@"+pushed.String())...); err != nil || !strings.Contains(read(t, dir, "public/dev"), pushed.String()) {
		t.Errorf("%v\n%s", err, out)
	}
}
