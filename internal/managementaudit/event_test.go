package managementaudit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// line returns an event as the API server of the pinned release writes it, with a change.
func line(id string, change func(event map[string]any)) []byte {
	e := map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": id, "stage": "ResponseComplete",
		"requestURI": "/api/v1/namespaces/default/configmaps?token=hunter2", "verb": "create",
		"user":      map[string]any{"username": "ada@example.com", "groups": []string{"system:masters"}},
		"sourceIPs": []string{"10.0.0.1"}, "userAgent": "kubectl hunter2",
		"objectRef":                map[string]any{"resource": "configmaps", "namespace": "default", "name": "settings", "apiVersion": "v1"},
		"responseStatus":           map[string]any{"metadata": map[string]any{}, "code": 201},
		"requestReceivedTimestamp": "2026-03-01T08:00:00.000000Z", "stageTimestamp": "2026-03-01T08:00:00.100000Z",
	}
	if change != nil {
		change(e)
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return text
}

func TestEvents(t *testing.T) {
	record := func(change func(r *audit.Record)) *audit.Record {
		r := &audit.Record{Person: audit.Person{Name: "ada@example.com"}, Action: "kubernetes.create", Outcome: audit.Succeeded, Request: "id",
			Object: audit.Object{Kind: "configmaps", ID: "mgmt-1/default/settings"}}
		change(r)
		return r
	}
	object := func(e map[string]any) map[string]any { return e["objectRef"].(map[string]any) }
	status := func(code int) map[string]any { return map[string]any{"code": code, "message": "hunter2"} }
	for name, c := range map[string]struct {
		change func(e map[string]any)
		want   *audit.Record
	}{
		"a write":      {nil, record(func(*audit.Record) {})},
		"a plain read": {func(e map[string]any) { e["verb"] = "get"; e["responseStatus"] = status(200) }, nil},
		"a read of a Secret": {func(e map[string]any) { e["verb"] = "get"; object(e)["resource"] = "secrets" },
			record(func(r *audit.Record) { r.Action, r.Object.Kind = "kubernetes.get", "secrets" })},
		"a list of Secrets": {func(e map[string]any) { e["verb"] = "list"; e["objectRef"] = map[string]any{"resource": "secrets"} },
			record(func(r *audit.Record) {
				r.Action, r.Object = "kubernetes.list", audit.Object{Kind: "secrets", ID: "mgmt-1"}
			})},
		"a read that is refused": {func(e map[string]any) { e["verb"] = "get"; e["responseStatus"] = status(403) },
			record(func(r *audit.Record) { r.Action, r.Outcome, r.Code = "kubernetes.get", audit.Refused, "403" })},
		"a write that fails": {func(e map[string]any) { e["responseStatus"] = status(409) },
			record(func(r *audit.Record) { r.Outcome, r.Code = audit.Failed, "409" })},
		"a read as somebody else": {func(e map[string]any) {
			e["verb"] = "get"
			e["impersonatedUser"] = map[string]any{"username": "grace@example.com"}
		}, record(func(r *audit.Record) { r.Action, r.Person.As = "kubernetes.get", "grace@example.com" })},
		"the begin of a command": {func(e map[string]any) {
			e["verb"], e["stage"] = "get", "ResponseStarted"
			e["requestURI"] = "/api/v1/namespaces/default/pods/p/exec?command=hunter2"
			e["objectRef"] = map[string]any{"resource": "pods", "subresource": "exec", "namespace": "default", "name": "p"}
		}, record(func(r *audit.Record) {
			r.Action, r.Outcome, r.Object = "kubernetes.get", audit.Started, audit.Object{Kind: "pods/exec", ID: "mgmt-1/default/p"}
		})},
		"a kind of a group": {func(e map[string]any) {
			object(e)["resource"], object(e)["apiGroup"] = "clusterroles", "rbac.authorization.k8s.io"
		}, record(func(r *audit.Record) { r.Object.Kind = "clusterroles.rbac.authorization.k8s.io" })},
		"a write without an object": {func(e map[string]any) { delete(e, "objectRef") },
			record(func(r *audit.Record) { r.Object = audit.Object{Kind: "managementCluster", ID: "mgmt-1"} })},
	} {
		t.Run(name, func(t *testing.T) {
			e := must.Get(parse(line("id", c.change)))(t)
			if e.recorded() != (c.want != nil) {
				t.Fatalf("it has a record: %v", e.recorded())
			}
			if c.want == nil {
				return
			}
			if diff := cmp.Diff(*c.want, e.record("mgmt-1")); diff != "" {
				t.Error(diff)
			}
			if text, _ := json.Marshal(e.record("mgmt-1")); strings.Contains(string(text), "hunter2") {
				t.Errorf("the record contains a secret: %s", text)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(line("id", nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		if e, err := parse(text); err == nil && e.recorded() {
			if _, err := audit.EncodeRecord(e.record("mgmt-1")); err != nil {
				t.Error(err)
			}
		}
	})
}
