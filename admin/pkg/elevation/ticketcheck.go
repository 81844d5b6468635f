package elevation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

const (
	// TicketCheckInterval is the time between two questions about a ticket.
	TicketCheckInterval = time.Minute
	// MaxTicketChecks is the maximum number of tickets that one replica asks about at a time.
	MaxTicketChecks = 30
	// maxTicketEntries is the maximum number of tickets whose checks are stored.
	maxTicketEntries = 2000
)

// ClaimTickets returns the tickets that a replica asks about now, and notes them in the stored checks, so that no other replica does: those
// of active elevations that nobody has asked about for TicketCheckInterval, at most MaxTicketChecks, the longest unchecked ones
// first. It removes the checks of other tickets. A replica that stops before it asks delays the question by one interval.
func ClaimTickets(checks map[string]database.TicketCheck, active []string, now time.Time) (claimed []string) {
	due := slices.DeleteFunc(slices.Clone(active), func(ticket string) bool {
		// A time in the future is that of a replica with another clock.
		return now.Sub(checks[ticket].Asked).Abs() < TicketCheckInterval
	})
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(checks[a].Asked.Compare(checks[b].Asked), cmp.Compare(a, b))
	})
	claimed = due[:min(len(due), MaxTicketChecks)]
	maps.DeleteFunc(checks, func(ticket string, _ database.TicketCheck) bool { return !slices.Contains(active, ticket) })
	for _, ticket := range claimed {
		check, found := checks[ticket]
		if !found && len(checks) >= maxTicketEntries {
			forgetLatest(checks)
		}
		check.Asked = now
		checks[ticket] = check
	}
	return claimed
}

// forgetLatest removes the check that was claimed last. Its ticket counts as never checked.
func forgetLatest(checks map[string]database.TicketCheck) {
	latest := ""
	for ticket, check := range checks {
		if latest == "" || check.Asked.After(checks[latest].Asked) {
			latest = ticket
		}
	}
	delete(checks, latest)
}
