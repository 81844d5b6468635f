package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/admin/pkg/dump"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// alertsBudget bounds the time to read alerts and silences.
const alertsBudget = 10 * time.Second

// The limits of a silence.
const (
	minSilence, maxSilence = 5 * time.Minute, 24 * time.Hour
	maxSilenceLabels       = 10
	maxSilenceLabel        = 256
)

// alertName and labelName are the names of alerts and labels that a silence may have.
var (
	alertName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_:]{0,127}$`)
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,127}$`)
)

// silenceRoutes returns the routes of silences. They are no admin operations: Alertmanager stores them, and they end by themselves.
func (s *Server) silenceRoutes() []Route {
	const silences = adminv1.Root + "/silences"
	return []Route{
		{
			Method: http.MethodPost, Path: silences, Name: "silences.create", Repeatable: true, Summary: "Silence the alerts with a name, and with these labels if there are any, for a limited time: they notify nobody.",
			Role: adminv1.Operator, Request: adminv1.SilenceRequest{}, Response: adminv1.Silence{}, Status: http.StatusCreated, handle: s.createSilence,
		},
		{
			Method: http.MethodPost, Path: silences + "/{silence}/end", Name: "silences.end", Summary: "End a silence before its time.",
			Role: adminv1.Operator, Request: adminv1.EndSilenceRequest{}, Response: adminv1.Silence{}, Status: http.StatusOK, handle: s.endSilence,
		},
	}
}

// noPrometheus and noAlertmanager state what is missing and what to do.
const (
	noPrometheus   = "admin has no Prometheus: its flag --prometheus-url is not set. Look at the alerts where the region sends them."
	noAlertmanager = "admin has no Alertmanager: its flag --alertmanager-url is not set. Silence alerts where the region sends them."
)

// listAlerts returns the firing alerts and the silences. One that cannot be read is absent, which differs from an empty list.
func (s *Server) listAlerts(ctx context.Context, _ *request) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, alertsBudget)
	defer cancel()
	list := adminv1.AlertList{Time: time.Now().UTC(), Unavailable: map[string]string{}}
	var firingErr, silencesErr error
	var all sync.WaitGroup
	if s.Alerts != nil {
		all.Go(func() { list.Alerts, list.More, firingErr = s.Alerts.Firing(ctx, list.Time) })
	} else {
		firingErr = apierror.New(apierror.FailedPrecondition, noPrometheus)
	}
	if s.Silences != nil {
		all.Go(func() { list.Silences, list.MoreSilences, list.IgnoredSilences, silencesErr = s.Silences.List(ctx) })
	} else {
		silencesErr = apierror.New(apierror.FailedPrecondition, noAlertmanager)
	}
	all.Wait()
	if firingErr != nil {
		list.Alerts, list.Unavailable[adminv1.UnavailableAlerts] = nil, dump.UnavailableReason(firingErr)
	}
	if silencesErr != nil {
		list.Silences, list.Unavailable[adminv1.UnavailableSilences] = nil, dump.UnavailableReason(silencesErr)
	}
	alerts.MarkSilenced(list.Alerts, list.Silences)
	return list, nil
}

// validateSilence returns the duration of a silence, or an error for the invalid fields.
func validateSilence(asked adminv1.SilenceRequest) (time.Duration, error) {
	var violations []apierror.Violation
	fail := func(field, format string, args ...any) {
		violations = append(violations, violation(field, format, args...))
	}
	switch {
	case !alertName.MatchString(asked.Alert):
		fail("alert", "Invalid value: %q: must be the name of an alert", asked.Alert)
	case asked.Alert == alerts.Watchdog:
		fail("alert", "Forbidden: its absence raises an alarm outside of the region")
	}
	if len(asked.Labels) > maxSilenceLabels {
		fail("labels", "Invalid value: must be at most %d labels", maxSilenceLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Labels)) {
		switch {
		case !labelName.MatchString(name):
			fail("labels", "Invalid value: %q: must be the name of a label", name)
		case name == "alertname":
			fail("labels", "Forbidden: alertname is the field alert")
		case asked.Labels[name] == "" || utf8.RuneCountInString(asked.Labels[name]) > maxSilenceLabel:
			fail("labels", "Invalid value: the label %s must have 1 to %d characters", name, maxSilenceLabel)
		}
	}
	checkJustification(asked.Reason, asked.Ticket, fail)
	duration, err := time.ParseDuration(asked.Duration)
	if err != nil || duration < minSilence || duration > maxSilence {
		fail("duration", "Invalid value: %q: must be a duration from %s to %s, for example 2h", asked.Duration, minSilence, maxSilence)
	}
	return duration, apierror.InvalidFields(violations)
}

