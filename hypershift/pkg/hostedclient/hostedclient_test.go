package hostedclient

import (
	"testing"

	"k8s.io/client-go/rest"
)

func TestEqual(t *testing.T) {
	original := func() *rest.Config {
		return &rest.Config{Host: "https://127.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key")}}
	}
	if !Equal(original(), original()) {
		t.Error("a copy is not equal")
	}
	for what, change := range map[string]func(*rest.Config){
		"address":     func(c *rest.Config) { c.Host = "https://127.0.0.1:6444" },
		"authority":   func(c *rest.Config) { c.CAData = []byte("another") },
		"certificate": func(c *rest.Config) { c.CertData = []byte("another") },
		"key":         func(c *rest.Config) { c.KeyData = []byte("another") },
	} {
		changed := original()
		change(changed)
		if Equal(original(), changed) {
			t.Errorf("a configuration with another %s is equal", what)
		}
	}
}
