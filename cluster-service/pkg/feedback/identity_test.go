package feedback_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

func removable(kind, available string, conditions ...any) map[string]any {
	return map[string]any{"resourceMeta": map[string]any{"kind": kind, "namespace": "ocm-x", "name": "demo"},
		"conditions": append([]any{map[string]any{"type": "Available", "status": available}}, conditions...),
		"statusFeedback": map[string]any{"values": []any{
			map[string]any{"name": "uid", "fieldValue": map[string]any{"type": "String", "string": "u-1"}},
			map[string]any{"name": "digest", "fieldValue": map[string]any{"type": "String", "string": "abc"}}}}}
}

// TestMissingObjectHasNoValues reads the status of an object that was deleted. Agents keep its last values.
func TestMissingObjectHasNoValues(t *testing.T) {
	for _, kind := range []string{"HostedCluster", "NodePool", "Namespace"} {
		if got := decodeManifests(t, removable(kind, "False")); got.Digest != "" || got.UID != "" || !got.Missing {
			t.Errorf("%s: read %+v", kind, got)
		}
	}
	if got := decodeManifests(t, removable("HostedCluster", "True")); got.Digest != "abc" || got.UID != "u-1" || got.Missing {
		t.Errorf("an existing object: read %+v", got)
	}
	if got := decodeManifests(t, removable("HostedCluster", "Unknown")); got.Digest != "abc" || got.Missing {
		t.Errorf("an object that could not be read: read %+v", got)
	}
}

func TestRemovals(t *testing.T) {
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	removed := map[string]any{"type": "Removed", "status": "True", "reason": "Deleted", "message": "UID u-0", "lastTransitionTime": at}
	missing := map[string]any{"type": "AppliedAgain", "status": "False", "lastTransitionTime": at}
	again := map[string]any{"type": "AppliedAgain", "status": "True", "lastTransitionTime": at.Add(time.Minute)}
	want := feedback.Removal{Kind: "Secret", Namespace: "ocm-x", Name: "demo", UID: "u-0", Reason: "Deleted", Time: at}
	if diff := cmp.Diff([]feedback.Removal{want}, decodeManifests(t, removable("Secret", "False", removed, missing)).Removals); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want.AppliedAgain = at.Add(time.Minute)
	if diff := cmp.Diff([]feedback.Removal{want}, decodeManifests(t, removable("Secret", "True", removed, again)).Removals); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := decodeManifests(t, removable("Secret", "True")).Removals; got != nil {
		t.Errorf("without a removal: read %+v", got)
	}
}