// checkJustification calls fail unless there are a reason and a ticket.
func checkJustification(reason, ticket string, fail func(field, format string, args ...any)) {
	checkText(reason, "reason", fail)
	if n := utf8.RuneCountInString(ticket); n == 0 {
		fail("ticket", "Required value")
	} else if n > maxTicket {
		fail("ticket", "Invalid value: must be at most %d characters", maxTicket)
	}
}

// createSilence stores a silence in Alertmanager. A request that is repeated with its idempotency key gets the silence that it created before.
func (s *Server) createSilence(ctx context.Context, rq *request) (any, error) {
	if err := rq.readIdempotencyKey(); err != nil {
		return nil, err
	}
	var asked adminv1.SilenceRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	asked.Alert, asked.Reason, asked.Ticket = strings.TrimSpace(asked.Alert), strings.TrimSpace(asked.Reason), strings.TrimSpace(asked.Ticket)
	rq.audited.object = audit.Object{Kind: "alert", ID: truncate(asked.Alert)}
	rq.audited.reason, rq.audited.ticket = truncate(asked.Reason), truncate(asked.Ticket)
	duration, err := validateSilence(asked)
	if err != nil {
		return nil, err
	}
	if s.Silences == nil {
		return nil, apierror.New(apierror.FailedPrecondition, noAlertmanager)
	}
	mark := silenceMark(rq.operation, rq.digest)
	if rq.operation == "" {
		mark = silenceMark(uuid.NewString(), "")
	}
	before, err := s.previousSilence(ctx, rq.operation, mark)
	if err != nil {
		return nil, err
	}
	if before != nil {
		rq.audited.operation = before.ID
		return *before, nil
	}
	now := time.Now().UTC()
	wanted := adminv1.Silence{State: adminv1.SilenceActive, Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: asked.Alert}}, StartTime: now, EndTime: now.Add(duration), CreatedBy: rq.caller.Name,
		Comment: fmt.Sprintf("%s (%s) %s", asked.Reason, asked.Ticket, mark)}
	for _, name := range slices.Sorted(maps.Keys(asked.Labels)) {
		wanted.Matchers = append(wanted.Matchers, adminv1.SilenceMatcher{Name: name, Value: asked.Labels[name]})
	}
	if wanted.ID, err = s.Silences.Create(ctx, wanted); err != nil {
		return nil, err
	}
	rq.audited.operation = wanted.ID
	return wanted, nil
}

// silenceMark returns the end of the comment of a silence, which identifies the request that created it.
func silenceMark(id, digest string) string {
	return "[" + id + " " + digest[:min(len(digest), 16)] + "]"
}

// previousSilence returns the silence that the same request created before; nil if there is none, or the request has no key.
func (s *Server) previousSilence(ctx context.Context, id, mark string) (*adminv1.Silence, error) {
	if id == "" {
		return nil, nil
	}
	var before *adminv1.Silence
	var conflict error
	_, err := s.Silences.Each(ctx, func(silence adminv1.Silence) {
		if strings.HasSuffix(silence.Comment, mark) {
			before = &silence
		} else if strings.Contains(silence.Comment, "["+id+" ") {
			conflict = apierror.New(apierror.Conflict, "The key was used for another request, which created the silence %s.", silence.ID).WithTarget(adminv1.IdempotencyKey)
		}
	})
	return before, cmp.Or(err, conflict)
}

// endSilence ends a silence before its time. Ending an expired one has no effect.
func (s *Server) endSilence(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.EndSilenceRequest
	if err := rq.decodeBody(&asked); err != nil {
		return nil, err
	}
	asked.Reason, asked.Ticket = strings.TrimSpace(asked.Reason), strings.TrimSpace(asked.Ticket)
	id := rq.http.PathValue("silence")
	rq.audited.object, rq.audited.operation = audit.Object{Kind: "silence", ID: truncate(id)}, truncate(id)
	rq.audited.reason, rq.audited.ticket = truncate(asked.Reason), truncate(asked.Ticket)
	var violations []apierror.Violation
	checkJustification(asked.Reason, asked.Ticket, func(field, format string, args ...any) {
		violations = append(violations, violation(field, format, args...))
	})
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}
	if s.Silences == nil {
		return nil, apierror.New(apierror.FailedPrecondition, noAlertmanager)
	}
	if uuid.Validate(id) != nil {
		return nil, apierror.New(apierror.NotFound, "Silence '%s' does not exist.", id)
	}
	silence, err := s.Silences.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if silence.State == adminv1.SilenceExpired {
		return silence, nil
	}
	if err := s.Silences.End(ctx, id); err != nil {
		return nil, err
	}
	ended, err := s.Silences.Get(ctx, id)
	var failure *apierror.Error
	if errors.As(err, &failure) && failure.Kind == apierror.NotFound { // it never started, so that Alertmanager removed it
		silence.State = adminv1.SilenceExpired
		return silence, nil
	}
	return ended, err
}
