package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The limits of a request for an elevation.
const (
	minReason = 8
	maxReason = 1024
	maxTicket = 128
	// maxOpen is the maximum number of elevations of a caller that are active or can become so.
	maxOpen = 20
)

// person returns the caller as one who changes elevations.
func (rq *request) person() elevation.Person {
	return elevation.Person{Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Roles: rq.roles, CheckClaims: rq.checkClaims}
}

// elevationFor returns the newest active elevation of the caller that permits actions of a class on the cluster in the path. On a
// path without a cluster, only an elevation for the whole region permits them. The caller's token must have the claims that the role
// of the class requires. An elevation that somebody else than admin has changed or set back permits nothing, and hides no other one: the error names it
// if no other one permits the actions.
func (s *Server) elevationFor(ctx context.Context, rq *request, class adminv1.AccessClass) (permitting *database.ElevationDocument, err error) {
	if err := rq.checkClaims(class.Role()); err != nil {
		return nil, err
	}
	err = elevation.Retry(ctx, func(ctx context.Context) error {
		permitting, err = s.permittingElevation(ctx, rq, class)
		return err
	})
	return permitting, err
}

func (s *Server) permittingElevation(ctx context.Context, rq *request, class adminv1.AccessClass) (*database.ElevationDocument, error) {
	open, err := s.openElevations(ctx, rq)
	if err != nil {
		return nil, err
	}
	now, cluster := time.Now(), ""
	permitting := slices.DeleteFunc(open, func(e *database.ElevationDocument) bool {
		return !e.Active(now) || !adminv1.AccessClass(e.Class).Includes(class)
	})
	limited := slices.ContainsFunc(permitting, func(e *database.ElevationDocument) bool { return e.Target.Kind != database.TargetRegion })
	if text := rq.http.PathValue("cluster"); text != "" && limited {
		found, err := s.finder.One(ctx, text)
		if err != nil {
			return nil, err
		}
		cluster = found.UID
	}
	var refused error
	for _, e := range permitting {
		if !adminaction.Covers(e, cluster) {
			continue
		}
		err := s.Seals.Verify(e)
		if err == nil {
			return e, nil
		}
		s.Log.WarnContext(ctx, "leaving out an elevation that admin did not write", logkey.OperationID, e.ElevationID, logkey.Error, err)
		if refused == nil {
			refused = err
		}
	}
	if refused != nil {
		return nil, refused
	}
	if limited {
		return nil, apierror.New(apierror.PermissionDenied, "Your active elevations for the class %s are limited to other clusters. Request one for this object, or for the whole region: `hcpctl access request`.", class)
	}
	return nil, apierror.New(apierror.PermissionDenied, "This requires an active elevation for the class %s: use --reason and --ticket of hcpctl, or `hcpctl access request` (POST %s/elevations).", class, adminv1.Root)
}

// openElevations returns the elevations of the caller that are active or can become so, newest first.
func (s *Server) openElevations(ctx context.Context, rq *request) ([]*database.ElevationDocument, error) {
	filter := database.AdminFilter{Kinds: []database.Kind{database.ElevationKind}, ObjectID: rq.caller.ObjectID, ActiveOnly: true, Since: elevation.OldestOpen(time.Now())}
	records, _, err := s.Database.AdminRecords(ctx, filter, "", 100)
	if err != nil {
		return nil, err
	}
	var open []*database.ElevationDocument
	for _, r := range records {
		if e := &r.Elevation.Value; elevation.Open(e, time.Now()) && e.Actor.TenantID == rq.caller.TenantID {
			open = append(open, e)
		}
	}
	return open, nil
}

