package database

import "time"

// TicketChecksDocument holds when admin asked whether the tickets of active elevations are still open. There is one. The replicas of
// admin share the questions through it.
type TicketChecksDocument struct {
	// Tickets holds an entry for each ticket of an active elevation that was asked about.
	Tickets map[string]TicketCheck `json:"tickets"`
}

// TicketCheck is the progress of the questions about one ticket.
type TicketCheck struct {
	// Asked is when a replica claimed the latest question, before it asked.
	Asked time.Time `json:"asked"`
	// Answered is when the ticket validator last answered; zero if it has not.
	Answered time.Time `json:"answered,omitzero"`
}

// TicketChecksKey returns the key of the document.
func TicketChecksKey() Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/ticketChecks"}
}
