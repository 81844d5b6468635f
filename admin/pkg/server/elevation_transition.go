package server

import (
	"context"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// elevationWait limits a request that waits for another state of an elevation. It is shorter than requestTimeout.
const elevationWait = 25 * time.Second

// auditElevation sets the elevation as the object of the audit record.
func (rq *request) auditElevation(e *database.ElevationDocument) {
	rq.audited.object = audit.Object{Kind: "elevation", ID: e.ElevationID, ResourceID: e.Target.ResourceID, Cluster: e.Target.ClusterUID}
	rq.audited.operation, rq.audited.emergency, rq.audited.ticket = e.ElevationID, e.Emergency, e.Actor.Ticket
	if rq.audited.reason == "" {
		rq.audited.reason = e.Actor.Reason
	}
}

// elevationInPath returns the elevation that the path names, which becomes the object of the audit record.
func (s *Server) elevationInPath(ctx context.Context, rq *request) (*database.Item[database.ElevationDocument], error) {
	id := rq.http.PathValue("elevation")
	item, err := s.Database.Elevations().Find(ctx, database.ElevationKey(id))
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		return nil, apierror.New(apierror.NotFound, "Elevation '%s' does not exist.", id)
	}
	rq.auditElevation(&item.Value)
	return item, nil
}

// changeElevation applies a transition to the elevation in the path and commits it; see commitElevation.
func (s *Server) changeElevation(ctx context.Context, rq *request, transition transition) (any, error) {
	find := func(ctx context.Context) (*database.Item[database.ElevationDocument], error) {
		return s.elevationInPath(ctx, rq)
	}
	change, err := s.commitElevation(ctx, rq.ender(), find, transition)
	if err != nil {
		return nil, err
	}
	rq.audited.revocations = change.revocations
	return elevationResponse(change.after), nil
}

// transition changes an elevation at a time, and reports whether it did.
type transition func(e *database.ElevationDocument, now time.Time) (changed bool, err error)

// elevationChange is the result of a transition. revocations are the operations that the end of an elevation stored.
type elevationChange struct {
	after       *database.ElevationDocument
	changed     bool
	revocations []database.AdminOperationDocument
}

// commitElevation applies a transition to an elevation and commits it, unless the transition changes nothing. A lost race is decided
// again. An elevation that admin did not write has no transitions. The same batch requests the revocation of the credentials of an
// elevation that was ended, in the name of by.
func (s *Server) commitElevation(ctx context.Context, by ender, find func(ctx context.Context) (*database.Item[database.ElevationDocument], error), transition transition) (change elevationChange, err error) {
	err = elevation.Retry(ctx, func(ctx context.Context) error {
		item, err := find(ctx)
		if err != nil {
			return err
		}
		if err := s.Seals.Verify(&item.Value); err != nil {
			return err
		}
		change = elevationChange{after: &item.Value}
		if change.changed, err = transition(&item.Value, time.Now().UTC()); err != nil || !change.changed {
			return err
		}
		if change.revocations, err = s.revocations(by, &item.Value); err != nil {
			return err
		}
		if err := s.Seals.Seal(&item.Value); err != nil {
			return err
		}
		batch := s.Database.NewBatch(database.AdminPartition)
		database.Replace(batch, item)
		for _, o := range change.revocations {
			database.Create(batch, s.Database.AdminOperations(), database.AdminOperationKey(o.OperationID), o)
		}
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		s.Seals.Stored(&item.Value)
		return nil
	})
	if err != nil {
		return elevationChange{}, err
	}
	if change.changed && change.after.EndTime != nil {
		s.endSessionsOf(ctx, by.name, change.after)
	}
	return change, nil
}

// decideElevation returns the handler that approves or denies a request.
func (s *Server) decideElevation(approved bool) handler {
	return func(ctx context.Context, rq *request) (any, error) {
		var asked adminv1.DecisionRequest
		if err := rq.decodeText(&asked, &asked.Reason, "reason"); err != nil {
			return nil, err
		}
		return s.changeElevation(ctx, rq, func(e *database.ElevationDocument, now time.Time) (bool, error) {
			return s.Policy.Decide(e, rq.person(), approved, asked.Reason, now)
		})
	}
}

func (s *Server) activateElevation(ctx context.Context, rq *request) (any, error) {
	if err := rq.noBody(); err != nil {
		return nil, err
	}
	return s.changeElevation(ctx, rq, func(e *database.ElevationDocument, now time.Time) (bool, error) {
		if needed, err := s.Policy.CheckActivation(e, rq.person(), now); err != nil || !needed {
			return false, err
		}
		// The ticket may have been closed since the request.
		if err := s.checkTicket(ctx, e); err != nil {
			return false, err
		}
		return s.Policy.Activate(e, rq.person(), time.Now().UTC())
	})
}

func (s *Server) reviewElevation(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.ReviewRequest
	if err := rq.decodeText(&asked, &asked.Comment, "comment"); err != nil {
		return nil, err
	}
	return s.changeElevation(ctx, rq, func(e *database.ElevationDocument, now time.Time) (bool, error) {
		return s.Policy.Review(e, rq.person(), asked.Justified, asked.Comment, now)
	})
}

func (s *Server) endElevation(ctx context.Context, rq *request) (any, error) {
	return s.changeElevation(ctx, rq, func(e *database.ElevationDocument, now time.Time) (bool, error) {
		return elevation.End(e, rq.person(), now)
	})
}

// decodeText decodes a body with one text of a second person, which becomes the reason of the audit record.
func (rq *request) decodeText(into any, text *string, field string) error {
	if err := rq.decodeBody(into); err != nil {
		return err
	}
	*text = strings.TrimSpace(*text)
	rq.audited.reason = truncate(*text)
	var violations []apierror.Violation
	checkText(*text, field, func(field, format string, args ...any) {
		violations = append(violations, violation(field, format, args...))
	})
	return apierror.InvalidFields(violations)
}

// getElevation returns an elevation. With the parameter while, it waits until the elevation is in another state.
func (s *Server) getElevation(ctx context.Context, rq *request) (any, error) {
	while, err := rq.elevationState("while", adminv1.ElevationRequested, adminv1.ElevationApproved, adminv1.ElevationActive)
	if err != nil {
		return nil, err
	}
	if while == "" {
		item, err := s.elevationInPath(ctx, rq)
		if err != nil {
			return nil, err
		}
		return s.showElevation(ctx, &item.Value), nil
	}
	changes, end, err := s.Elevations.Subscribe(rq.http.PathValue("elevation"))
	if err != nil {
		return nil, err
	}
	defer end()
	limit := time.NewTimer(elevationWait)
	defer limit.Stop()
	for over := false; ; {
		item, err := s.elevationInPath(ctx, rq)
		if err != nil {
			return nil, err
		}
		if over || elevation.StateAt(&item.Value, time.Now()) != while {
			return s.showElevation(ctx, &item.Value), nil
		}
		select {
		case <-changes:
		case <-limit.C:
			over = true
		case <-s.Elevations.Released():
			over = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
