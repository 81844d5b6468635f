package elevation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestClaimTickets checks which tickets a replica asks about, and what it notes.
func TestClaimTickets(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	ago := func(d time.Duration) database.TicketCheck {
		return database.TicketCheck{Asked: now.Add(-d), Answered: now.Add(-d - time.Hour)}
	}
	for reason, tc := range map[string]struct {
		checks  map[string]database.TicketCheck
		active  []string
		claimed []string
		left    []string
	}{
		"the longest unchecked first":            {map[string]database.TicketCheck{"a": ago(time.Minute), "b": ago(time.Hour)}, []string{"a", "b", "c"}, []string{"c", "b", "a"}, []string{"a", "b", "c"}},
		"not before the interval is over":        {map[string]database.TicketCheck{"a": ago(59 * time.Second)}, []string{"a"}, nil, []string{"a"}},
		"only those of active elevations":        {map[string]database.TicketCheck{"a": ago(time.Hour), "b": ago(time.Second)}, []string{"b"}, nil, []string{"b"}},
		"another clock, a little ahead":          {map[string]database.TicketCheck{"a": ago(-30 * time.Second)}, []string{"a"}, nil, []string{"a"}},
		"another clock, which was far too early": {map[string]database.TicketCheck{"a": ago(-time.Hour)}, []string{"a"}, []string{"a"}, []string{"a"}},
	} {
		t.Run(reason, func(t *testing.T) {
			before := tc.checks["b"].Answered
			claimed := ClaimTickets(tc.checks, tc.active, now)
			var left []string
			for ticket, check := range tc.checks {
				left = append(left, ticket)
				if slices.Contains(claimed, ticket) != check.Asked.Equal(now) {
					t.Errorf("ticket %s was claimed at %s", ticket, check.Asked)
				}
			}
			slices.Sort(left)
			if diff := cmp.Diff([][]string{tc.claimed, tc.left}, [][]string{slices.Clip(slices.Clone(claimed)), left}); len(claimed)+len(tc.claimed) > 0 && diff != "" {
				t.Errorf("claimed and stored (-want +got):\n%s", diff)
			}
			if check, found := tc.checks["b"]; found && !check.Answered.Equal(before) {
				t.Error("a question changed the time of the last answer")
			}
		})
	}
}

// TestTicketChecksAreBounded checks the limits of one round and of the document, and that all tickets have their turn.
func TestTicketChecksAreBounded(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	checks := map[string]database.TicketCheck{}
	var active []string
	for i := range maxTicketEntries + 50 {
		active = append(active, fmt.Sprintf("INC-%04d", i))
	}
	asked := map[string]bool{}
	for round := range len(active)/MaxTicketChecks + 1 {
		claimed := ClaimTickets(checks, active, now.Add(time.Duration(round)*time.Second))
		if len(claimed) > MaxTicketChecks || len(checks) > maxTicketEntries {
			t.Fatalf("round %d: %d questions, %d stored", round, len(claimed), len(checks))
		}
		for _, ticket := range claimed {
			asked[ticket] = true
		}
	}
	if len(asked) < maxTicketEntries {
		t.Errorf("%d of %d tickets had their turn", len(asked), len(active))
	}
}
