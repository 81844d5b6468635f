package policy

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
)

// eachBody calls compare with each kind of a body: an accepted one, refused ones of at most size bytes, and their reader.
func eachBody(tb testing.TB, size int, compare func(name string, accepted []byte, refused map[string][]byte, read func([]byte) error)) {
	pod := []byte(`{"spec": ` + testSpec + `}`)
	patch := []byte(`[{"op":"add","path":"/spec","value":` + testSpec + `}]`)
	for media, tc := range map[string]struct {
		method   string
		accepted []byte
		refused  map[string][]byte
	}{
		plainJSON: {"POST", pod, map[string][]byte{
			"field twice":         []byte(`{"spec": ` + testSpec + `, "spec": ` + testSpec + `}`),
			"no object":           []byte(`[` + testSpec + `]`),
			"twice after numbers": refusalcost.Filled(size, `{"a":[`, "1,", `1],"a":1}`),
		}},
		plainYAML: {"POST", pod, map[string][]byte{
			"field twice":      []byte(`{"spec": ` + testSpec + `, "spec": ` + testSpec + `}`),
			"no object":        []byte(`[` + testSpec + `]`),
			"escapes, no YAML": refusalcost.Filled(size, `{"a": "`, `\u0041`, `"`),
			"names, no YAML":   refusalcost.Numbered(size, "", "name-%d: value\n", "]"),
		}},
		jsonPatch: {"PATCH", patch, map[string][]byte{
			"field twice":         bytes.Replace(patch, []byte(`"op"`), []byte(`"op":"add","op"`), 1),
			"twice after numbers": refusalcost.Filled(size, `[{"a":[`, "1,", `1],"a":1}]`),
		}},
	} {
		path := "/api/v1/namespaces/n/pods"
		if tc.method == "PATCH" {
			path += "/p"
		}
		texts := refusalcost.Texts(size)
		switch media {
		case plainYAML: // decoders ignore text behind an object, as those of API servers do
			maps.DeleteFunc(texts, func(name string, _ []byte) bool {
				return strings.HasSuffix(name, "before text") || name == "empty objects"
			})
		case jsonPatch:
			delete(texts, "numbers") // they cost as much as the value of an operation
		}
		maps.Copy(tc.refused, texts)
		request := parse(tb, tc.method, path)
		compare(strings.TrimPrefix(media, "application/"), tc.accepted, tc.refused, func(content []byte) error {
			_, err := ReadBody(request, []string{media}, content, bodyNow, bodyEnd)
			return err
		})
	}
}

// TestRefusedBodiesNeedNoMoreMemory compares bodies that are refused with those of a pod.
func TestRefusedBodiesNeedNoMoreMemory(t *testing.T) {
	eachBody(t, 128<<10, func(name string, accepted []byte, refused map[string][]byte, read func([]byte) error) {
		t.Run(name, func(t *testing.T) { refusalcost.CheckMemory(t, accepted, refused, read) })
	})
}

// BenchmarkRefusedBodies compares bodies that are refused with those of a pod.
func BenchmarkRefusedBodies(b *testing.B) {
	eachBody(b, MaxReadBody, func(name string, accepted []byte, refused map[string][]byte, read func([]byte) error) {
		b.Run(name, func(b *testing.B) { refusalcost.Compare(b, accepted, refused, read) })
	})
}
