// Package validation holds the rules for clusters, node pools and external authentications, except those that need the
// store. It validates hub resources and returns all violations at once, in Kubernetes' wording, with the paths of the
// fields.
//
// The rules are ratcheting: a violation that the stored resource already has is not reported, so that a new rule does not
// block updates of existing clusters. Create-only fields and version steps are compared with the stored resource. The
// package reads neither a store nor a clock, so that it can also validate a deployment before ARM executes it.
package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// finding is a violation and the value that caused it. The value determines whether the stored resource has it already.
type finding struct {
	apierror.Violation
	value string
	// skippedItems is set if a list has too many items and its items were not validated.
	skippedItems bool
}

// index matches the index of a list's item in a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// maxFindings is the most findings of a report: one more than an error lists, so that it can state that there are more.
const maxFindings = apierror.MaxViolations + 1

// report collects findings.
type report struct {
	findings []finding
	// allItems makes the rules validate the items of lists that have too many.
	allItems bool
	// unlimited removes the limit of maxFindings. It is set for a stored resource, of which ratchet needs all findings.
	unlimited bool
	// kept counts the findings of the stored resource, without indices, that the requested one may have too. keptItems is set if
	// one of them that the requested resource has is a list with skipped items.
	kept      map[finding]int
	keptItems bool
}

// validate returns the findings of a requested resource without those that the stored one has too. stored is nil for a new
// resource.
func validate(now, stored func(*report)) *report {
	found := &report{}
	now(found)
	if stored == nil || len(found.findings) == 0 {
		return found
	}
	if found = ratchet(now, stored, false); found.keptItems {
		// The stored list has the same number of items, which is too many. That stays allowed, but the items must be validated.
		found = ratchet(now, stored, true)
	}
	return found
}

// ratchet returns the findings of now that stored does not have with the same value. It ignores indices of lists, because an
// item may have moved, and compares the number of equal findings.
func ratchet(now, stored func(*report), allItems bool) *report {
	old := &report{allItems: allItems, unlimited: true}
	stored(old)
	found := &report{allItems: allItems, kept: make(map[finding]int, len(old.findings))}
	for _, f := range old.findings {
		found.kept[f.withoutIndices()]++
	}
	now(found)
	found.kept = nil
	return found
}

// full reports whether the report has maxFindings. Rules that may have many findings then end.
func (r *report) full() bool { return !r.unlimited && len(r.findings) >= maxFindings }

func (r *report) add(field, value, message string) {
	r.record(finding{Violation: apierror.Violation{Field: field, Message: message}, value: value})
}

// record adds a finding unless the report is full or the stored resource has the finding too.
func (r *report) record(f finding) {
	if r.full() {
		return
	}
	if len(r.kept) > 0 {
		if key := f.withoutIndices(); r.kept[key] > 0 {
			r.kept[key]--
			r.keptItems = r.keptItems || f.skippedItems
			return
		}
	}
	r.findings = append(r.findings, f)
}

func (r *report) invalid(field string, value any, format string, args ...any) {
	if r.full() {
		return
	}
	text := wire.FormatValue(value)
	r.add(field, text, fmt.Sprintf("Invalid value: %s: %s", text, fmt.Sprintf(format, args...)))
}

func (r *report) required(field string) {
	r.add(field, "", "Required value")
}

func (r *report) forbidden(field string, value any, format string, args ...any) {
	r.add(field, wire.FormatValue(value), "Forbidden: "+fmt.Sprintf(format, args...))
}

func (r *report) unsupported(field, value string, supported ...string) {
	r.add(field, value, wire.UnsupportedValue(value, supported))
}

// tooMany reports a list with more than most items. It returns whether the caller must skip the items.
func (r *report) tooMany(field string, count, most int) bool {
	if count <= most {
		return false
	}
	r.record(finding{Violation: apierror.Violation{Field: field, Message: wire.TooMany(count, most)}, value: fmt.Sprint(count), skippedItems: !r.allItems})
	return !r.allItems
}

func (r *report) tooLong(field, value string, most int) {
	r.add(field, value, fmt.Sprintf("Too long: may not be more than %d bytes", most))
}

// tooLongText is tooLong for a string whose length counts in characters.
func (r *report) tooLongText(field, value string, most int) {
	r.add(field, value, fmt.Sprintf("Too long: may not be more than %d characters", most))
}

func (r *report) duplicate(field, value string) {
	r.add(field, value, "Duplicate value: "+wire.FormatValue(value))
}

// between requires least <= value <= most. A negative most means no upper limit.
func (r *report) between(field string, value, least, most int32) {
	if value < least {
		r.invalid(field, value, "must be greater than or equal to %d", least)
	}
	if most >= 0 && value > most {
		r.invalid(field, value, "must be less than or equal to %d", most)
	}
}

// within requires a string of at most most characters; see text.
func (r *report) within(field, value string, most int) {
	if value == "" {
		r.required(field)
		return
	}
	r.text(field, value, most)
}

// requiredBetween is between for a number of which 0 means that it is missing.
func (r *report) requiredBetween(field string, value, least, most int32) {
	if value == 0 {
		r.required(field)
		return
	}
	r.between(field, value, least, most)
}

// withinBytes requires a string of at most most bytes without control characters.
func (r *report) withinBytes(field, value string, most int) {
	switch {
	case value == "":
		r.required(field)
	case len(value) > most:
		r.tooLong(field, value, most)
	case strings.ContainsFunc(value, unicode.IsControl):
		r.invalid(field, value, "must not contain control characters")
	}
}

// text requires an optional string of at most most characters. Control characters are invalid: systems behind the service
// reject them.
func (r *report) text(field, value string, most int) {
	switch {
	case len(value) > most && utf8.RuneCountInString(value) > most:
		r.tooLongText(field, value, most)
	case strings.ContainsFunc(value, unicode.IsControl):
		r.invalid(field, value, "must not contain control characters")
	}
}

// withoutIndices returns the finding without the indices of lists in its path.
func (f finding) withoutIndices() finding {
	f.Field, f.skippedItems = index.ReplaceAllString(f.Field, "[]"), false
	return f
}

// location reports a change of a resource's location, and nothing else of it.
func (r *report) location(old, now string) {
	if normalLocation(old) == normalLocation(now) {
		return
	}
	r.findings = slices.DeleteFunc(r.findings, func(f finding) bool { return f.Field == "location" })
	immutable{r}.changed("location", now)
}

// violations returns the findings in order of field.
func (r *report) violations() []apierror.Violation {
	if len(r.findings) == 0 {
		return nil
	}
	violations := make([]apierror.Violation, len(r.findings))
	for i, f := range r.findings {
		violations[i] = f.Violation
	}
	Sort(violations)
	return slices.Compact(violations)
}

// Sort sorts violations by field and then by message.
func Sort(violations []apierror.Violation) {
	slices.SortStableFunc(violations, func(a, b apierror.Violation) int {
		if order := strings.Compare(a.Field, b.Field); order != 0 {
			return order
		}
		return strings.Compare(a.Message, b.Message)
	})
}

// Covers reports whether field is outer or lies within it.
func Covers(outer, field string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
