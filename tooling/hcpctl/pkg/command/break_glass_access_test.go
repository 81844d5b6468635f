package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// issue makes admin return a credential with a certificate until a time.
func (a *sres) issue(certificate string, expires time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown["/credentials/o"] = adminv1.FleetCredential{Of: &csv1.BreakGlassCredential{Uid: "o", Status: &csv1.BreakGlassCredentialStatus{
		State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, Certificate: certificate, ServingCertificateAuthority: "ca",
		ApiUrl: "https://api.example.com", ExpirationTime: timestamppb.New(expires)}}}
}

// TestCertificateIsRenewed requests an access and calls the plugin of its kubeconfig as kubectl does: it returns the certificate as
// long as it lasts, renews it before its end, and fails only after the end. The key is in no request and not in the kubeconfig.
func TestCertificateIsRenewed(t *testing.T) {
	a := newSREs(t)
	a.shown["/me"] = adminv1.Identity{Name: "ada", ObjectID: "object"}
	file := filepath.Join(t.TempDir(), "sre.kubeconfig")
	first, second := "first certificate", "second certificate"
	a.issue(first, time.Now().Add(15*time.Minute))
	if _, err := a.hcpctl(t, "break-glass", "request", "demo", "--level", "admin", "--for", "1h", "--reason", "no console", "--ticket", "INC-1"); err == nil || !strings.Contains(err.Error(), "--file") {
		t.Errorf("without a file: %v", err)
	}
	if _, err := a.hcpctl(t, "break-glass", "request", "demo", "--level", "root", "-f", file); err == nil || !strings.Contains(err.Error(), "--level") {
		t.Errorf("with an unknown level: %v", err)
	}
	a.asked = nil
	must.Get(a.hcpctl(t, "break-glass", "request", "demo", "--level", "admin", "-f", file, "--reason", "no console", "--ticket", "INC-1"))(t)
	if len(a.asked) != 2 || !strings.HasPrefix(a.asked[0], "POST /elevations break-glass:") || !strings.Contains(a.asked[1], `"level":"admin"`) || strings.Contains(strings.Join(a.asked, ""), "PRIVATE KEY") {
		t.Fatalf("admin was asked %q", a.asked)
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(content), "KEY") {
		t.Fatalf("%v: %s", err, content)
	}
	var kubeconfig struct {
		Users []struct {
			User struct {
				Exec struct {
					Command string
					Args    []string
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &kubeconfig); err != nil || len(kubeconfig.Users) != 1 {
		t.Fatalf("%v: %s", err, content)
	}
	plugin := kubeconfig.Users[0].User.Exec
	if program, err := os.Executable(); err != nil || plugin.Command != program {
		t.Errorf("the plugin is %s: %v", plugin.Command, err)
	}
	if info, err := os.Stat(accessFile(file)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the access: %v, %v", info, err)
	}
	run := func(arguments ...string) (string, error) {
		t.Helper()
		out, err := a.hcpctl(t, append(slices.Clone(plugin.Args), arguments...)...)
		if err != nil {
			return "", err
		}
		var response struct {
			Status struct {
				Certificate string `json:"clientCertificateData"`
				Key         string `json:"clientKeyData"`
			}
		}
		if err := json.Unmarshal([]byte(out), &response); err != nil || !strings.Contains(response.Status.Key, "PRIVATE KEY") {
			t.Fatalf("%v: %s", err, out)
		}
		return response.Status.Certificate, nil
	}
	want := func(reason, certificate string, requests int, arguments ...string) {
		t.Helper()
		a.asked = nil
		if got, err := run(arguments...); err != nil || got != certificate || len(a.asked) != requests {
			t.Errorf("%s: got %q with the requests %q, %v; want %q with %d", reason, got, a.asked, err, certificate, requests)
		}
	}
	endsIn := func(left time.Duration) {
		t.Helper()
		access := must.Get(credential.ReadAccess(accessFile(file)))(t)
		access.Expires = time.Now().Add(left)
		content := must.Get(access.Encode())(t)
		must.Do(t, os.WriteFile(accessFile(file), content, 0o600))
	}
	a.issue(second, time.Now().Add(15*time.Minute))
	want("the certificate lasts", first, 0)
	want("it is renewed on request", second, 1, "--renew")
	want("it lasts", second, 0)
	a.issue(first, time.Now().Add(15*time.Minute))
	endsIn(5 * time.Minute)
	want("it ends soon", first, 1)
	a.refused["POST /clusters/credentials/credentials"] = "Your elevation has ended."
	endsIn(5 * time.Minute)
	want("it cannot be renewed and still lasts", first, 1)
	endsIn(-time.Second)
	if got, err := run(); err == nil || !strings.Contains(err.Error(), "Your elevation has ended.") {
		t.Errorf("after its end: %q, %v", got, err)
	}
}

// TestRevokedCredentialShowsItsEnd revokes one credential: the command shows until when its certificate is accepted.
func TestRevokedCredentialShowsItsEnd(t *testing.T) {
	a := newSREs(t)
	until := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	a.results["POST /clusters/demo/credentials/u/revoke"] = adminv1.FleetCredential{Of: &csv1.BreakGlassCredential{Uid: "u", Status: &csv1.BreakGlassCredentialStatus{ExpirationTime: timestamppb.New(until)}}}
	out, err := a.hcpctl(t, "break-glass", "revoke", "demo", "--credential", "u")
	if err != nil || !strings.Contains(out, "u is revoked") || !strings.Contains(out, "2026-03-01T08:00:00Z") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := a.hcpctl(t, "break-glass", "revoke", "demo", "--credential", "u", "--class", "sre"); err == nil {
		t.Error("both a class and a credential are revoked")
	}
}
