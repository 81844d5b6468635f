package sealedsecret_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/sealedsecret"
)

// pair returns new keys.
func pair(t testing.TB) (*seal.PublicKeys, *seal.PrivateKeys) {
	t.Helper()
	public, private, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

func secret() map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "n", "name": "pull-secret"},
		"data": map[string]any{"a": base64.StdEncoding.EncodeToString([]byte("canary")), "b": base64.StdEncoding.EncodeToString([]byte("other"))}}
}

func TestSealAndOpen(t *testing.T) {
	public, private := pair(t)
	object := secret()
	if err := sealedsecret.Seal(object, "mgmt-1", public); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), secret()["data"].(map[string]any)["a"].(string)) || !strings.Contains(string(text), `"`+sealedsecret.Annotation+`":"`+public.ID()+`"`) {
		t.Errorf("the sealed Secret is %s", text)
	}
	if err := sealedsecret.Open(object, "mgmt-1", private); err != nil || !reflect.DeepEqual(object, secret()) {
		t.Errorf("opened %v, %v", object, err)
	}
}

// TestOpenRefusesOtherPlaces moves sealed values to places for which they were not sealed.
func TestOpenRefusesOtherPlaces(t *testing.T) {
	public, private := pair(t)
	_, foreign := pair(t)
	for name, c := range map[string]struct {
		cluster string
		keys    *seal.PrivateKeys
		change  func(object, data map[string]any)
	}{
		"another management cluster": {"mgmt-2", private, func(map[string]any, map[string]any) {}},
		"another key":                {"mgmt-1", foreign, func(map[string]any, map[string]any) {}},
		"another namespace":          {"mgmt-1", private, func(o, _ map[string]any) { o["metadata"].(map[string]any)["namespace"] = "m" }},
		"another name":               {"mgmt-1", private, func(o, _ map[string]any) { o["metadata"].(map[string]any)["name"] = "m" }},
		"swapped values":             {"mgmt-1", private, func(_, data map[string]any) { data["a"], data["b"] = data["b"], data["a"] }},
		"a value in clear":           {"mgmt-1", private, func(_, data map[string]any) { data["a"] = base64.StdEncoding.EncodeToString([]byte("clear")) }},
	} {
		object := secret()
		if err := sealedsecret.Seal(object, "mgmt-1", public); err != nil {
			t.Fatal(err)
		}
		c.change(object, object["data"].(map[string]any))
		before, _ := json.Marshal(object)
		err := sealedsecret.Open(object, c.cluster, c.keys)
		if after, _ := json.Marshal(object); !errors.Is(err, seal.ErrInvalid) || string(after) != string(before) {
			t.Errorf("%s: %v, want %v and an unchanged Secret", name, err, seal.ErrInvalid)
		}
	}
}

func TestOpenRefusesClearValues(t *testing.T) {
	_, private := pair(t)
	if err := sealedsecret.Open(secret(), "mgmt-1", private); !errors.Is(err, sealedsecret.ErrClear) {
		t.Errorf("data in clear: %v", err)
	}
	if err := sealedsecret.Open(map[string]any{"stringData": map[string]any{"a": "clear"}}, "mgmt-1", private); !errors.Is(err, sealedsecret.ErrClear) {
		t.Errorf("stringData in clear: %v", err)
	}
	if err := sealedsecret.Open(map[string]any{"metadata": map[string]any{"name": "empty"}}, "mgmt-1", private); err != nil {
		t.Errorf("a Secret without values: %v", err)
	}
}

func TestSealRefusesWhatItCannotSeal(t *testing.T) {
	public, _ := pair(t)
	bad := secret()
	bad["stringData"] = map[string]any{"a": "canary"}
	text := secret()
	text["data"].(map[string]any)["a"] = "canary, not base64"
	for field, object := range map[string]map[string]any{"stringData": bad, "data[a]": text} {
		if err := sealedsecret.Seal(object, "mgmt-1", public); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// BenchmarkSeal compares with sealing for a key that both sides share.
func BenchmarkSeal(b *testing.B) {
	public, private := pair(b)
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			if err := sealedsecret.Seal(secret(), "mgmt-1", public); err != nil {
				b.Fatal(err)
			}
		}
	})
	object := secret()
	if err := sealedsecret.Seal(object, "mgmt-1", public); err != nil {
		b.Fatal(err)
	}
	data := object["data"]
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			object["data"] = data
			object["metadata"].(map[string]any)["annotations"] = map[string]any{sealedsecret.Annotation: "1"}
			if err := sealedsecret.Open(object, "mgmt-1", private); err != nil {
				b.Fatal(err)
			}
		}
	})
	shared, err := seal.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("shared-key", func(b *testing.B) {
		for b.Loop() {
			shared.Seal("secret", []byte("canary"))
			shared.Seal("secret", []byte("other"))
		}
	})
}
