package signingkey

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"sync"
	"testing"
)

func TestPoolReturnsDifferentKeys(t *testing.T) {
	keys := NewPool(1, Generate)
	if keys.Ready() != nil {
		t.Error("an unused pool has a key")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := keys.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	seen := map[string]bool{}
	for range 4 {
		key, err := keys.Take()
		if err != nil {
			t.Fatal(err)
		}
		seen[string(key)] = true
		block, _ := pem.Decode(key)
		if block == nil {
			t.Fatal("not PEM")
		}
		if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d different keys of 4", len(seen))
	}
	cancel()
	group.Wait()
}
