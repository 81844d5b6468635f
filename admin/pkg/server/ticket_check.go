package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

const (
	// ticketRound is the average time between two rounds of questions of one replica.
	ticketRound = elevation.TicketCheckInterval / 2
	// concurrentTicketChecks is the number of questions at a time.
	concurrentTicketChecks = 4
	// validatorObjectID identifies the ticket validator in audit records and intents. It has not the form of an object ID of Entra.
	validatorObjectID = "ticket-validator"
)

// CheckTickets asks the ticket validator until ctx ends whether the tickets of active elevations are still open, and ends the elevations
// of a ticket that is closed. The replicas share the questions. An elevation whose ticket cannot be checked continues.
func (s *Server) CheckTickets(ctx context.Context) {
	if s.Tickets == nil {
		return
	}
	for backoff.Sleep(ctx, backoff.Jitter(ticketRound)) == nil {
		if err := s.CheckTicketsOnce(ctx, time.Now().UTC()); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "checking the tickets of active elevations failed; retrying", logkey.Error, err)
		}
	}
}

// CheckTicketsOnce is one round of questions, about the tickets that are due at a time. All questions about one ticket are one question.
func (s *Server) CheckTicketsOnce(ctx context.Context, now time.Time) error {
	tickets := map[string][]elevation.ActiveElevation{}
	for _, e := range s.Elevations.Active(now) {
		if s.Policy.Classes[e.Class].Ticket == elevation.TicketValidated && e.Ticket != "" {
			tickets[e.Ticket] = append(tickets[e.Ticket], e)
		}
	}
	if len(tickets) == 0 {
		s.oldestTicketCheck.Set(0)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, elevation.TicketCheckInterval)
	defer cancel()
	checks, claimed, err := s.claimTickets(ctx, slices.Collect(maps.Keys(tickets)), now)
	if err != nil {
		return err
	}
	states, failure := s.askTickets(ctx, claimed)
	oldest := oldestCheck(tickets, checks, states, now)
	s.oldestTicketCheck.Set(float64(oldest.Unix()))
	if failure != nil {
		s.Log.WarnContext(ctx, "the ticket validator did not answer; elevations continue with unchecked tickets", logkey.Count, len(claimed)-len(states), logkey.Since, oldest.Format(time.RFC3339), logkey.Error, failure)
	}
	var failed error
	for id, state := range states {
		if state.Open {
			continue
		}
		for _, e := range tickets[id] {
			if err := s.endForTicket(ctx, e.ID, state.Reason); err != nil && failed == nil {
				failed = fmt.Errorf("ending elevation %s, whose ticket is closed: %w", e.ID, err)
			}
		}
	}
	if err := s.storeTicketAnswers(ctx, states, now); err != nil && failed == nil {
		failed = err
	}
	return failed
}

// claimTickets returns the stored checks, and the tickets that this replica asks about now.
func (s *Server) claimTickets(ctx context.Context, active []string, now time.Time) (checks map[string]database.TicketCheck, claimed []string, err error) {
	err = s.updateTicketChecks(ctx, func(stored map[string]database.TicketCheck) bool {
		checks, claimed = stored, elevation.ClaimTickets(stored, active, now)
		return len(claimed) > 0
	})
	return checks, claimed, err
}

// storeTicketAnswers stores that the validator answered about tickets.
func (s *Server) storeTicketAnswers(ctx context.Context, answered map[string]ticket.State, now time.Time) error {
	if len(answered) == 0 {
		return nil
	}
	return s.updateTicketChecks(ctx, func(stored map[string]database.TicketCheck) (changed bool) {
		for id := range answered {
			// The check of a ticket without active elevations may have been removed.
			if check, found := stored[id]; found {
				check.Answered = now
				stored[id], changed = check, true
			}
		}
		return changed
	})
}

