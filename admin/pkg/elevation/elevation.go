// Package elevation decides the life cycle of elevations: Requested, Approved or Denied by a second person, Active, Ended; and
// the review of emergencies. The transitions are pure functions on a document and a time. The caller commits the document by
// compare-and-swap, so that concurrent transitions have one effect. A Policy states what each class of actions needs.
//
// A transition that somebody repeats after a lost response succeeds without another effect. Nothing happens by itself: an
// elevation expires because every check compares its times.
package elevation

import (
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Person is an engineer who changes an elevation, with the roles that the engineer's groups give.
type Person struct {
	Name, ObjectID, TenantID string
	Roles                    []adminv1.Role
	// CheckClaims returns an error unless the engineer's token has the claims that a role requires; nil if no role requires any.
	CheckClaims func(role adminv1.Role) error
}

// use returns refused unless the person has a role, and then the error of the claims that the role requires, if any is missing.
func (p Person) use(role adminv1.Role, refused error) error {
	switch {
	case !p.has(role):
		return refused
	case p.CheckClaims == nil:
		return nil
	}
	return p.CheckClaims(role)
}

// has reports whether the person has a role.
func (p Person) has(role adminv1.Role) bool {
	return len(p.Roles) > 0 && access.Includes(p.Roles[len(p.Roles)-1], role)
}

// is reports whether the person requested the elevation.
func (p Person) is(a database.AdminActor) bool {
	return p.ObjectID == a.ObjectID && p.TenantID == a.TenantID
}

// StateAt returns the state of an elevation at a time.
func StateAt(e *database.ElevationDocument, now time.Time) adminv1.ElevationState {
	switch e.State {
	case database.ElevationRequested, database.ElevationApproved:
		if !now.Before(e.RequestExpirationTime) {
			return adminv1.ElevationExpired
		}
	case database.ElevationActive:
		if !e.Active(now) {
			return adminv1.ElevationExpired
		}
	case "": // a release without approvals created it
		if e.EndTime != nil {
			return adminv1.ElevationEnded
		}
		return adminv1.ElevationExpired
	}
	return adminv1.ElevationState(e.State)
}

// Open reports whether the elevation is active or can become so.
func Open(e *database.ElevationDocument, now time.Time) bool {
	switch StateAt(e, now) {
	case adminv1.ElevationRequested, adminv1.ElevationApproved, adminv1.ElevationActive:
		return true
	}
	return false
}

// OldestOpen returns a time before the creation of all elevations that are active, or can become so, at a time.
func OldestOpen(now time.Time) time.Time {
	const clocks = time.Hour // how much the clocks of replicas may differ
	return now.Add(-maxRequestLifetime - MaxDuration - clocks)
}

// Begin sets the first state of a new elevation: Requested if the policy needs an approval, else Active.
func (p *Policy) Begin(e *database.ElevationDocument, now time.Time) {
	e.RequestTime, e.RequestExpirationTime = now, now.Add(p.RequestLifetime.Duration)
	if p.NeedsApproval(e) && !e.Emergency {
		e.State = database.ElevationRequested
		return
	}
	start(e, now)
}

func start(e *database.ElevationDocument, now time.Time) {
	e.State, e.StartTime, e.ExpirationTime = database.ElevationActive, now, now.Add(time.Duration(e.DurationSeconds)*time.Second)
}

// Decide records the approval or the denial of a request by a second person. It reports whether it changed the elevation.
func (p *Policy) Decide(e *database.ElevationDocument, by Person, approved bool, reason string, now time.Time) (changed bool, err error) {
	if by.is(e.Actor) {
		return false, apierror.New(apierror.PermissionDenied, "Nobody decides about their own request: another engineer must.")
	}
	role := p.approverRole(e)
	if err := by.use(role, apierror.New(apierror.PermissionDenied, "Deciding about elevations of the class %s requires the role %s.", e.Class, role)); err != nil {
		return false, err
	}
	switch {
	case e.Decision != nil && e.Decision.ObjectID == by.ObjectID && e.Decision.TenantID == by.TenantID && e.Decision.Approved == approved:
		return false, nil
	case e.Decision != nil:
		return false, apierror.New(apierror.Conflict, "%s has already decided about the request: it is %s.", e.Decision.Name, StateAt(e, now))
	case StateAt(e, now) != adminv1.ElevationRequested:
		return false, wrongState(e, now, "Only a request that waits for approval can be decided about")
	}
	e.Decision = &database.ElevationDecision{Approved: approved, Name: by.Name, ObjectID: by.ObjectID, TenantID: by.TenantID, Reason: reason, Time: now}
	e.State = database.ElevationApproved
	if !approved {
		e.State, e.EndTime, e.EndedBy = database.ElevationDenied, &now, by.Name
	}
	return true, nil
}

// CheckActivation returns an error unless the person may activate the elevation now. needed is false if it is active already.
func (p *Policy) CheckActivation(e *database.ElevationDocument, by Person, now time.Time) (needed bool, err error) {
	if !by.is(e.Actor) {
		return false, apierror.New(apierror.PermissionDenied, "Only the engineer who requested an elevation activates it.")
	}
	role := adminv1.AccessClass(e.Class).Role()
	if err := by.use(role, apierror.New(apierror.PermissionDenied, "None of your groups gives the role %s any more.", role)); err != nil {
		return false, err
	}
	class := p.Classes[adminv1.AccessClass(e.Class)]
	switch state := StateAt(e, now); {
	case state == adminv1.ElevationActive:
		return false, nil
	case state != adminv1.ElevationApproved:
		return false, wrongState(e, now, "Only an approved request can be activated")
	case time.Duration(e.DurationSeconds)*time.Second > class.MaxDuration.Duration:
		return false, apierror.New(apierror.FailedPrecondition, "The access policy has changed: elevations of the class %s last at most %s. Request a shorter one.", e.Class, class.MaxDuration)
	}
	return true, nil
}

// Activate makes an approved elevation active, after CheckActivation.
func (p *Policy) Activate(e *database.ElevationDocument, by Person, now time.Time) (changed bool, err error) {
	needed, err := p.CheckActivation(e, by, now)
	if err != nil || !needed {
		return false, err
	}
	start(e, now)
	return true, nil
}

// End ends an active elevation or withdraws a request. Everybody may end their own; the role break-glass ends those of others.
func End(e *database.ElevationDocument, by Person, now time.Time) (changed bool, err error) {
	if !by.is(e.Actor) {
		if err := by.use(adminv1.BreakGlass, apierror.New(apierror.PermissionDenied, "Ending the elevation of another engineer requires the role %s.", adminv1.BreakGlass)); err != nil {
			return false, err
		}
	}
	if !Open(e, now) {
		return false, nil
	}
	e.State, e.EndTime, e.EndedBy = database.ElevationEnded, &now, by.Name
	return true, nil
}

// TicketValidator is who ended an elevation whose ticket is closed.
const TicketValidator = "ticket validator"

// EndForTicket ends an active elevation because its ticket is closed. It reports whether it changed the elevation.
func EndForTicket(e *database.ElevationDocument, reason string, now time.Time) (changed bool) {
	if StateAt(e, now) != adminv1.ElevationActive {
		return false
	}
	e.State, e.EndTime, e.EndedBy, e.EndReason = database.ElevationEnded, &now, TicketValidator, reason
	return true
}

// Review closes the review of an emergency elevation that is over.
func (p *Policy) Review(e *database.ElevationDocument, by Person, justified bool, comment string, now time.Time) (changed bool, err error) {
	switch {
	case !e.Emergency:
		return false, apierror.New(apierror.Conflict, "Only emergency elevations are reviewed.")
	case by.is(e.Actor):
		return false, apierror.New(apierror.PermissionDenied, "Nobody reviews their own emergency: another engineer must.")
	}
	role := p.approverRole(e)
	if err := by.use(role, apierror.New(apierror.PermissionDenied, "Reviewing elevations of the class %s requires the role %s.", e.Class, role)); err != nil {
		return false, err
	}
	switch {
	case e.Review != nil && e.Review.ObjectID == by.ObjectID && e.Review.TenantID == by.TenantID && e.Review.Justified == justified && e.Review.Comment == comment:
		return false, nil
	case e.Review != nil:
		return false, apierror.New(apierror.Conflict, "%s has already reviewed the elevation.", e.Review.Name)
	case Open(e, now):
		return false, wrongState(e, now, "An emergency is reviewed when the elevation is over; end it first")
	}
	e.Review = &database.ElevationReview{Justified: justified, Name: by.Name, ObjectID: by.ObjectID, TenantID: by.TenantID, Comment: comment, Time: now}
	return true, nil
}

func wrongState(e *database.ElevationDocument, now time.Time, rule string) error {
	return apierror.New(apierror.Conflict, "%s. The elevation %s is %s.", rule, e.ElevationID, StateAt(e, now))
}