func (s *Server) createElevation(ctx context.Context, rq *request) (any, error) {
	if err := rq.readIdempotencyKey(); err != nil {
		return nil, err
	}
	if before, err := s.previousElevation(ctx, rq); before != nil || err != nil {
		return before, err
	}
	var asked adminv1.ElevationRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	// Surrounding space must not count towards the limits of length.
	asked.Reason, asked.Ticket = strings.TrimSpace(asked.Reason), strings.TrimSpace(asked.Ticket)
	rq.audited = auditFields{object: audit.Object{Kind: "accessClass", ID: truncate(string(asked.Class))}, reason: truncate(asked.Reason), ticket: truncate(asked.Ticket), emergency: asked.Emergency}
	duration, err := s.checkElevation(rq, asked)
	if err != nil {
		return nil, err
	}
	if err := rq.checkClaims(asked.Class.Role()); err != nil {
		return nil, err
	}
	target := database.AdminTarget{Kind: database.TargetRegion, ID: database.TargetRegion}
	if asked.Cluster != "" {
		cluster, err := s.finder.One(ctx, asked.Cluster)
		if err != nil {
			return nil, err
		}
		target = database.AdminTarget{Kind: "cluster", ID: cluster.UID, ResourceID: cluster.ResourceID, ClusterUID: cluster.UID}
	}
	open, err := s.openElevations(ctx, rq)
	if err != nil {
		return nil, err
	}
	open = slices.DeleteFunc(open, func(e *database.ElevationDocument) bool { return s.Seals.Verify(e) != nil }) // the caller cannot end those
	if len(open) >= maxOpen {
		return nil, apierror.New(apierror.Throttled, "You have %d elevations that are active or wait; end one of them.", len(open)).WithRetryAfter(time.Minute)
	}
	id, now := rq.operation, time.Now().UTC()
	if id == "" {
		id = uuid.NewString()
	}
	document := database.ElevationDocument{
		ElevationID: id, SortKey: database.AdminSortKey(now, id), RequestDigest: rq.digest, Class: string(asked.Class), Target: target,
		DurationSeconds: int64(duration / time.Second), Emergency: asked.Emergency,
		Actor: database.AdminActor{
			Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Role: string(asked.Class.Role()), ElevationID: id,
			Reason: asked.Reason, Ticket: asked.Ticket,
		},
	}
	if err := s.checkTicket(ctx, &document); err != nil {
		return nil, err
	}
	s.Policy.Begin(&document, time.Now().UTC())
	if err := s.Seals.Seal(&document); err != nil {
		return nil, err
	}
	batch := s.Database.NewBatch(database.AdminPartition)
	database.Create(batch, s.Database.Elevations(), database.ElevationKey(id), document)
	err = batch.Commit(ctx)
	if race, lost := database.AsWriteConflict(err); lost && race.Exists && rq.operation != "" {
		// The same request arrived twice concurrently.
		if before, findErr := s.previousElevation(ctx, rq); before != nil || findErr != nil {
			return before, findErr
		}
	}
	if err != nil {
		return nil, err
	}
	rq.auditElevation(&document)
	return elevationResponse(&document), nil
}

// previousElevation returns the elevation that the same request created before; nil if there is none, or the request has no key.
func (s *Server) previousElevation(ctx context.Context, rq *request) (any, error) {
	if rq.operation == "" {
		return nil, nil
	}
	item, err := s.Database.Elevations().Find(ctx, database.ElevationKey(rq.operation))
	if err != nil || item == nil || item.Removed != nil {
		return nil, err
	}
	if item.Value.RequestDigest != rq.digest {
		return nil, apierror.New(apierror.Conflict, "The key was used for another request, which created elevation %s.", rq.operation).WithTarget(adminv1.IdempotencyKey)
	}
	rq.auditElevation(&item.Value)
	return elevationResponse(&item.Value), nil
}

// checkElevation validates a request and returns the duration.
func (s *Server) checkElevation(rq *request, asked adminv1.ElevationRequest) (time.Duration, error) {
	var violations []apierror.Violation
	fail := func(field, format string, args ...any) {
		violations = append(violations, violation(field, format, args...))
	}
	policy, known := s.Policy.Classes[asked.Class]
	switch role := asked.Class.Role(); {
	case !known:
		fail("class", "Unsupported value: %q: supported values: %q", asked.Class, adminv1.AccessClasses())
	case !slices.Contains(rq.roles, role):
		return 0, apierror.New(apierror.PermissionDenied, "The class %s requires the role %s, which none of your groups gives.", asked.Class, role)
	}
	checkText(asked.Reason, "reason", fail)
	if n := utf8.RuneCountInString(asked.Ticket); n > maxTicket {
		fail("ticket", "Invalid value: must be at most %d characters", maxTicket)
	} else if n == 0 && policy.Ticket != elevation.TicketOptional {
		fail("ticket", "Required value")
	}
	limit := elevation.MaxDuration
	if known {
		limit = policy.MaxDuration.Duration
	}
	duration, err := time.ParseDuration(asked.Duration)
	if err != nil || duration < elevation.MinDuration || duration > limit {
		fail("duration", "Invalid value: %q: must be a duration from %s to %s, for example 30m", asked.Duration, elevation.MinDuration, limit)
	}
	return duration, apierror.InvalidFields(violations)
}

