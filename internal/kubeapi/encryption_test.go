package kubeapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestEncryptionKeysAreStored checks that the keys of each state of a rotation are the same after they were stored in a configuration and
// in a Secret, and that the states follow one another.
func TestEncryptionKeysAreStored(t *testing.T) {
	first := NewEncryptionKeys()
	adding := first.AddNext()
	promoted := adding.Promote()
	removed := promoted.RemoveFormer()
	for name, c := range map[string]struct {
		keys         EncryptionKeys
		next, former bool
	}{
		"one key": {first, false, false}, "next key": {adding, true, false}, "former key": {promoted, false, true}, "replaced key": {removed, false, false},
	} {
		if c.keys.HasNext() != c.next || c.keys.HasFormer() != c.former {
			t.Errorf("%s: next %v, former %v", name, c.keys.HasNext(), c.keys.HasFormer())
		}
		text := must.Get(EncryptionConfiguration(c.keys, manifestWorks))(t)
		read, resources, err := ReadEncryptionConfiguration(text)
		if err != nil || !read.Equal(c.keys) || !slices.Equal(resources, []string{"secrets", "configmaps", manifestWorks}) {
			t.Errorf("%s: the configuration has other keys or resources %v: %v", name, resources, err)
		}
		if read, err := EncryptionKeysOf(c.keys.SecretData()); err != nil || !read.Equal(c.keys) {
			t.Errorf("%s: the Secret has other keys: %v", name, err)
		}
	}
	if first.Write.Prefix() == removed.Write.Prefix() || removed.Equal(first) || adding.Equal(promoted) || !removed.Equal(EncryptionKeys{Write: *adding.Read}) {
		t.Error("the key was not replaced")
	}
}

// TestFirstKeyOfEarlierRelease reads a Secret and a configuration without a number of the key.
func TestFirstKeyOfEarlierRelease(t *testing.T) {
	key := NewEncryptionKeys().Write.Secret
	if keys, err := EncryptionKeysOf(map[string][]byte{"key": key}); err != nil || !keys.Equal(EncryptionKeys{Write: EncryptionKey{1, key}}) {
		t.Errorf("%d, %v", keys.Write.Number, err)
	}
}

func TestInvalidEncryptionKeys(t *testing.T) {
	const secret = "not-32-bytes"
	key := NewEncryptionKeys().Write.Secret
	for name, data := range map[string]map[string][]byte{
		"no key": {}, "short key": {"key": []byte(secret)}, "no number": {"key": key, "key-number": []byte("x")}, "number 0": {"key": key, "key-number": []byte("0")},
		"same number": {"key": key, "read-key": key}, "short other key": {"key": key, "read-key": []byte(secret), "read-key-number": []byte("2")},
	} {
		if _, err := EncryptionKeysOf(data); err == nil || !strings.Contains(err.Error(), HostedEncryptionSecret) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	valid := must.Get(EncryptionConfiguration(NewEncryptionKeys()))(t)
	for name, text := range map[string]string{
		"empty": "", "other kind": `{"resources":[]}`, "other name": strings.Replace(string(valid), `"key1"`, `"first"`, 1), "no keys": `{"resources":[{"resources":["a","b"],"providers":[{"secretbox":{"keys":[]}}]}]}`,
	} {
		if _, _, err := ReadEncryptionConfiguration([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
