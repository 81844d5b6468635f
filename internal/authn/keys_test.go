package authn

import "testing"

// FuzzKeys checks that parseKeys returns either usable keys or an error.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","use":"enc"},null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		found, err := parseKeys(content)
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
