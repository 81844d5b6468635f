package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The limits of an elevation.
const (
	minDuration = time.Minute
	maxDuration = 8 * time.Hour
	minReason   = 8
	maxReason   = 1024
	maxTicket   = 128
	// maxActive is the maximum number of active elevations of a caller.
	maxActive = 20
)

// elevationTo returns the newest active elevation of the caller that includes a role.
func (s *Server) elevationTo(ctx context.Context, rq *request, role adminv1.Role) (*database.ElevationDocument, error) {
	active, err := s.activeElevations(ctx, rq.caller.ObjectID)
	if err != nil {
		return nil, err
	}
	for _, item := range active {
		if access.Includes(adminv1.Role(item.Value.Actor.Role), role) {
			return &item.Value, nil
		}
	}
	return nil, apierror.New(apierror.PermissionDenied, "This requires an active elevation to the role %s: use --reason and --ticket of hcpctl, or `hcpctl elevate` (POST %s/elevations).", role, adminv1.Root)
}

// activeElevations returns the active elevations of a caller, newest first.
func (s *Server) activeElevations(ctx context.Context, objectID string) ([]*database.Item[database.ElevationDocument], error) {
	records, _, err := s.Database.AdminRecords(ctx, database.AdminFilter{Kinds: []database.Kind{database.ElevationKind}, ObjectID: objectID, ActiveOnly: true}, "", 100)
	if err != nil {
		return nil, err
	}
	var active []*database.Item[database.ElevationDocument]
	for _, r := range records {
		if r.Elevation.Value.Active(time.Now()) {
			active = append(active, r.Elevation)
		}
	}
	return active, nil
}

func (s *Server) createElevation(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.ElevationRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	// Surrounding space must not count towards the limits of length.
	asked.Reason, asked.Ticket = strings.TrimSpace(asked.Reason), strings.TrimSpace(asked.Ticket)
	rq.audited = auditFields{object: audit.Object{Kind: "role", ID: string(asked.Role)}, reason: truncate(asked.Reason), ticket: truncate(asked.Ticket)}
	duration, err := rq.checkElevation(asked)
	if err != nil {
		return nil, err
	}
	active, err := s.activeElevations(ctx, rq.caller.ObjectID)
	if err != nil {
		return nil, err
	}
	if len(active) >= maxActive {
		return nil, apierror.New(apierror.Throttled, "You have %d active elevations; end one of them.", len(active)).WithRetryAfter(time.Minute)
	}
	id, now := uuid.NewString(), time.Now().UTC()
	document := database.ElevationDocument{
		ElevationID: id, SortKey: database.AdminSortKey(now, id), StartTime: now, ExpirationTime: now.Add(duration),
		Actor: database.AdminActor{
			Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Role: string(asked.Role), ElevationID: id,
			Reason: asked.Reason, Ticket: asked.Ticket,
		},
	}
	batch := s.Database.NewBatch(database.AdminPartition)
	database.Create(batch, s.Database.Elevations(), database.ElevationKey(id), document)
	if err := batch.Commit(ctx); err != nil {
		return nil, err
	}
	rq.audited.operation = id
	return elevationResponse(&document), nil
}

// checkElevation validates a request and returns the duration.
func (rq *request) checkElevation(asked adminv1.ElevationRequest) (time.Duration, error) {
	var violations []apierror.Violation
	fail := func(field, format string, args ...any) {
		violations = append(violations, apierror.Violation{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case !access.Known(asked.Role) || asked.Role == adminv1.Reader:
		fail("role", "Unsupported value: %q: supported values: %q, %q", asked.Role, adminv1.Operator, adminv1.BreakGlass)
	case !slices.Contains(rq.roles, asked.Role):
		return 0, apierror.New(apierror.PermissionDenied, "None of your groups gives the role %s.", asked.Role)
	}
	if n := utf8.RuneCountInString(asked.Reason); n < minReason || n > maxReason {
		fail("reason", "Invalid value: must be %d to %d characters", minReason, maxReason)
	}
	if n := utf8.RuneCountInString(asked.Ticket); n < 1 || n > maxTicket {
		fail("ticket", "Invalid value: must be 1 to %d characters", maxTicket)
	}
	duration, err := time.ParseDuration(asked.Duration)
	if err != nil || duration < minDuration || duration > maxDuration {
		fail("duration", "Invalid value: %q: must be a duration from %s to %s, for example 30m", asked.Duration, minDuration, maxDuration)
	}
	return duration, apierror.InvalidFields(violations)
}

func (s *Server) listElevations(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	query := rq.http.URL.Query()
	only, err := rq.flag("active")
	if err != nil {
		return nil, err
	}
	records, next, err := s.Database.AdminRecords(ctx, database.AdminFilter{
		Kinds: []database.Kind{database.ElevationKind}, ObjectID: query.Get("actor"), ActiveOnly: only,
	}, token, size)
	if err != nil {
		return nil, err
	}
	list := adminv1.ElevationList{Items: []adminv1.Elevation{}, NextPageToken: next}
	for _, r := range records {
		if e := elevationResponse(&r.Elevation.Value); e.Active || !only {
			list.Items = append(list.Items, e)
		}
	}
	return list, nil
}

func (s *Server) endElevation(ctx context.Context, rq *request) (any, error) {
	id := rq.http.PathValue("elevation")
	var ended adminv1.Elevation
	err := database.Retry(ctx, func(ctx context.Context) error {
		item, err := s.Database.Elevations().Find(ctx, database.ElevationKey(id))
		if err != nil {
			return err
		}
		if item == nil || item.Removed != nil {
			return apierror.New(apierror.NotFound, "Elevation '%s' does not exist.", id)
		}
		e := &item.Value
		rq.audited = auditFields{object: audit.Object{Kind: "elevation", ID: id}, reason: e.Actor.Reason, ticket: e.Actor.Ticket, operation: id}
		if e.Actor.ObjectID != rq.caller.ObjectID && !slices.Contains(rq.roles, adminv1.BreakGlass) {
			return apierror.New(apierror.PermissionDenied, "Ending the elevation of another caller requires the role %s.", adminv1.BreakGlass)
		}
		if now := time.Now().UTC(); e.Active(now) {
			e.EndTime, e.EndedBy = &now, rq.caller.Name
			batch := s.Database.NewBatch(database.AdminPartition)
			database.Replace(batch, item)
			if err := batch.Commit(ctx); err != nil {
				return err
			}
		}
		ended = elevationResponse(e)
		return nil
	})
	return ended, err
}

func elevationResponse(e *database.ElevationDocument) adminv1.Elevation {
	return adminv1.Elevation{
		ID: e.ElevationID, Name: e.Actor.Name, ObjectID: e.Actor.ObjectID, Role: adminv1.Role(e.Actor.Role), Reason: e.Actor.Reason, Ticket: e.Actor.Ticket,
		StartTime: e.StartTime, ExpirationTime: e.ExpirationTime, EndTime: e.EndTime, EndedBy: e.EndedBy, Active: e.Active(time.Now()),
	}
}
