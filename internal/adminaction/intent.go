package adminaction

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// NewIntent returns the intent of an accepted operation, to be signed by admin. It is valid until the end of the elevation,
// and for at most intent.MaxValidity after now. roles are the roles that the engineer's groups give.
func NewIntent(o *database.AdminOperationDocument, roles []string, elevation *database.ElevationDocument, now time.Time) (*intent.Intent, error) {
	request, err := RequestOf(o)
	if err != nil {
		return nil, err
	}
	parameters, err := intent.DigestJSON(o.Parameters)
	if err != nil {
		return nil, err
	}
	end := elevation.ExpirationTime.UTC().Truncate(time.Second)
	i := &intent.Intent{
		OperationID: o.OperationID, ObjectID: o.Actor.ObjectID, TenantID: o.Actor.TenantID, Name: o.Actor.Name, Roles: roles,
		Elevation: intent.Elevation{ID: elevation.ElevationID, Role: elevation.Actor.Role, ExpiresAt: end, Emergency: elevation.Emergency},
		Reason:    o.Actor.Reason, Ticket: o.Actor.Ticket, Action: o.Action, Target: targetOf(o), Parameters: parameters,
		IssuedAt: now.UTC().Truncate(time.Second), ExpiresAt: end,
	}
	if limit := i.IssuedAt.Add(intent.MaxValidity); limit.Before(end) {
		i.ExpiresAt = limit
	}
	if !i.ExpiresAt.After(now) {
		return nil, apierror.New(apierror.PermissionDenied, "Your elevation ends now. Elevate again, then repeat the request.")
	}
	if request != nil {
		if i.Call, err = intent.NewCall(request.Method, request.Message); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func targetOf(o *database.AdminOperationDocument) intent.Target {
	return intent.Target{Kind: o.Target.Kind, ID: o.Target.ID, ResourceID: o.Target.ResourceID, ClusterUID: o.Target.ClusterUID}
}

// Check returns an error unless a verified intent is for the operation that a document describes.
func Check(i *intent.Intent, o *database.AdminOperationDocument) error {
	switch {
	case i.OperationID != o.OperationID:
		return intent.Mismatch("operation")
	case i.Action != o.Action:
		return intent.Mismatch("action")
	case i.Target != targetOf(o):
		return intent.Mismatch("target")
	case !i.AllowsParameters(o.Parameters):
		return intent.Mismatch("set of parameters")
	}
	return nil
}

// ActorOf returns the engineer that a verified intent names.
func ActorOf(i *intent.Intent) database.AdminActor {
	return database.AdminActor{Name: i.Name, ObjectID: i.ObjectID, TenantID: i.TenantID, Role: i.Elevation.Role, ElevationID: i.Elevation.ID,
		Reason: i.Reason, Ticket: i.Ticket}
}

// CheckElevation returns an error unless the elevation of an intent still gives its role at a time. elevation is nil if it
// does not exist. An action that this release does not have is not compared with the class: nothing executes it.
//
// ActionElevationEnd is not compared with the elevation, which it ended: admin's signature is enough, so that whoever can change the
// elevation cannot prevent the revocation of its credentials.
func CheckElevation(i *intent.Intent, elevation *database.ElevationDocument, now time.Time) error {
	switch {
	case i.Action == adminv1.ActionElevationEnd:
		return nil
	case elevation == nil, elevation.ElevationID != i.Elevation.ID, elevation.Actor.ObjectID != i.ObjectID, elevation.Actor.Role != i.Elevation.Role:
		return intent.Mismatch("elevation than the engineer has")
	case elevation.EndTime != nil:
		return apierror.New(apierror.PermissionDenied, "The elevation %s was ended at %s, before the execution began. Elevate and request the action again.",
			i.Elevation.ID, elevation.EndTime.UTC().Format(time.RFC3339)).WithReason(intent.ReasonExpired)
	case !elevation.Active(now):
		return intent.Expired(i)
	case adminv1.ClassOf(i.Action) != "" && !Permits(elevation, i.Action, i.Target.ClusterUID):
		return intent.Mismatch("class or cluster than the elevation")
	}
	return nil
}
