// Package ticket asks a ticket system whether a ticket justifies an elevation, and later whether it is still open. The Validator is an interface, so that each
// organization connects its own system; HTTP is the implementation that admin has.
//
// The validator receives the ticket, the engineer and what the elevation is for. It never receives the reason, which may describe
// the customer.
package ticket

import "context"

// Question is what a Validator is asked.
type Question struct {
	Ticket string `json:"ticket"`
	// Engineer and ObjectID identify who requests the elevation.
	Engineer string `json:"engineer"`
	ObjectID string `json:"objectId"`
	// Class is the class of actions. Resource is the ARM resource ID of the cluster, or empty for the whole region.
	Class    string `json:"class"`
	Resource string `json:"resource,omitempty"`
}

// Answer is the answer about a ticket.
type Answer struct {
	// Valid reports whether the ticket justifies the elevation. If not, Reason states why.
	Valid  bool
	Reason string
	// Title and Link are for people. Link is an https URL, or empty.
	Title, Link string
}

// State is the answer whether a ticket is still open.
type State struct {
	// Open reports whether the ticket is open. If not, Reason states why.
	Open   bool
	Reason string
}

// Validator answers questions about tickets. An error means that it could not answer; its message names the validator. Its kind is
// Unavailable.
type Validator interface {
	// Validate answers whether a ticket justifies an elevation.
	Validate(ctx context.Context, question Question) (Answer, error)
	// Check answers whether a ticket that justified elevations is still open. The answer is the same for all elevations of the ticket.
	Check(ctx context.Context, ticket string) (State, error)
}
