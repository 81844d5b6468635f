package versions_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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

// TestExamples: all values in the requests of the contract's examples are decoded, stored and encoded.
func TestExamples(t *testing.T) {
	replayed := 0
	for name, v := range versions.All() {
		all := must.Get(examples.Of(name))(t)
		for _, example := range all {
			fields, err := wire.ParseObject(example.Body())
			if err != nil || example.Method != "PUT" {
				continue
			}
			body := wire.NewBody(fields)
			var shown any
			switch kind, _, _ := strings.Cut(example.OperationID, "_"); kind {
			case "HcpOpenShiftClusters":
				shown = v.EncodeCluster(v.DecodeCluster(body, &hub.Cluster{}, true), hub.Accepted, &hub.ClusterStatus{})
			case "NodePools":
				shown = v.EncodeNodePool(v.DecodeNodePool(body, &hub.NodePool{}, true), hub.Accepted, &hub.NodePoolStatus{})
			case "ExternalAuths":
				shown = v.EncodeExternalAuth(v.DecodeExternalAuth(body, &hub.ExternalAuth{}, true), hub.Accepted, &hub.ExternalAuthStatus{})
			default:
				t.Fatalf("%s: unknown operation", example.OperationID)
			}
			replayed++
			if problems := body.Problems(); len(problems) > 0 {
				t.Errorf("%s of %s: %v", example.Name, name, problems)
			}
			var sent, got any
			must.Do(t, json.Unmarshal(example.Body(), &sent))
			must.Do(t, json.Unmarshal(text(t, shown), &got))
			for _, path := range missing(sent, got, "") {
				t.Errorf("%s of %s: %s is not in the response", example.Name, name, path)
			}
		}
	}
	if replayed < 4*6 {
		t.Errorf("only %d examples were replayed", replayed)
	}
}

// missing returns the paths of sent whose values differ in got. Empty objects are not encoded.
func missing(sent, got any, path string) (paths []string) {
	if object, ok := sent.(map[string]any); ok {
		is, _ := got.(map[string]any)
		for name, value := range object {
			paths = append(paths, missing(value, is[name], path+"."+name)...)
		}
		return paths
	}
	if !cmp.Equal(sent, got) {
		return []string{path}
	}
	return nil
}