func violation(field, format string, args ...any) apierror.Violation {
	return apierror.Violation{Field: field, Message: fmt.Sprintf(format, args...)}
}

// checkText calls fail for a text that is too short to state something, or too long.
func checkText(text, field string, fail func(field, format string, args ...any)) {
	if n := utf8.RuneCountInString(text); n < minReason || n > maxReason {
		fail(field, "Invalid value: must be %d to %d characters", minReason, maxReason)
	}
}

func (s *Server) listElevations(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	active, err := rq.flag("active")
	if err != nil {
		return nil, err
	}
	open, err := rq.flag("open")
	if err != nil {
		return nil, err
	}
	unreviewed, err := rq.flag("unreviewed")
	if err != nil {
		return nil, err
	}
	state, err := rq.elevationState("state", adminv1.ElevationRequested, adminv1.ElevationApproved, adminv1.ElevationDenied, adminv1.ElevationActive, adminv1.ElevationEnded)
	if err != nil {
		return nil, err
	}
	records, next, err := s.Database.AdminRecords(ctx, database.AdminFilter{
		Kinds: []database.Kind{database.ElevationKind}, ObjectID: rq.http.URL.Query().Get("actor"), ActiveOnly: active || open, State: string(state), UnreviewedOnly: unreviewed,
	}, token, size)
	if err != nil {
		return nil, err
	}
	list := adminv1.ElevationList{Items: []adminv1.Elevation{}, NextPageToken: next}
	for _, r := range records {
		// Expired elevations still have their stored state.
		e := elevationResponse(&r.Elevation.Value)
		if (e.Active || !active) && (!open || elevation.Open(&r.Elevation.Value, time.Now())) && (state == "" || e.State == state) {
			list.Items = append(list.Items, e)
		}
	}
	var credentials []adminv1.ElevationCredentials
	for _, e := range list.Items {
		credentials = append(credentials, e.Credentials...) // they share the revocations
	}
	s.showRevocations(ctx, credentials, false)
	return list, nil
}

// elevationState returns the value of a parameter that is a state, or empty.
func (rq *request) elevationState(name string, supported ...adminv1.ElevationState) (adminv1.ElevationState, error) {
	text := rq.http.URL.Query().Get(name)
	if text != "" && !slices.Contains(supported, adminv1.ElevationState(text)) {
		return "", apierror.New(apierror.InvalidParameter, "Unsupported value: '%s': supported values: %s.", text, supported).WithTarget(name)
	}
	return adminv1.ElevationState(text), nil
}

func elevationResponse(e *database.ElevationDocument) adminv1.Elevation {
	now := time.Now()
	shown := adminv1.Elevation{
		ID: e.ElevationID, State: elevation.StateAt(e, now), Name: e.Actor.Name, ObjectID: e.Actor.ObjectID, Class: adminv1.AccessClass(e.Class), Role: adminv1.Role(e.Actor.Role),
		Reason: e.Actor.Reason, Ticket: e.Actor.Ticket, Duration: (time.Duration(e.DurationSeconds) * time.Second).String(), RequestTime: e.RequestTime,
		RequestExpirationTime: e.RequestExpirationTime, Emergency: e.Emergency, EndTime: e.EndTime, EndedBy: e.EndedBy, EndReason: e.EndReason, Active: e.Active(now),
	}
	if e.Target.ClusterUID != "" {
		shown.Cluster = &adminv1.ElevationCluster{UID: e.Target.ClusterUID, ResourceID: e.Target.ResourceID}
	}
	if !e.StartTime.IsZero() {
		shown.StartTime, shown.ExpirationTime = &e.StartTime, &e.ExpirationTime
	}
	shown.Credentials = credentialsResponse(e, now)
	if c := e.TicketCheck; c != nil {
		shown.TicketCheck = &adminv1.TicketCheck{Title: c.Title, Link: c.Link, Waived: c.Waived, Time: c.Time}
	}
	if d := e.Decision; d != nil {
		shown.Decision = &adminv1.ElevationDecision{Approved: d.Approved, Name: d.Name, ObjectID: d.ObjectID, Reason: d.Reason, Time: d.Time}
	}
	if r := e.Review; r != nil {
		shown.Review = &adminv1.ElevationReview{Justified: r.Justified, Name: r.Name, ObjectID: r.ObjectID, Comment: r.Comment, Time: r.Time}
	}
	return shown
}
