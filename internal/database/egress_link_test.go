package database

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// TestAssignEgressLink decides about assignments of a link that has a cluster, and of one that was removed.
func TestAssignEgressLink(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	at := func(before time.Duration) *time.Time { removed := now.Add(-before); return &removed }
	used := EgressLinkDocument{LinkID: "7", Generation: 3, ClusterUID: "a", ResourceID: "/a", Hosts: []string{"a.example"}, OperationID: "first", RequestTime: now.Add(-time.Hour)}
	removed := func(before time.Duration) EgressLinkDocument {
		l := used
		l.RemovedTime, l.Hosts = at(before), nil
		return l
	}
	next := func(cluster, operation string, requested time.Duration) EgressLinkDocument {
		return EgressLinkDocument{ClusterUID: cluster, ResourceID: "/" + cluster, Hosts: []string{"b.example"}, OperationID: operation, RequestTime: now.Add(-requested)}
	}
	assigned := func(cluster string, generation int64) EgressLinkDocument {
		l := next(cluster, "second", 0)
		l.LinkID, l.Generation = "7", generation
		return l
	}
	for reason, tc := range map[string]struct {
		link, next EgressLinkDocument
		want       EgressLinkDocument
		changed    bool
		err        apierror.Kind
	}{
		"other hosts of its cluster":             {used, next("a", "second", 0), assigned("a", 3), true, apierror.Internal},
		"a repeated operation":                   {used, next("a", "first", time.Hour), used, false, apierror.Internal},
		"an operation that was requested before": {used, next("a", "older", 2*time.Hour), used, false, apierror.Conflict},
		"another cluster":                        {used, next("b", "second", 0), used, false, apierror.Conflict},
		"its cluster after a removal":            {removed(0), next("a", "second", 0), assigned("a", 4), true, apierror.Internal},
		"another cluster in the quarantine":      {removed(EgressLinkQuarantine - time.Second), next("b", "second", 0), removed(EgressLinkQuarantine - time.Second), false, apierror.Conflict},
		"another cluster after the quarantine":   {removed(EgressLinkQuarantine), next("b", "second", 0), assigned("b", 4), true, apierror.Internal},
	} {
		got := tc.link
		changed, err := got.Assign(tc.next, now)
		if changed != tc.changed || (err == nil) != (tc.err == apierror.Internal) || err != nil && apierror.As(err).Kind != tc.err {
			t.Errorf("%s: changed %t, %v", reason, changed, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}

// TestQuarantineOutlastsStaleReplicas checks the order of the bounds, with time for clocks that differ.
func TestQuarantineOutlastsStaleReplicas(t *testing.T) {
	if EgressLinkQuarantine < EgressMaxStaleness+5*time.Minute || TombstoneTTL < 2*EgressLinkQuarantine {
		t.Errorf("a replica serves a link for %s after its removal, the quarantine is %s, and the document is kept for %s", EgressMaxStaleness, EgressLinkQuarantine, TombstoneTTL)
	}
}

func TestParseEgressLinkID(t *testing.T) {
	for text, want := range map[string]uint32{"1": 1, "4294967295": 4294967295, "536872312": 536872312, "0": 0, "": 0, "01": 0, "+1": 0, "4294967296": 0, "1 ": 0, "0x1": 0, "1_0": 0, "-1": 0, "١": 0} {
		if got, err := ParseEgressLinkID(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
}
