package elevation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const valid = `requestLifetime: 4h
classes:
  operate: {ticket: optional, approval: never, approverRole: operator, maxDuration: 8h}
  recover: {ticket: validated, approval: region, approverRole: break-glass, maxDuration: 4h}
  break-glass: {ticket: validated, approval: always, approverRole: break-glass, maxDuration: 2h}
`

func load(t *testing.T, content string) (*elevation.Policy, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return elevation.LoadPolicy(path)
}

// TestPolicyIsValidated checks that an error names the field.
func TestPolicyIsValidated(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"no lifetime":       {"requestLifetime: 4h", "requestLifetime: 0s", "requestLifetime"},
		"long lifetime":     {"requestLifetime: 4h", "requestLifetime: 25h", "requestLifetime"},
		"no duration":       {"requestLifetime: 4h", "requestLifetime: soon", `"soon" is not a duration`},
		"unknown field":     {"requestLifetime", "lifetime", "lifetime"},
		"unknown class":     {"  operate:", "  operator: {}\n  operate:", "classes.operator"},
		"missing class":     {"  operate: {ticket: optional, approval: never, approverRole: operator, maxDuration: 8h}\n", "", "classes.operate: missing"},
		"unknown ticket":    {"ticket: optional", "ticket: maybe", "classes.operate.ticket"},
		"unknown approval":  {"approval: never", `approval: ""`, "classes.operate.approval"},
		"no approver":       {"approverRole: operator", "approverRole: reader", "classes.operate.approverRole"},
		"long":              {"maxDuration: 8h", "maxDuration: 9h", "classes.operate.maxDuration"},
		"included approval": {"approval: always", "approval: never", "classes.break-glass.approval"},
		"included ticket":   {"break-glass: {ticket: validated", "break-glass: {ticket: required", "classes.break-glass.ticket"},
		"empty":             {valid, "", "EOF"},
	} {
		if _, err := load(t, strings.Replace(valid, tc.old, tc.new, 1)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it to name %s", name, err, tc.want)
		}
	}
}

// TestApprovalDependsOnObject checks which requests wait for a second person.
func TestApprovalDependsOnObject(t *testing.T) {
	p, err := load(t, valid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		class   adminv1.AccessClass
		target  string
		waits   bool
		emerged bool
	}{
		{adminv1.Operate, database.TargetRegion, false, false},
		{adminv1.Recover, database.TargetRegion, true, false},
		{adminv1.Recover, "cluster", false, false},
		{adminv1.BreakGlassAccess, "cluster", true, false},
		{adminv1.BreakGlassAccess, "cluster", false, true},
		{"unknown", "cluster", true, false},
	} {
		e := &database.ElevationDocument{Class: string(tc.class), Target: database.AdminTarget{Kind: tc.target}, DurationSeconds: 60, Emergency: tc.emerged}
		p.Begin(e, time.Now())
		if waits := e.State == database.ElevationRequested; waits != tc.waits {
			t.Errorf("%s of %s, emergency %t: waits %t, want %t", tc.class, tc.target, tc.emerged, waits, tc.waits)
		}
	}
}
