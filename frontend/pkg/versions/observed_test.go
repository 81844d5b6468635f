package versions_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
)

// TestConditions: each version encodes the observed conditions in its own form.
func TestConditions(t *testing.T) {
	since := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	condition := func(kind, status string) hub.Condition {
		return hub.Condition{Type: kind, Status: status, Reason: "AsExpected", LastTransitionTime: since}
	}
	shown := func(kind, status string) any {
		return map[string]any{"type": kind, "status": status, "reason": "AsExpected", "message": "", "lastTransitionTime": "2026-03-02T10:00:00Z"}
	}
	observed := []hub.Condition{condition("Progressing", "False"), condition("ReachedFleet", "True"), condition("Available", "True"), condition("Degraded", "False"), condition("LogsDelivered", "True"), condition("RequirementsValid", "True")}
	all := map[string]any{"conditions": []any{shown("Progressing", "False"), shown("Available", "True"), shown("Degraded", "False"), shown("LogsDelivered", "True"), shown("RequirementsValid", "True")}}

	cases := map[string]struct {
		reason              string
		version             string
		conditions          []hub.Condition
		cluster, pool, auth any
	}{
		"first":  {"versions without a status show no condition", "2024-06-10-preview", observed, nil, nil, nil},
		"second": {"versions without a status show no condition", "2025-12-23-preview", observed, nil, nil, nil},
		"all":    {"all that customers know, of every resource", "2026-06-30-preview", observed, all, all, all},
		"newest": {"as in the newest", "2026-09-01-preview", observed, all, all, all},
		"none":   {"a status without a condition is left out", "2026-09-01-preview", observed[1:2], nil, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := versions.All()[tc.version]
			of := func(encoded any, field string) any {
				properties, _ := shownProperties(t, encoded).(map[string]any)
				return properties[field]
			}
			auth := v.EncodeExternalAuth(&hub.ExternalAuth{}, hub.Succeeded, &hub.ExternalAuthStatus{Conditions: tc.conditions})
			got := []any{
				of(v.EncodeCluster(&hub.Cluster{}, hub.Succeeded, &hub.ClusterStatus{Conditions: tc.conditions}), "status"),
				of(v.EncodeNodePool(&hub.NodePool{}, hub.Succeeded, &hub.NodePoolStatus{Conditions: tc.conditions}), "status"),
				of(auth, "status"), of(auth, "condition"),
			}
			if diff := cmp.Diff([]any{tc.cluster, tc.pool, tc.auth, nil}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
