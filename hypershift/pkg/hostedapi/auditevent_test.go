package hostedapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

const fingerprint = "5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b5f1c9a3b"

var at = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// line returns an event in the format of a kube-apiserver of the pinned release, with a change.
func line(change func(event map[string]any)) []byte {
	event := map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "6f4d…", "stage": "ResponseComplete",
		"requestURI": "/api/v1/namespaces/default/pods?limit=500", "verb": "list",
		"user": map[string]any{"username": "system:sre-break-glass:ada", "groups": []string{"system:masters", "system:authenticated"},
			"extra": map[string]any{credentialID: []string{"X509SHA256=" + fingerprint}}},
		"sourceIPs": []string{"203.0.113.9", "10.0.0.1"}, "userAgent": "kubectl/v1.35.4",
		"objectRef":                map[string]any{"resource": "pods", "namespace": "default", "name": "p", "apiVersion": "v1"},
		"responseStatus":           map[string]any{"metadata": map[string]any{}, "code": 200},
		"requestReceivedTimestamp": at.Format("2006-01-02T15:04:05.000000Z"), "stageTimestamp": "2026-03-01T08:00:00.100000Z",
		"annotations": map[string]any{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
	}
	if change != nil {
		change(event)
	}
	text, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	return text
}

func TestParseAuditEvent(t *testing.T) {
	user := func(event map[string]any) map[string]any { return event["user"].(map[string]any) }
	request := func(want string) *hostedreport.CredentialUse {
		return &hostedreport.CredentialUse{Fingerprint: fingerprint, User: "system:sre-break-glass:ada", First: at, Last: at, Addresses: []string{"10.0.0.1"}, Request: want}
	}
	tests := map[string]struct {
		reason string
		line   []byte
		want   *hostedreport.CredentialUse
	}{
		"a use": {"the address is the peer's, not one that the client claims", line(nil), request("list pods")},
		"a subresource": {"the executed command, which is in the URI, is not reported", line(func(e map[string]any) {
			e["verb"], e["requestURI"] = "create", "/api/v1/namespaces/default/pods/p/exec?command=login&command=hunter2"
			e["objectRef"] = map[string]any{"resource": "pods", "subresource": "exec", "name": "p"}
		}), request("create pods/exec")},
		"of a group": {"the group is part of the resource", line(func(e map[string]any) {
			e["objectRef"] = map[string]any{"resource": "deployments", "apiGroup": "apps"}
		}), request("list deployments.apps")},
		"discovery": {"only the known prefix of a path is reported", line(func(e map[string]any) {
			e["verb"], e["requestURI"] = "get", "/apis/apps/v1?timeout=32s"
			delete(e, "objectRef")
		}), request("get /apis")},
		"any path": {"an unknown path may contain a secret", line(func(e map[string]any) {
			e["verb"], e["requestURI"] = "get", "/hunter2"
			delete(e, "objectRef")
		}), request("get /")},
		"any resource":             {"an unknown resource may contain a secret", line(func(e map[string]any) { e["objectRef"] = map[string]any{"resource": "Hunter 2"} }), request("list ?")},
		"the control plane itself": {"its user is not a break-glass user", line(func(e map[string]any) { user(e)["username"] = "system:admin" }), nil},
		"a token": {"a token is not a certificate", line(func(e map[string]any) {
			user(e)["extra"] = map[string]any{credentialID: []string{"JTI=2c1f"}}
		}), nil},
		"an old API server": {"before 1.32 the certificate is not reported", line(func(e map[string]any) { delete(user(e), "extra") }), nil},
		"another kind":      {"other kinds are ignored", line(func(e map[string]any) { e["kind"] = "EventList" }), nil},
		"no JSON":           {"an incomplete line is ignored", line(nil)[:100], nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			use, ok := parseAuditEvent(tc.line)
			if ok != (tc.want != nil) {
				t.Fatalf("read %v as %+v: %s", ok, use, tc.reason)
			}
			if tc.want == nil {
				return
			}
			if diff := cmp.Diff(*tc.want, use); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNoSecretIsReported puts a secret into every field of an event that a client can set, and into some that an API
// server with another policy would set.
func TestNoSecretIsReported(t *testing.T) {
	const secret = "hunter2"
	report := hostedreport.CredentialReport{}
	for n, place := range []func(event map[string]any){
		func(e map[string]any) { e["userAgent"] = secret },
		func(e map[string]any) { e["requestURI"] = "/" + secret; delete(e, "objectRef") },
		func(e map[string]any) {
			e["requestURI"] = "/healthz/" + secret + "?token=" + secret
			delete(e, "objectRef")
		},
		func(e map[string]any) { e["requestURI"] = "/api/v1/namespaces/x/pods/p/exec?command=" + secret },
		func(e map[string]any) {
			e["objectRef"] = map[string]any{"resource": "secrets", "name": secret, "namespace": secret, "resourceVersion": secret, "uid": secret}
		},
		func(e map[string]any) { e["requestObject"] = map[string]any{"data": secret} },
		func(e map[string]any) {
			e["responseObject"] = map[string]any{"status": map[string]any{"token": secret}}
		},
		func(e map[string]any) { e["annotations"] = map[string]any{"authorization": "Bearer " + secret} },
		func(e map[string]any) { e["impersonatedUser"] = map[string]any{"username": secret} },
		func(e map[string]any) { e["responseStatus"] = map[string]any{"message": secret} },
		func(e map[string]any) { e["sourceIPs"] = []string{secret} },
		func(e map[string]any) { e["verb"] = strings.ToUpper(secret) },
		func(e map[string]any) { e["auditID"] = secret },
	} {
		use, ok := parseAuditEvent(line(func(e map[string]any) {
			place(e)
			e["user"].(map[string]any)["extra"] = map[string]any{credentialID: []string{fmt.Sprintf("X509SHA256=%064x", n)}, "authorization": []string{secret}}
		}))
		if !ok {
			t.Errorf("%d: an event was not read", n)
		}
		report.Note(use)
	}
	text, err := report.Encode()
	if err != nil || !strings.Contains(text, "system:sre-break-glass:ada") {
		t.Fatalf("reported %q, %v", text, err)
	}
	if strings.Contains(strings.ToLower(text), secret) {
		t.Errorf("the report contains a secret: %s", text)
	}
}

// FuzzParseAuditEvent checks that arbitrary lines, which may contain any data of clients, cause no invalid report.
func FuzzParseAuditEvent(f *testing.F) {
	f.Add(line(nil))
	f.Add([]byte(`{"kind":"Event","user":{"username":"system:sre-break-glass:","extra":{"authentication.kubernetes.io/credential-id":["X509SHA256="]}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		use, ok := parseAuditEvent(line)
		report := hostedreport.CredentialReport{}
		if report.Note(use) && !ok {
			t.Errorf("a rejected line was reported: %+v", use)
		}
		if _, err := report.Encode(); err != nil {
			t.Error(err)
		}
	})
}
