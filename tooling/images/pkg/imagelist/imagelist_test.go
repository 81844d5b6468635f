package imagelist_test

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

func TestParse(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	entry := func(repository, digest, revision string) string {
		return `{"images": {"a": {"repository": "` + repository + `", "digest": "` + digest + `", "revision": "` + revision + `", "version": "v0.0.0"}}}`
	}
	if list, err := imagelist.Parse([]byte(entry("r/a", digest, ""))); err != nil || list.Images["a"].Digest != digest {
		t.Errorf("%+v, %v", list, err)
	}
	for reason, c := range map[string]struct{ text, want string }{
		"a tag for a digest":         {entry("r/a", "latest", ""), "images.a.digest"},
		"a tag in the repository":    {entry("r/a:latest", digest, ""), "images.a.repository"},
		"a branch for a revision":    {entry("r/a", digest, "main"), "images.a.revision"},
		"an unknown field":           {`{"images": {}, "tags": {}}`, "unknown field"},
		"no images":                  {`{}`, "images: is missing"},
		"two values":                 {`{"images": {}} {}`, "invalid character '{' after top-level value"},
		"the beginning of a list":    {`{"images": {`, "unexpected end of JSON input"},
		"a digest in capital digits": {entry("r/a", "sha256:"+strings.Repeat("AB", 32), ""), "images.a.digest"},
	} {
		if _, err := imagelist.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", reason, err, c.want)
		}
	}
}
