package mirror_test

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/image-sync/pkg/mirror"
)

var digest = "@sha256:" + strings.Repeat("ab", 32)

func TestParse(t *testing.T) {
	p := must.Get(mirror.ParsePlan([]byte("mirrors: [{source: quay.io/a/release, target: a/release}]\nreleases: [{image: \"quay.io/a/release" + digest + "\"}]\nimages: [{image: \"registry.example:5000/bb" + digest + "\", target: bb}]\n")))(t)
	if p.Releases[0].Reference.Context().Name() != "quay.io/a/release" || p.Images[0].Reference.Context().RegistryStr() != "registry.example:5000" {
		t.Errorf("%+v", p)
	}
	if target, err := p.Target("quay.io/a/release"); err != nil || target != "a/release" {
		t.Errorf("%s, %v", target, err)
	}
	if _, err := p.Target("quay.io/a/other"); err == nil {
		t.Error("a repository without a mirror is accepted")
	}
}

func TestWrongPlansAreRefused(t *testing.T) {
	for reason, c := range map[string]struct{ text, want string }{
		"nothing":                    {"mirrors: []", "no releases and no images"},
		"an unknown field":           {"image: []", "field image not found"},
		"two documents":              {"images: []\n---\nimages: []", "more than one YAML document"},
		"a tag":                      {"images: [{image: \"quay.io/a:latest\", target: a}]", "images[0].image"},
		"a tag and a digest":         {"images: [{image: \"quay.io/a:v1" + digest + "\", target: a}]", "images[0].image"},
		"no registry":                {"images: [{image: \"a" + digest + "\", target: a}]", "images[0].image"},
		"no image":                   {"images: [{target: a}]", "images[0].image: is missing"},
		"a short digest":             {"images: [{image: \"quay.io/a@sha256:ab\", target: a}]", "images[0].image"},
		"no target":                  {"images: [{image: \"quay.io/a" + digest + "\"}]", "images[0].target: is missing"},
		"a target with a registry":   {"images: [{image: \"quay.io/a" + digest + "\", target: \"r.example:5000/a\"}]", "images[0].target"},
		"a target with a tag":        {"images: [{image: \"quay.io/a" + digest + "\", target: \"a:v1\"}]", "images[0].target"},
		"an image twice":             {"images: [{image: \"quay.io/a" + digest + "\", target: a}, {image: \"quay.io/a" + digest + "\", target: b}]", "images[1].image"},
		"a release without a mirror": {"releases: [{image: \"quay.io/a" + digest + "\"}]", "releases[0].image: mirrors has no source quay.io/a"},
		"a mirror without a source":  {"mirrors: [{target: a}]", "mirrors[0].source: is missing"},
		"a mirror of a tag":          {"mirrors: [{source: \"quay.io/a:v1\", target: a}]", "mirrors[0].source"},
		"two mirrors of a source":    {"mirrors: [{source: quay.io/a, target: a}, {source: quay.io/a, target: b}]", "mirrors[1].source"},
	} {
		if _, err := mirror.ParsePlan([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", reason, err, c.want)
		}
	}
}
