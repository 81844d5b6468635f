package journal

import (
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

// transitions returns the state that follows from a verdict, and how it differs from the recorded one. It returns the recorded state
// and no entries if nothing changed.
func transitions(now time.Time, recorded adminv1.Health, verdict *judge.Verdict) (adminv1.Health, []adminv1.JournalEntry) {
	if !decided(recorded, verdict) {
		return recorded, nil
	}
	next := adminv1.Health{API: string(verdict.API), Reason: string(verdict.Reason), Detail: verdict.Detail, Since: recorded.Since}
	var entries []adminv1.JournalEntry
	if next.API != recorded.API || next.Reason != recorded.Reason {
		next.Since = now
		if since := earliest(verdict.Concerns); verdict.API == judge.Unavailable && !since.IsZero() {
			next.Since = since
		}
		entries = append(entries, adminv1.JournalEntry{Time: now, Event: adminv1.JournalAPI, From: recorded.API, To: next.API, Reason: next.Reason, Since: next.Since, Evidence: next.Detail})
	}
	for _, c := range verdict.Concerns {
		concern := adminv1.HealthConcern{Kind: string(c.Kind), Since: c.Since.UTC(), Fault: string(c.Fault), Summary: c.Summary, Evidence: c.Evidence, Help: c.Help}
		if old := find(recorded.Concerns, concern.Kind); old != nil {
			concern.Since, concern.Evidence = old.Since, old.Evidence
		} else {
			entries = append(entries, adminv1.JournalEntry{Time: now, Event: adminv1.JournalConcernBegan, Kind: concern.Kind, Fault: concern.Fault, Since: concern.Since, Evidence: concern.Evidence})
		}
		next.Concerns = append(next.Concerns, concern)
	}
	for _, old := range recorded.Concerns {
		if find(next.Concerns, old.Kind) == nil {
			entries = append(entries, adminv1.JournalEntry{Time: now, Event: adminv1.JournalConcernEnded, Kind: old.Kind, Fault: old.Fault, Since: old.Since})
		}
	}
	if len(entries) == 0 {
		return recorded, nil
	}
	return next, entries
}

// decided reports whether a verdict is recorded. Blindness concerns all clusters and is part of the reports of groups. Not probed
// means that a verdict will follow, unless this replica made one before. A cluster that has no record gets one when its
// state is known, or when customers block monitor.
func decided(recorded adminv1.Health, verdict *judge.Verdict) bool {
	switch {
	case verdict.API != judge.Unknown:
		return true
	case verdict.Reason == judge.Blind:
		return false
	case recorded.API == "":
		return verdict.Reason == judge.Blocked || verdict.Reason == judge.NoEndpoint || verdict.Reason == judge.InsideSilent
	}
	return true
}

func find(concerns []adminv1.HealthConcern, kind string) *adminv1.HealthConcern {
	i := slices.IndexFunc(concerns, func(c adminv1.HealthConcern) bool { return c.Kind == kind })
	if i < 0 {
		return nil
	}
	return &concerns[i]
}

// earliest returns when the first of the concerns that make an API unavailable began. The others precede it only by chance.
func earliest(concerns []judge.Concern) time.Time {
	since := time.Time{}
	for _, c := range concerns {
		if c.Kind != judge.KeyUnusable && c.Kind != judge.CertificateExpiring && (since.IsZero() || c.Since.Before(since)) {
			since = c.Since
		}
	}
	return since.UTC()
}