// updateTicketChecks calls change with the stored checks and stores what it returns true for. It calls change again after a lost race.
func (s *Server) updateTicketChecks(ctx context.Context, change func(checks map[string]database.TicketCheck) bool) error {
	return database.Retry(ctx, func(ctx context.Context) error {
		key, batch := database.TicketChecksKey(), s.Database.NewBatch(database.AdminPartition)
		item, err := s.Database.TicketChecks().Find(ctx, key)
		if err != nil {
			return err
		}
		if item == nil {
			checks := map[string]database.TicketCheck{}
			if !change(checks) {
				return nil
			}
			database.Create(batch, s.Database.TicketChecks(), key, database.TicketChecksDocument{Tickets: checks})
			return batch.Commit(ctx)
		}
		if item.Value.Tickets == nil {
			item.Value.Tickets = map[string]database.TicketCheck{}
		}
		if !change(item.Value.Tickets) {
			return nil
		}
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
}

// askTickets returns the states of tickets, and the last failure. A ticket about which the validator did not answer has no state.
func (s *Server) askTickets(ctx context.Context, ids []string) (states map[string]ticket.State, failure error) {
	states = map[string]ticket.State{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(concurrentTicketChecks)
	for _, id := range ids {
		group.Go(func() error {
			state, err := s.Tickets.Check(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				s.tickets.WithLabelValues(ticketFailed).Inc()
				failure = err
				return nil
			case state.Open:
				s.tickets.WithLabelValues(ticketValid).Inc()
			default:
				s.tickets.WithLabelValues(ticketInvalid).Inc()
			}
			states[id] = state
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return states, failure
}

// oldestCheck returns since when the ticket of an active elevation is not checked: the oldest of the last answers about the tickets.
func oldestCheck(tickets map[string][]elevation.ActiveElevation, checks map[string]database.TicketCheck, states map[string]ticket.State, now time.Time) time.Time {
	oldest := now
	for id, elevations := range tickets {
		last := checks[id].Answered
		if _, answered := states[id]; answered {
			last = now
		}
		for _, e := range elevations {
			// An elevation that began after the last answer was checked when it began.
			if at := latest(last, e.Checked); at.Before(oldest) {
				oldest = at
			}
		}
	}
	return oldest
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endForTicket ends an elevation because its ticket is closed, and revokes its credentials, as an engineer who ends it would. It does
// nothing if the elevation has ended. The elevation continues if its end cannot be audited.
func (s *Server) endForTicket(ctx context.Context, id, cause string) error {
	find := func(ctx context.Context) (*database.Item[database.ElevationDocument], error) {
		return s.Database.Elevations().Get(ctx, database.ElevationKey(id))
	}
	var e *database.ElevationDocument
	err := elevation.Retry(ctx, func(ctx context.Context) error {
		item, err := find(ctx)
		if err != nil {
			return err
		}
		if e = &item.Value; !e.Active(time.Now()) {
			return nil
		}
		return s.Seals.Verify(e)
	})
	if err != nil || !e.Active(time.Now()) {
		return err
	}
	reason := "the ticket " + e.Actor.Ticket + " is closed"
	if cause != "" {
		reason = truncate(reason + ": " + cause)
	}
	by := ender{name: elevation.TicketValidator, objectID: validatorObjectID, request: uuid.NewString()}
	record := audit.Record{
		Person: audit.Person{Name: by.name, ObjectID: by.objectID}, Action: adminv1.ActionElevationEnd,
		Object: audit.Object{Kind: "elevation", ID: e.ElevationID, ResourceID: e.Target.ResourceID, Cluster: e.Target.ClusterUID},
		Reason: reason, Ticket: e.Actor.Ticket, Operation: e.ElevationID, Emergency: e.Emergency, Request: by.request, Trace: tracing.Reference(ctx), Outcome: audit.Accepted,
	}
	begun, err := s.Audit.Begin(ctx, record)
	if err != nil {
		return err
	}
	change, err := s.commitElevation(ctx, by, find, func(e *database.ElevationDocument, now time.Time) (bool, error) {
		if !elevation.EndForTicket(e, reason, now) {
			return false, apierror.New(apierror.Conflict, "The elevation %s has ended.", e.ElevationID)
		}
		return true, nil
	})
	status := http.StatusOK
	if err != nil {
		kind := apierror.KindOf(err)
		record.Outcome, record.Code, status = audit.Failed, kind.ARMCode(), kind.HTTPStatus()
	}
	s.logRecord(ctx, record, status)
	for _, o := range change.revocations {
		revocation := record
		revocation.Operation, revocation.Object, revocation.Reason = o.OperationID, objectOf(o.Target), o.Actor.Reason
		s.logRecord(ctx, revocation, status)
	}
	if endErr := begun.End(ctx, record); endErr != nil && err == nil {
		err = endErr
	}
	return err
}
