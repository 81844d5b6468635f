package elevation_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

var start = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func person(name string, roles ...adminv1.Role) elevation.Person {
	return elevation.Person{Name: name + "@example.com", ObjectID: name, TenantID: "tenant", Roles: roles}
}

// alice requests; bob and carol may approve; olga is an operator.
func people() map[string]elevation.Person {
	all := []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass}
	twin := person("alice", all...)
	twin.TenantID = "another"
	return map[string]elevation.Person{"alice": person("alice", all...), "bob": person("bob", all...), "carol": person("carol", all...),
		"olga": person("olga", adminv1.Reader, adminv1.Operator), "twin": twin, "alice without roles": person("alice", adminv1.Reader)}
}

func policy() *elevation.Policy {
	class := func(approval elevation.ApprovalRule) elevation.ClassPolicy {
		return elevation.ClassPolicy{Ticket: elevation.TicketRequired, Approval: approval, ApproverRole: adminv1.BreakGlass, MaxDuration: elevation.Duration{Duration: 2 * time.Hour}}
	}
	return &elevation.Policy{RequestLifetime: elevation.Duration{Duration: time.Hour}, Classes: map[adminv1.AccessClass]elevation.ClassPolicy{
		adminv1.Operate: class(elevation.ApprovalNever), adminv1.Recover: class(elevation.ApprovalRegion), adminv1.BreakGlassAccess: class(elevation.ApprovalAlways)}}
}

// requested returns a new request of alice for an hour.
func requested(emergency bool) *database.ElevationDocument {
	e := &database.ElevationDocument{ElevationID: "e", Class: string(adminv1.BreakGlassAccess), DurationSeconds: 3600, Emergency: emergency,
		Target: database.AdminTarget{Kind: database.TargetRegion, ID: database.TargetRegion}, Actor: database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "break-glass"}}
	policy().Begin(e, start)
	return e
}

// step applies a transition by name: approve, deny, activate, end or review.
func step(e *database.ElevationDocument, p *elevation.Policy, verb, who string, now time.Time) (bool, error) {
	by := people()[who]
	switch verb {
	case "approve", "deny":
		return p.Decide(e, by, verb == "approve", "agreed in the call", now)
	case "activate":
		return p.Activate(e, by, now)
	case "end":
		return elevation.End(e, by, now)
	case "review":
		return p.Review(e, by, true, "it was urgent", now)
	}
	panic(verb)
}

