// Package validation holds the rules that a cluster and a node pool must keep, other than those that only the store can
// decide. It looks at hub resources and finds everything that is wrong at once, in Kubernetes' wording, with the field's
// path as the caller wrote it.
//
// A rule is ratcheting: what the stored resource already violates may stay as it is, so that a new rule never locks an
// existing cluster out of its updates. Create-only fields and version steps are judged against the stored resource. The
// package reads no store and no clock; the same code can judge a deployment before it is sent.
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

// finding is one violation and the value that caused it, which tells whether it is an old one.
type finding struct {
	apierror.Violation
	value string
	// unjudged says that items were left out.
	unjudged bool
}

// index is the place of an item in a list, within a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// report collects findings.
type report struct {
	findings []finding
	// every has the items of lists judged that have too many of them.
	every bool
}

// judge collects what rules find wrong with a resource as it is to be. What they find wrong with the stored one as well is
// left out; stored is nil when there is none.
func judge(now, stored func(*report)) *report {
	found := &report{}
	now(found)
	if stored == nil || len(found.findings) == 0 {
		return found
	}
	old := &report{}
	stored(old)
	if !found.ratchet(old) {
		return found
	}
	// As many items are stored as there are now, more than there may be. That is left alone, and not what the items are.
	found, old = &report{every: true}, &report{every: true}
	now(found)
	stored(old)
	found.ratchet(old)
	return found
}

func (r *report) add(field, value, message string) {
	r.findings = append(r.findings, finding{Violation: apierror.Violation{Field: field, Message: message}, value: value})
}

func (r *report) invalid(field string, value any, format string, args ...any) {
	shown := wire.FormatValue(value)
	r.add(field, shown, fmt.Sprintf("Invalid value: %s: %s", shown, fmt.Sprintf(format, args...)))
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

// tooMany reports whether there are so many items that they are not judged one by one.
func (r *report) tooMany(field string, count, most int) bool {
	if count <= most {
		return false
	}
	r.add(field, fmt.Sprint(count), fmt.Sprintf("Too many: %d: must have at most %d items", count, most))
	r.findings[len(r.findings)-1].unjudged = !r.every
	return !r.every
}

func (r *report) tooLong(field, value string, most int) {
	r.add(field, value, fmt.Sprintf("Too long: may not be more than %d bytes", most))
}

// tooLongText is tooLong for a text that need not be ASCII.
func (r *report) tooLongText(field, value string, most int) {
	r.add(field, value, fmt.Sprintf("Too long: may not be more than %d characters", most))
}

func (r *report) duplicate(field, value string) {
	r.add(field, value, "Duplicate value: "+wire.FormatValue(value))
}

// between requires least <= value <= most; most < 0 is no bound.
func (r *report) between(field string, value, least, most int32) {
	if value < least {
		r.invalid(field, value, "must be greater than or equal to %d", least)
	}
	if most >= 0 && value > most {
		r.invalid(field, value, "must be less than or equal to %d", most)
	}
}

// within limits a text that must be there.
func (r *report) within(field, value string, most int) {
	if value == "" {
		r.required(field)
		return
	}
	r.text(field, value, most)
}

// text limits a text in which anything may stand but control characters: what stores and shows it later takes none.
func (r *report) text(field, value string, most int) {
	switch {
	case len(value) > most && utf8.RuneCountInString(value) > most:
		r.tooLongText(field, value, most)
	case strings.ContainsFunc(value, unicode.IsControl):
		r.invalid(field, value, "must not contain control characters")
	}
}

// ratchet drops what old has found as well, for the same value. An item of a list may have moved: where it stands does not
// count, but how often the same was found does. It reports whether it dropped something whose items were not judged.
func (r *report) ratchet(old *report) (unjudged bool) {
	left := make(map[finding]int, len(old.findings))
	for _, f := range old.findings {
		left[f.anywhere()]++
	}
	r.findings = slices.DeleteFunc(r.findings, func(f finding) bool {
		key := f.anywhere()
		if left[key] == 0 {
			return false
		}
		left[key]--
		unjudged = unjudged || f.unjudged
		return true
	})
	return unjudged
}

// anywhere is the finding without the places of items in lists.
func (f finding) anywhere() finding {
	f.Field, f.unjudged = index.ReplaceAllString(f.Field, "[]"), false
	return f
}

// replace drops what was found at the fields of other, and adds the findings of other: they say more.
func (r *report) replace(other *report) {
	r.findings = slices.DeleteFunc(r.findings, func(f finding) bool {
		return slices.ContainsFunc(other.findings, func(o finding) bool { return Covers(o.Field, f.Field) })
	})
	r.findings = append(r.findings, other.findings...)
}

// violations are the findings in order of field.
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

// Sort orders violations by field, as they are shown.
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
