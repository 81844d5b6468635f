package command

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestAuditKeyOutsideOfRegionIsRotated names the files, a replica, and a program that copies the files to where the replica reads them. The
// replica must never sign with a key before verifiers have its public key.
func TestAuditKeyOutsideOfRegionIsRotated(t *testing.T) {
	dir, mounted := t.TempDir(), t.TempDir()
	private, public := filepath.Join(dir, "signing.key"), filepath.Join(dir, "admin.pem")
	key, err := audit.GenerateKey()
	if err == nil {
		err = errors.Join(key.Create(private), key.Publish(public), os.CopyFS(mounted, os.DirFS(dir)))
	}
	if err != nil {
		t.Fatal(err)
	}
	replica := must.Get(audit.LoadKey(filepath.Join(mounted, "signing.key")))(t)
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		keys, err := audit.LoadKeys(mounted)
		if err != nil || keys["admin"][replica.ID()].PublicKey == nil {
			t.Errorf("verifiers do not have the key %s, with which the replica signs: %v", replica.ID(), err)
		}
		fmt.Fprintf(w, "# TYPE audit_signing_key gauge\naudit_signing_key{key=%q} 1\n# TYPE admin_audit_public_key gauge\n", replica.ID())
		for id := range keys["admin"] {
			fmt.Fprintf(w, "admin_audit_public_key{service=\"admin\",key=%q} 1\n", id)
		}
	}))
	defer metrics.Close()
	publish := filepath.Join(t.TempDir(), "publish")
	script := fmt.Sprintf("#!/bin/sh\nset -e\ncp \"$1\" '%[1]s/part'\nmv '%[1]s/part' '%[1]s'/$(basename \"$1\")\n", mounted)
	must.Do(t, os.WriteFile(publish, []byte(script), 0o700))
	var output bytes.Buffer
	hcpctl := New(&output, &output)
	hcpctl.SetArgs([]string{"keys", "rotate", "audit", "--service", "admin", "--keyset", private, "--public-keyset", public, "--publish", publish, "--replica", "admin=" + metrics.URL})
	if err := hcpctl.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}
	if replica.ID() == key.ID() {
		t.Error("the replica signs with the former key")
	}
	keys, err := audit.LoadKeys(mounted)
	if err != nil || len(keys["admin"]) != 2 || keys["admin"][key.ID()].Until.IsZero() || !keys["admin"][replica.ID()].Until.IsZero() {
		t.Errorf("the public keys are %+v, %v: want the former one with an end", keys, err)
	}
}

// TestFlagsOfAuditRotation checks that flags which do not fit together are refused, with the name of the flag.
func TestFlagsOfAuditRotation(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"k", "p"} {
		must.Do(t, os.WriteFile(name, nil, 0o600))
	}
	for arguments, want := range map[string]string{
		"audit":                                "--service",
		"audit --service admin --shard mgmt-1": "--shard",
		"audit --service admin --former-needed 0":                                                             "--former-needed",
		"audit --service admin --keyset k":                                                                    "--public-keyset",
		"audit --service admin --replica admin=http://127.0.0.1:1":                                            "--keyset",
		"audit --service admin --keyset k --public-keyset p --replica backend=http://127.0.0.1:1":             "--replica",
		"audit --service admin --keyset k --public-keyset p --replica admin":                                  "--replica",
		"audit --service admin --keyset k --public-keyset p":                                                  "--replica",
		"credentials --service admin --keyset k --replica frontend=http://127.0.0.1:1 --publish /bin/unknown": "--service",
	} {
		hcpctl := New(&bytes.Buffer{}, &bytes.Buffer{})
		hcpctl.SetArgs(append([]string{"keys", "rotate"}, strings.Fields(arguments)...))
		if err := hcpctl.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", arguments, err, want)
		}
	}
}
