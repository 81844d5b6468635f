package contract

import (
	"strings"
	"testing"
	"time"
)

func TestParsePause(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text := func(s string) *string { return &s }
	cases := map[string]struct {
		reason string
		until  *string
		want   Pause
		bad    bool
	}{
		"Unset":  {reason: "nothing is paused"},
		"Empty":  {reason: "an empty string means not paused", until: text("")},
		"False":  {reason: "explicitly not paused", until: text("false")},
		"True":   {reason: "until the field is removed", until: text("true"), want: Pause{Active: true, Message: "Reconciliation paused until field removed"}},
		"Future": {reason: "paused until the time", until: text("2026-01-02T04:04:05Z"), want: Pause{Active: true, Left: time.Hour, Message: "Reconciliation paused until: 2026-01-02T04:04:05Z"}},
		"Past":   {reason: "the time has passed", until: text("2026-01-02T02:04:05Z")},
		"Bad":    {reason: "neither a time nor a boolean", until: text("tomorrow"), bad: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePause(c.until, now)
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("%s: %+v, %v", c.reason, got, err)
			}
		})
	}
}

func TestParseFaults(t *testing.T) {
	faults, err := ParseFaults(map[string]string{FaultAnnotation: " etcd-quorum-loss, nonsense ,degraded,"})
	if !faults.Has(FaultEtcdQuorumLoss) || !faults.Has(FaultDegraded) || len(faults) != 2 {
		t.Errorf("faults %v", faults)
	}
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error does not name the unknown fault: %v", err)
	}
	if faults, err := ParseFaults(nil); len(faults) != 0 || err != nil {
		t.Errorf("%v, %v", faults, err)
	}
}

func TestControlPlaneNamespace(t *testing.T) {
	// 63 characters is the limit of a namespace, and the longest names reach it exactly.
	got := ControlPlaneNamespace("ocm-arohcpprod-"+strings.Repeat("a", 32), strings.Repeat("b", 15))
	if len(got) != 63 {
		t.Errorf("%s has %d characters", got, len(got))
	}
	if got := ControlPlaneNamespace("ns", "a.b"); got != "ns-a-b" {
		t.Errorf("%s", got)
	}
}