// TestTransitions is the table of the life cycle: each verb in each state, by the person who may and by those who may not.
func TestTransitions(t *testing.T) {
	// path lists "verb person" at minute 1, 2 …; then verb by who is applied at minute at.
	const same, changed = "same", "changed"
	for name, tc := range map[string]struct {
		reason    string
		emergency bool
		path      []string
		verb, who string
		at        time.Duration
		want      string
		state     adminv1.ElevationState
	}{
		"approve":                        {"the second person approves", false, nil, "approve", "bob", 5, changed, adminv1.ElevationApproved},
		"approve own":                    {"nobody approves their own request", false, nil, "approve", "alice", 5, "Forbidden", adminv1.ElevationRequested},
		"approve as the same of tenants": {"an object ID is unique in its tenant only", false, nil, "approve", "twin", 5, changed, adminv1.ElevationApproved},
		"approve as operator":            {"the policy names the role", false, nil, "approve", "olga", 5, "Forbidden", adminv1.ElevationRequested},
		"approve twice":                  {"a lost response is repeated", false, []string{"approve bob"}, "approve", "bob", 5, same, adminv1.ElevationApproved},
		"approve after another":          {"one decision is enough", false, []string{"approve bob"}, "approve", "carol", 5, "Conflict", adminv1.ElevationApproved},
		"approve expired":                {"a request does not wait forever", false, nil, "approve", "bob", 60, "Conflict", adminv1.ElevationExpired},
		"approve denied":                 {"a decision is final", false, []string{"deny bob"}, "approve", "carol", 5, "Conflict", adminv1.ElevationDenied},
		"approve withdrawn":              {"the requester has changed their mind", false, []string{"end alice"}, "approve", "bob", 5, "Conflict", adminv1.ElevationEnded},
		"approve active":                 {"it is decided", false, []string{"approve bob", "activate alice"}, "approve", "carol", 5, "Conflict", adminv1.ElevationActive},
		"approve emergency":              {"nothing waits", true, nil, "approve", "bob", 5, "Conflict", adminv1.ElevationActive},
		"deny":                           {"the second person denies", false, nil, "deny", "bob", 5, changed, adminv1.ElevationDenied},
		"deny own":                       {"that is a withdrawal", false, nil, "deny", "alice", 5, "Forbidden", adminv1.ElevationRequested},
		"deny twice":                     {"a lost response is repeated", false, []string{"deny bob"}, "deny", "bob", 5, same, adminv1.ElevationDenied},
		"deny approved":                  {"end it instead", false, []string{"approve bob"}, "deny", "bob", 5, "Conflict", adminv1.ElevationApproved},
		"activate":                       {"its time begins", false, []string{"approve bob"}, "activate", "alice", 30, changed, adminv1.ElevationActive},
		"activate requested":             {"nobody has approved", false, nil, "activate", "alice", 5, "Conflict", adminv1.ElevationRequested},
		"activate denied":                {"somebody has denied", false, []string{"deny bob"}, "activate", "alice", 5, "Conflict", adminv1.ElevationDenied},
		"activate by another":            {"it is the requester's", false, []string{"approve bob"}, "activate", "bob", 5, "Forbidden", adminv1.ElevationApproved},
		"activate without the role":      {"groups may change", false, []string{"approve bob"}, "activate", "alice without roles", 5, "Forbidden", adminv1.ElevationApproved},
		"activate expired":               {"an approval does not wait forever", false, []string{"approve bob"}, "activate", "alice", 60, "Conflict", adminv1.ElevationExpired},
		"activate twice":                 {"a lost response is repeated", false, []string{"approve bob", "activate alice"}, "activate", "alice", 5, same, adminv1.ElevationActive},
		"activate after its end":         {"an end is final", false, []string{"approve bob", "activate alice", "end alice"}, "activate", "alice", 5, "Conflict", adminv1.ElevationEnded},
		"end own":                        {"everybody may", false, []string{"approve bob", "activate alice"}, "end", "alice", 5, changed, adminv1.ElevationEnded},
		"end of another":                 {"break-glass may", false, []string{"approve bob", "activate alice"}, "end", "carol", 5, changed, adminv1.ElevationEnded},
		"end of another as operator":     {"an operator may not", false, []string{"approve bob", "activate alice"}, "end", "olga", 5, "Forbidden", adminv1.ElevationActive},
		"end twice":                      {"a lost response is repeated", false, []string{"end alice"}, "end", "alice", 5, same, adminv1.ElevationEnded},
		"end denied":                     {"nothing is open", false, []string{"deny bob"}, "end", "alice", 5, same, adminv1.ElevationDenied},
		"end expired":                    {"time was faster", false, []string{"approve bob", "activate alice"}, "end", "alice", 70, same, adminv1.ElevationExpired},
		"review":                         {"the second person reviews", true, []string{"end alice"}, "review", "bob", 5, changed, adminv1.ElevationEnded},
		"review expired":                 {"it need not be ended", true, nil, "review", "bob", 70, changed, adminv1.ElevationExpired},
		"review own":                     {"nobody reviews their own emergency", true, []string{"end alice"}, "review", "alice", 5, "Forbidden", adminv1.ElevationEnded},
		"review as operator":             {"the policy names the role", true, []string{"end alice"}, "review", "olga", 5, "Forbidden", adminv1.ElevationEnded},
		"review active":                  {"more may happen", true, nil, "review", "bob", 5, "Conflict", adminv1.ElevationActive},
		"review twice":                   {"a lost response is repeated", true, []string{"end alice", "review bob"}, "review", "bob", 5, same, adminv1.ElevationEnded},
		"review after another":           {"it is closed", true, []string{"end alice", "review bob"}, "review", "carol", 5, "Conflict", adminv1.ElevationEnded},
		"review without an emergency":    {"an approval was the review", false, []string{"end alice"}, "review", "bob", 5, "Conflict", adminv1.ElevationEnded},
	} {
		t.Run(name, func(t *testing.T) {
			e := requested(tc.emergency)
			for minute, text := range tc.path {
				verb, who, _ := strings.Cut(text, " ")
				if did, err := step(e, policy(), verb, who, start.Add(time.Duration(minute+1)*time.Minute)); !did || err != nil {
					t.Fatalf("%s: %v, %v", text, did, err)
				}
			}
			now := start.Add(tc.at * time.Minute)
			before := *e
			did, err := step(e, policy(), tc.verb, tc.who, now)
			got := map[bool]string{true: changed, false: same}[did]
			if err != nil {
				got = apierror.KindOf(err).ARMCode()
			}
			if got != tc.want || elevation.StateAt(e, now) != tc.state {
				t.Errorf("%s: %s (%v) and %s, want %s and %s", tc.reason, got, err, elevation.StateAt(e, now), tc.want, tc.state)
			}
			if !did && !reflect.DeepEqual(*e, before) {
				t.Errorf("%s: it was changed to %+v", tc.reason, e)
			}
		})
	}
}

// TestDurationBeginsWithActivation checks that waiting for an approval costs nothing of the duration.
func TestDurationBeginsWithActivation(t *testing.T) {
	e, p := requested(false), policy()
	for n, text := range []string{"approve bob", "activate alice"} {
		verb, who, _ := strings.Cut(text, " ")
		if _, err := step(e, p, verb, who, start.Add(time.Duration(n)*20*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if want := start.Add(80 * time.Minute); !e.ExpirationTime.Equal(want) || !e.Active(want.Add(-time.Second)) || e.Active(want) {
		t.Errorf("it expires at %s, want %s", e.ExpirationTime, want)
	}
}

// TestActivationFollowsThePolicy checks that a policy that was changed after the request limits it.
func TestActivationFollowsThePolicy(t *testing.T) {
	e, p := requested(false), policy()
	if _, err := step(e, p, "approve", "bob", start); err != nil {
		t.Fatal(err)
	}
	class := p.Classes[adminv1.BreakGlassAccess]
	class.MaxDuration.Duration = 30 * time.Minute
	p.Classes[adminv1.BreakGlassAccess] = class
	if _, err := step(e, p, "activate", "alice", start); apierror.KindOf(err) != apierror.FailedPrecondition {
		t.Errorf("an hour was activated where 30m are permitted: %v", err)
	}
}

// TestDocumentsWithoutStateAreNotActive checks documents of releases without approvals.
func TestDocumentsWithoutStateAreNotActive(t *testing.T) {
	e := &database.ElevationDocument{StartTime: start, ExpirationTime: start.Add(time.Hour)}
	if e.Active(start) || elevation.StateAt(e, start) != adminv1.ElevationExpired || elevation.Open(e, start) {
		t.Errorf("it is %s", elevation.StateAt(e, start))
	}
}
