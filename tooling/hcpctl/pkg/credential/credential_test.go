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
