package server

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The outcomes of validations of tickets, in metrics.
const (
	ticketValid   = "valid"
	ticketInvalid = "invalid"
	ticketFailed  = "failed"
)

// checkTicket asks the ticket validator about the ticket of an elevation and stores the answer in the document, if the policy
// validates tickets of its class. It returns an error for a ticket that is not accepted, and if the validator does not answer, unless
// the elevation is an emergency.
func (s *Server) checkTicket(ctx context.Context, e *database.ElevationDocument) error {
	if !s.Policy.ValidatesTicket(e) {
		return nil
	}
	answer, err := s.Tickets.Validate(ctx, ticket.Question{
		Ticket: e.Actor.Ticket, Engineer: e.Actor.Name, ObjectID: e.Actor.ObjectID, Class: e.Class, Resource: e.Target.ResourceID,
	})
	now := time.Now().UTC()
	switch {
	case err != nil && e.Emergency:
		s.tickets.WithLabelValues(ticketFailed).Inc()
		e.TicketCheck = &database.ElevationTicket{Waived: apierror.As(err).Message, Time: now}
	case err != nil:
		s.tickets.WithLabelValues(ticketFailed).Inc()
		return err
	case !answer.Valid:
		s.tickets.WithLabelValues(ticketInvalid).Inc()
		return apierror.InvalidFields([]apierror.Violation{violation("ticket", "Invalid value: %q: the ticket validator does not accept it: %s", e.Actor.Ticket, answer.Reason)})
	default:
		s.tickets.WithLabelValues(ticketValid).Inc()
		e.TicketCheck = &database.ElevationTicket{Title: answer.Title, Link: answer.Link, Time: now}
	}
	return nil
}
