package seal_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// shardKeys returns new keys.
func shardKeys(t testing.TB) (*seal.PublicKeys, *seal.PrivateKeys) {
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

func TestSealAndOpenSecret(t *testing.T) {
	public, private := shardKeys(t)
	object := secret()
	must.Do(t, seal.SealSecret(object, "mgmt-1", public))
	text := must.Get(json.Marshal(object))(t)
	if strings.Contains(string(text), secret()["data"].(map[string]any)["a"].(string)) || !strings.Contains(string(text), `"`+seal.SecretAnnotation+`":"`+public.ID()+`"`) {
		t.Errorf("the sealed Secret is %s", text)
	}
	if err := seal.OpenSecret(object, "mgmt-1", private); err != nil || !reflect.DeepEqual(object, secret()) {
		t.Errorf("opened %v, %v", object, err)
	}
}

// TestOpenSecretRefusesOtherPlaces moves sealed values to places for which they were not sealed.
func TestOpenSecretRefusesOtherPlaces(t *testing.T) {
	public, private := shardKeys(t)
	_, foreign := shardKeys(t)
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
		must.Do(t, seal.SealSecret(object, "mgmt-1", public))
		c.change(object, object["data"].(map[string]any))
		before, _ := json.Marshal(object)
		err := seal.OpenSecret(object, c.cluster, c.keys)
		if after, _ := json.Marshal(object); !errors.Is(err, seal.ErrInvalid) || string(after) != string(before) {
			t.Errorf("%s: %v, want %v and an unchanged Secret", name, err, seal.ErrInvalid)
		}
	}
}

func TestOpenSecretRefusesClearValues(t *testing.T) {
	_, private := shardKeys(t)
	if err := seal.OpenSecret(secret(), "mgmt-1", private); !errors.Is(err, seal.ErrClearSecret) {
		t.Errorf("data in clear: %v", err)
	}
	if err := seal.OpenSecret(map[string]any{"stringData": map[string]any{"a": "clear"}}, "mgmt-1", private); !errors.Is(err, seal.ErrClearSecret) {
		t.Errorf("stringData in clear: %v", err)
	}
	if err := seal.OpenSecret(map[string]any{"metadata": map[string]any{"name": "empty"}}, "mgmt-1", private); err != nil {
		t.Errorf("a Secret without values: %v", err)
	}
}

func TestSealSecretRefusesWhatItCannotSeal(t *testing.T) {
	public, _ := shardKeys(t)
	bad := secret()
	bad["stringData"] = map[string]any{"a": "canary"}
	text := secret()
	text["data"].(map[string]any)["a"] = "canary, not base64"
	for field, object := range map[string]map[string]any{"stringData": bad, "data[a]": text} {
		if err := seal.SealSecret(object, "mgmt-1", public); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// BenchmarkSealSecret compares with sealing for a key that both sides share.
func BenchmarkSealSecret(b *testing.B) {
	public, private := shardKeys(b)
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			must.Do(b, seal.SealSecret(secret(), "mgmt-1", public))
		}
	})
	object := secret()
	must.Do(b, seal.SealSecret(object, "mgmt-1", public))
	data := object["data"]
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			object["data"] = data
			object["metadata"].(map[string]any)["annotations"] = map[string]any{seal.SecretAnnotation: "1"}
			must.Do(b, seal.OpenSecret(object, "mgmt-1", private))
		}
	})
	shared := must.Get(seal.New())(b)
	b.Run("shared-key", func(b *testing.B) {
		for b.Loop() {
			shared.Seal("secret", []byte("canary"))
			shared.Seal("secret", []byte("other"))
		}
	})
}
