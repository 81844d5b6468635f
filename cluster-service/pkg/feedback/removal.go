package feedback

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	workv1 "open-cluster-management.io/api/work/v1"
)

// Remaining describes the objects and finalizers that still exist of a work that is being deleted. It returns "" when none
// were reported.
func (o *Observed) Remaining() string {
	var parts []string
	for _, name := range []string{contentRemaining, finalizersRemaining} {
		if c := o.Condition(name); c.Status == "True" {
			parts = append(parts, strings.TrimSuffix(c.Message, ".")+".")
		}
	}
	if len(o.Finalizers) > 0 {
		parts = append(parts, fmt.Sprintf("Finalizers %s.", strings.Join(o.Finalizers, ", ")))
	}
	return strings.Join(parts, " ")
}

// RemovalTrouble returns the namespace controller's first failure, and "" when it reported none.
func (o *Observed) RemovalTrouble() string {
	for _, name := range []string{discoveryFailure, parsingFailure, contentFailure} {
		if c := o.Condition(name); c.Status == "True" {
			return c.Message
		}
	}
	return ""
}

const (
	// maxFinalizers is the number of finalizers of one object that are stored.
	maxFinalizers = 32
	// maxFinalizer is the maximum length of a stored finalizer, in bytes. Longer ones are left out.
	maxFinalizer = 256
)

func finalizers(v *workv1.FeedbackValue) []string {
	names := slices.DeleteFunc(list[string](v, maxFinalizers), func(s string) bool { return s == "" || len(s) > maxFinalizer || !utf8.ValidString(s) })
	return slices.Clip(names)
}
