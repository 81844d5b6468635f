package feedback

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"
)

// finalizersPath is asked for of what others may hold up: it says who does.
const finalizersPath = ".metadata.finalizers"

const (
	contentRemaining    = "NamespaceContentRemaining"
	finalizersRemaining = "NamespaceFinalizersRemaining"
	discoveryFailure    = "NamespaceDeletionDiscoveryFailure"
	parsingFailure      = "NamespaceDeletionGroupVersionParsingFailure"
	contentFailure      = "NamespaceDeletionContentFailure"
)

// NamespaceRules asks what keeps a namespace from going. Until it is deleted there is nothing to report but an empty list
// of conditions.
func NamespaceRules() []workv1.FeedbackRule {
	return rules([]string{contentRemaining, finalizersRemaining, discoveryFailure, parsingFailure, contentFailure}, nil)
}

// Remaining says what is left of a work that is being deleted, as far as it was reported; empty when nothing was.
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

// RemovalTrouble is what the namespace controller could not do; empty when nothing was reported.
func (o *Observed) RemovalTrouble() string {
	for _, name := range []string{discoveryFailure, parsingFailure, contentFailure} {
		if c := o.Condition(name); c.Status == "True" {
			return c.Message
		}
	}
	return ""
}

// maxFinalizers bounds the finalizers of one object that are kept, maxFinalizer the length of one.
const (
	maxFinalizers = 32
	maxFinalizer  = 256
)

func finalizers(v *workv1.FeedbackValue) []string {
	if v.Value.JsonRaw == nil {
		return nil
	}
	var list []string
	if json.Unmarshal([]byte(*v.Value.JsonRaw), &list) != nil {
		// An agent that gives a list of one entry as that entry.
		var one string
		if json.Unmarshal([]byte(*v.Value.JsonRaw), &one) != nil {
			return nil
		}
		list = []string{one}
	}
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" || len(s) > maxFinalizer || strings.ToValidUTF8(s, "") != s })
	return slices.Clone(list[:min(len(list), maxFinalizers)])
}
