package command

import (
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// TestAccessRecordsNameEngineersOnlyToEngineers lists the accesses to a cluster, in the form for engineers and in that for customers.
func TestAccessRecordsNameEngineersOnlyToEngineers(t *testing.T) {
	a := newSREs(t)
	start := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	access := func(name string) adminv1.AccessList {
		return adminv1.AccessList{Value: []adminv1.Access{{Name: "e", Type: adminv1.AccessType, Properties: adminv1.AccessProperties{Engineer: adminv1.AccessPerson{Alias: "engineer-1", Name: name}, Class: adminv1.BreakGlassAccess, Scope: "cluster",
			State: adminv1.ElevationEnded, Reason: "etcd has no leader", Ticket: "INC-42", StartTime: start, EndTime: start.Add(time.Hour), Approval: &adminv1.AccessApproval{Approver: adminv1.AccessPerson{Alias: "engineer-2", Name: name}},
			Activity: []adminv1.AccessActivity{{Verb: "list", Resource: "pods", Count: 12}}}}}}
	}
	a.shown["/clusters/demo/accesses?pageSize=50"] = access("alice@example.com")
	a.shown["/clusters/demo/accesses?format=arm&pageSize=50"] = access("")
	out, err := a.hcpctl(t, "access", "records", "demo")
	for _, want := range []string{"2026-11-24T12:00:00Z", "2026-11-24T13:00:00Z", "alice@example.com", "break-glass", "INC-42", "etcd has no leader", "12 list pods"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	}
	out, err = a.hcpctl(t, "access", "records", "demo", "--for-customer")
	if err != nil || !strings.Contains(out, `"engineer-1"`) || !strings.Contains(out, "hcpOpenShiftClusters/accessRecords") || strings.Contains(out, "example.com") {
		t.Errorf("got %q, %v", out, err)
	}
}
