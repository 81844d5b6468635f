package release

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func defaults(t testing.TB) *Catalog {
	t.Helper()
	catalog, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

func TestLookup(t *testing.T) {
	const digest = "@sha256:a65e099f04964491ac8b98692b2bc5c4599b0b534ffc042d020f3f90153fccf2"
	cases := map[string]struct{ reason, image, want string }{
		"Digest":        {"the published digest", "quay.io/openshift-release-dev/ocp-release" + digest, "4.20.8"},
		"Mirror":        {"a mirror keeps the digest", "registry.example:5000/mirror/ocp-release" + digest, "4.20.8"},
		"DigestAndTag":  {"the digest decides", "quay.io/openshift-release-dev/ocp-release:4.22.0" + digest, "4.20.8"},
		"Tag":           {"a tag that is a version", "quay.io/openshift-release-dev/ocp-release:4.21.1", "4.21.1"},
		"TagWithArch":   {"a tag with an architecture", "quay.io/openshift-release-dev/ocp-release:4.21.1-multi", "4.21.1"},
		"UnknownTag":    {"no such version", "quay.io/openshift-release-dev/ocp-release:4.1.0", ""},
		"UnknownDigest": {"no such digest", "quay.io/openshift-release-dev/ocp-release@sha256:" + strings.Repeat("0", 64), ""},
		"NoTag":         {"nothing to go by", "quay.io/openshift-release-dev/ocp-release", ""},
		"Empty":         {"nothing at all", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := defaults(t).Lookup(c.image)
			if c.want == "" {
				if !errors.Is(err, ErrUnknownImage) {
					t.Errorf("%s: %v, %v", c.reason, got, err)
				}
				return
			}
			if err != nil || got.Version != c.want {
				t.Errorf("%s: %v, %v", c.reason, got, err)
			}
		})
	}
}

func TestReportsControlPlaneVersion(t *testing.T) {
	want := map[string]bool{"4.19.20": false, "4.20.8": false, "4.20.15": true, "4.20.16": true, "4.21.1": true, "4.21.4": true, "4.22.0": true, "4.22.2": true}
	for _, r := range defaults(t).Releases() {
		expected, known := want[r.Version]
		if !known || r.ReportsControlPlaneVersion() != expected {
			t.Errorf("%s: %v", r.Version, r.ReportsControlPlaneVersion())
		}
	}
}

func TestUpdates(t *testing.T) {
	catalog := defaults(t)
	from, err := catalog.Lookup("x:4.20.8")
	if err != nil {
		t.Fatal(err)
	}
	for channel, want := range map[string]string{"stable-4.20": "4.20.16 4.20.15", "stable-4.21": "4.21.4 4.21.1 4.20.16 4.20.15", "stable-4.22": "4.21.4 4.21.1", "": ""} {
		var got []string
		for _, r := range catalog.Updates(from, channel) {
			got = append(got, r.Version)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("channel %q: %v, want %s", channel, got, want)
		}
	}
}

func TestBadCatalogs(t *testing.T) {
	const good = "repository: r\nreleases:\n- {version: 4.20.8, digest: 'sha256:" + "a65e099f04964491ac8b98692b2bc5c4599b0b534ffc042d020f3f90153fccf2" + "', kubelet: v1.33.5, architecture: Multi, channels: []}\n"
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ text, names string }{
		"UnknownField":  {good + "color: blue\n", "color"},
		"NoRepository":  {strings.Replace(good, "repository: r\n", "", 1), "repository"},
		"NoReleases":    {"repository: r\n", "releases"},
		"BadVersion":    {strings.Replace(good, "4.20.8", "four", 1), "releases[0].version"},
		"BadDigest":     {strings.Replace(good, "sha256:a65e", "sha256:xyz0", 1), "releases[0].digest"},
		"BadKubelet":    {strings.Replace(good, "v1.33.5", "new", 1), "releases[0].kubelet"},
		"BadArch":       {strings.Replace(good, "Multi", "vax", 1), "releases[0].architecture"},
		"Twice":         {good + strings.SplitAfterN(good, "releases:\n", 2)[1], "twice"},
		"EmptyEntry":    {"repository: r\nreleases:\n- null\n", "releases[0]"},
		"NotEvenYAML":   {"{", ""},
		"WrongTypeList": {"repository: [r]\nreleases: []\n", "repository"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.names) {
				t.Errorf("error does not name %q: %v", c.names, err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "releases.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if catalog, err := Load(file); err != nil || len(catalog.Releases()) != 1 {
		t.Errorf("loading a file: %v", err)
	}
	if _, err := Load(file + ".missing"); err == nil {
		t.Error("a missing file was loaded")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(defaultCatalog)
	f.Add([]byte("releases: [null]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		catalog, err := Parse(text)
		if err != nil {
			return
		}
		for _, r := range catalog.Releases() {
			if found, err := catalog.Lookup(r.Image()); err != nil || found != r {
				t.Errorf("release %s is not found by its own image %q: %v", r.Version, r.Image(), err)
			}
		}
	})
}
