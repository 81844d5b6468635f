package entra

import (
	"crypto/rsa"
	"strconv"
	"testing"
)

// TestVerifiedTokensDependOnTheirKey: a token counts as verified only while the authority has the key that verified it.
func TestVerifiedTokensDependOnTheirKey(t *testing.T) {
	key := &rsa.PublicKey{E: 3}
	keys := &keySet{byID: map[string]*rsa.PublicKey{"a": key}}
	var v verifiedTokens
	v.add("token", verifiedToken{&claims{ObjectID: "principal"}, "a", key})
	if found, known := v.find("token", keys); !known || found.ObjectID != "principal" {
		t.Errorf("with the key: %+v, known %t", found, known)
	}
	for name, byID := range map[string]map[string]*rsa.PublicKey{"removed": {}, "replaced": {"a": {E: 3}}} {
		if _, known := v.find("token", &keySet{byID: byID}); known {
			t.Errorf("the token counts as verified although its key was %s", name)
		}
	}
}

func TestVerifiedTokensAreBounded(t *testing.T) {
	var v verifiedTokens
	for i := range maxVerified + 10 {
		v.add(strconv.Itoa(i), verifiedToken{})
	}
	if n := len(v.byDigest); n > maxVerified {
		t.Errorf("%d tokens are stored, more than %d", n, maxVerified)
	}
}
