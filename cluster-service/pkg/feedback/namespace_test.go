package feedback_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

const controlPlaneNamespace = "ocm-x-demo"

// namespaceReport returns an agent's report of the namespace of a control plane, whose values are texts by name.
func namespaceReport(available string, texts map[string]string) map[string]any {
	values := []any{}
	for name, text := range texts {
		values = append(values, map[string]any{"name": name, "fieldValue": map[string]any{"type": "String", "string": text}})
	}
	return map[string]any{"resourceMeta": map[string]any{"kind": "Namespace", "name": controlPlaneNamespace},
		"conditions":     []any{map[string]any{"type": "Applied", "status": "True"}, map[string]any{"type": "Available", "status": available}},
		"statusFeedback": map[string]any{"values": values}}
}

// TestNamespaceOfControlPlane reads the namespace beside a HostedCluster. None of its values may become one of the HostedCluster.
func TestNamespaceOfControlPlane(t *testing.T) {
	const created, deleted = "2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z"
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	values := map[string]string{"uid": "n-1", "createTime": created}
	tests := map[string]struct {
		reason   string
		report   map[string]any
		want     feedback.Namespace
		deleting bool
	}{
		"Exists":       {"it exists", namespaceReport("True", values), feedback.Namespace{Name: controlPlaneNamespace, UID: "n-1", CreateTime: at}, false},
		"Terminating":  {"it has a deletion timestamp", namespaceReport("True", map[string]string{"uid": "n-1", "createTime": created, "deleteTime": deleted}), feedback.Namespace{Name: controlPlaneNamespace, UID: "n-1", CreateTime: at, DeleteTime: at.Add(time.Hour)}, true},
		"Missing":      {"agents keep the last values of an object that does not exist", namespaceReport("False", values), feedback.Namespace{Name: controlPlaneNamespace, Missing: true}, false},
		"Unread":       {"it could not be read; the last values hold", namespaceReport("Unknown", values), feedback.Namespace{Name: controlPlaneNamespace, UID: "n-1", CreateTime: at}, false},
		"Not reported": {"the agent has not read it yet", namespaceReport("True", nil), feedback.Namespace{Name: controlPlaneNamespace}, false},
		"Garbage":      {"a malformed time is absent", namespaceReport("True", map[string]string{"uid": "n-1", "deleteTime": "soon"}), feedback.Namespace{Name: controlPlaneNamespace, UID: "n-1"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, manifests := range [][]any{{tc.report, removable("HostedCluster", "True")}, {removable("HostedCluster", "True"), tc.report}} {
				got := decodeManifests(t, manifests...)
				if diff := cmp.Diff(tc.want, got.Namespace); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
				if got.UID != "u-1" || got.Missing || got.Digest != "abc" {
					t.Errorf("the HostedCluster: %+v", got)
				}
				if got.Namespace.BeingDeleted() != tc.deleting {
					t.Errorf("being deleted: %v: %s", got.Namespace.BeingDeleted(), tc.reason)
				}
			}
		})
	}
	if got := decodeManifests(t, namespaceReport("False", values)); !got.Missing || got.Namespace != (feedback.Namespace{}) {
		t.Errorf("the namespace of a HostedCluster is the main object of its work: %+v", got)
	}
}
