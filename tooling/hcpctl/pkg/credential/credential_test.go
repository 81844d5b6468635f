package credential_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

func TestKubeconfigWithoutUserIsRejected(t *testing.T) {
	for reason, text := range map[string]string{
		"no YAML":  "\t{",
		"no users": "kind: Config",
		"no user":  "users:\n- name: u\n",
	} {
		if got, err := credential.WithKey([]byte(text), []byte("key")); err == nil {
			t.Errorf("%s: %s", reason, got)
		}
	}
	if _, err := credential.WithKey([]byte("users:\n- user: {}\n"), []byte("key")); err != nil {
		t.Error(err)
	}
}

// TestProxyIsAddedToClusters checks that all clusters of a kubeconfig get the proxy, and that without one nothing changes.
func TestProxyIsAddedToClusters(t *testing.T) {
	const kubeconfig = "clusters:\n- cluster:\n    server: https://api.example\n  name: c\n"
	if got, err := credential.WithProxy([]byte(kubeconfig), ""); err != nil || string(got) != kubeconfig {
		t.Errorf("without a proxy: %s, %v", got, err)
	}
	const want = "clusters:\n- cluster:\n    proxy-url: http://127.0.0.1:1\n    server: https://api.example\n  name: c\n"
	if got, err := credential.WithProxy([]byte(kubeconfig), "http://127.0.0.1:1"); err != nil || string(got) != want {
		t.Errorf("with a proxy: %s, %v", got, err)
	}
	for reason, text := range map[string]string{"no YAML": "\t{", "no clusters": "kind: Config", "no cluster": "clusters:\n- name: c\n"} {
		if got, err := credential.WithProxy([]byte(text), "http://127.0.0.1:1"); err == nil {
			t.Errorf("%s: %s", reason, got)
		}
	}
}
