package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// TestReasonElevatesForOneCommand checks that a command with a reason and a ticket creates an elevation to the role that it needs
// and ends it afterwards, also if admin rejects the request; without them it creates none.
func TestReasonElevatesForOneCommand(t *testing.T) {
	a := newSREs(t)
	const pool, full = "POST /clusters/demo/node-pools/np/scale", "POST /clusters/full/node-pools/np/scale"
	a.results[pool] = adminv1.ScaleResult{ARMOperationID: "a", Generation: 4}
	a.refused[full] = "It is being changed."
	because := []string{"--reason", "the batch is late", "--ticket", "INC-1"}
	scale := func(args ...string) []string { return append([]string{"nodepool", "scale", "--as-sre"}, args...) }
	const elevate, end, five = "POST /elevations operate: the batch is late (INC-1)", "DELETE /elevations/e", ` {"replicas":5}`
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
		says   string
	}{
		"reason":    {"the role is taken and given back", append(scale("demo", "np", "--replicas", "5"), because...), []string{elevate, pool + five, end}, ""},
		"refused":   {"also when it was for nothing", append(scale("full", "np", "--replicas", "5"), because...), []string{elevate, full + five, end}, "It is being changed."},
		"none":      {"whoever has elevated says no more", scale("demo", "np", "--min", "1", "--max", "3"), []string{pool + ` {"autoScaling":{"min":1,"max":3}}`}, ""},
		"no ticket": {"both are wanted", scale("demo", "np", "--replicas", "5", "--reason", "the batch is late"), nil, "ticket"},
		"no size":   {"a size is wanted", scale("demo", "np"), nil, "replicas"},
		"no min":    {"a bound alone is none", scale("demo", "np", "--max", "3"), nil, "min"},
		"drift":     {"and an action on the region", append([]string{"drift", "reconcile"}, because...), []string{elevate, "POST /drift/reconcile", end}, ""},
		"orphan": {"each command takes the role that it needs", append([]string{"orphan", "delete", "b"}, because...),
			[]string{strings.Replace(elevate, "operate", "recover", 1), "DELETE /orphans/b", end}, ""},
		"Azure orphan": {"the class is that of the action", append([]string{"azure-orphan", "delete", "b"}, because...),
			[]string{strings.Replace(elevate, "operate", "recover", 1), "DELETE /azure-orphans/b", end}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a.asked = nil
			_, err := a.hcpctl(t, tc.args...)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want it to say %q", tc.reason, err, tc.says)
			}
			if !slices.Equal(a.asked, tc.want) {
				t.Errorf("%s: admin was asked %q, want %q", tc.reason, a.asked, tc.want)
			}
		})
	}
	if out, err := a.hcpctl(t, scale("demo", "np", "--replicas", "5", "--no-wait")...); err != nil || !strings.Contains(out, "operation o") {
		t.Errorf("it says %q: %v", out, err)
	}
	// An operation that has not ended needs its elevation.
	a.asked, a.pending = nil, map[string]bool{pool: true}
	if _, err := a.hcpctl(t, append(scale("demo", "np", "--replicas", "5", "--no-wait"), because...)...); err != nil || !slices.Equal(a.asked, []string{elevate, pool + five}) {
		t.Errorf("without waiting: admin was asked %q: %v", a.asked, err)
	}
	a.Close()
	if _, err := a.hcpctl(t, scale("demo", "np", "--replicas", "5")...); err == nil || !strings.Contains(err.Error(), "admin") || !strings.Contains(err.Error(), "hcpctl region") {
		t.Errorf("while admin is away: %v", err)
	}
}
