package keycache_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// webKey returns a JSON Web Key with a modulus of the same size as that of a real key.
func webKey(id, modulus, exponent string) string {
	return fmt.Sprintf(`{"kty":"RSA","use":"sig","kid":%q,"n":%q,"e":%q}`, id, modulus, exponent)
}

// modulus returns a modulus in base64url.
func modulus(t testing.TB, bits int) string {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, bits))(t)
	return base64.RawURLEncoding.EncodeToString(key.N.Bytes())
}

// TestUnusableKeysHideNoOther places each kind of unusable key before and after usable ones.
func TestUnusableKeysHideNoOther(t *testing.T) {
	n := modulus(t, 2048)
	good := webKey("a", n, "AQAB")
	for name, tc := range map[string]struct{ key, reason string }{
		"1024 bits":                 {webKey("b", base64.RawURLEncoding.EncodeToString(make([]byte, 128)), "AQAB"), "n is not"},
		"16384 bits":                {webKey("b", strings.Repeat("_", 2731), "AQAB"), "n is not"},
		"padded modulus":            {webKey("b", n+"==", "AQAB"), "n is not"},
		"no modulus":                {`{"kty":"RSA","kid":"b","e":"AQAB"}`, "n is not"},
		"exponent of 5 bytes":       {webKey("b", n, "AQAAAAE"), "e is not"},
		"even exponent":             {webKey("b", n, "AQAA"), "e is not"},
		"exponent 1":                {webKey("b", n, "AQ"), "e is not"},
		"no exponent":               {webKey("b", n, ""), "e is not"},
		"no ID":                     {webKey("", n, "AQAB"), "kid is missing"},
		"the ID of another key":     {webKey("c", n, "AQAB"), "same kid"},
		"a number for a text":       {`{"kty":"RSA","kid":1}`, "not a JSON Web Key"},
		"no object":                 {`"b"`, "not a JSON Web Key"},
		"null":                      {`null`, ""},
		"unknown type":              {`{"kty":"OKP","kid":"b","crv":"Ed25519","x":"AA"}`, ""},
		"elliptic curve":            {`{"kty":"EC","kid":"b","crv":"P-256","x":"AA","y":"AA"}`, ""},
		"encryption":                {`{"kty":"RSA","use":"enc","kid":"b","n":"` + n + `","e":"AQAB"}`, ""},
		"a hundred unusable others": {strings.Repeat(webKey("b", "AQAB", "AQAB")+",", 99) + webKey("b", "AQAB", "AQAB"), "n is not"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, ignored, err := keycache.RSAKeys([]byte(`{"keys":[` + good + "," + webKey("c", n, "AQAB") + "," + tc.key + "," + webKey("d", n, "Aw") + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a", "c", "d"}, slices.Sorted(maps.Keys(keys))); diff != "" {
				t.Errorf("usable keys (-want +got):\n%s", diff)
			}
			if tc.reason == "" && len(ignored) != 0 || tc.reason != "" && (len(ignored) == 0 || !strings.Contains(ignored[0], tc.reason)) {
				t.Errorf("ignored: %q, want %q", ignored, tc.reason)
			}
		})
	}
	many := make([]string, 500)
	for i := range many {
		many[i] = webKey(fmt.Sprint(i), n, "AQAB")
	}
	if keys, ignored, err := keycache.RSAKeys([]byte(`{"keys":[` + strings.Join(many, ",") + `]}`)); err != nil || len(keys) != len(many) || len(ignored) != 0 {
		t.Errorf("%d of %d keys, ignored %q: %v", len(keys), len(many), ignored, err)
	}
	for name, set := range map[string]string{"no usable key": `{"keys":[` + webKey("b", "AQAB", "AQAB") + `]}`, "no key": `{"keys":[]}`, "no set": `[]`, "nothing": ``} {
		if keys, _, err := keycache.RSAKeys([]byte(set)); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

// FuzzRSAKeys checks that RSAKeys returns either usable keys or an error.
func FuzzRSAKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","use":"enc"},null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		found, _, err := keycache.RSAKeys(content)
		if (err == nil) != (len(found) > 0) {
			t.Fatalf("%d keys and %v", len(found), err)
		}
		for id, key := range found {
			if id == "" || key.N.BitLen() == 0 || key.E < 3 {
				t.Fatalf("the key %q has %d bits and the exponent %d", id, key.N.BitLen(), key.E)
			}
		}
	})
}
