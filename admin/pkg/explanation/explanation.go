// Package explanation states in sentences what a cluster and its children wait for, since when, who must act, what happens
// next, and which command helps.
//
// The explanation is a pure function of a dump of all layers and of the states of the region's components. The table in waits.go
// holds the meaning of each state of each layer and its usual duration, which separates a normal wait from one that an SRE must
// look after. If a component on the cluster's path is away, the explanation names it first and shows everything else only as what
// was reported last, with its time. Sentences carry stable codes from api/adminv1, so that clients do not depend on the wording.
package explanation

import (
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// Explain returns the explanation of the dumped cluster, with the components of the region as they were observed at the same
// time. Name is the identifier that the caller used for the cluster; it appears in the commands.
func Explain(name string, dump *adminv1.Dump, components []adminv1.Component) *adminv1.Explanation {
	f := factsOf(name, dump)
	f.components = components
	return f.explain()
}

func (f *facts) explain() *adminv1.Explanation {
	items, concerns := mergeShared(f.items()), f.concerns()
	components, description := f.relevantComponents(), f.description()
	outages := layers.Outages(components)
	if len(items) == 0 && (len(concerns) == 0 || len(outages) > 0) {
		items = []adminv1.ExplanationItem{f.ready()}
	}
	if len(outages) > 0 {
		items = f.awayItems(outages, items)
		if slices.ContainsFunc(outages, func(o layers.Outage) bool { return o.Layer == adminv1.ComponentHostedAPI }) {
			concerns = nil // see addCauses
		}
		// The sizes of node pools are reports, which may be outdated.
		description = slices.DeleteFunc(description, func(s adminv1.Sentence) bool { return s.Code == adminv1.SentenceNodePools })
	}
	items = append(items, concerns...)
	// Items that need an action come first; otherwise the order of the subjects stays.
	slices.SortStableFunc(items, func(a, b adminv1.ExplanationItem) int { return urgency(a.Responsible) - urgency(b.Responsible) })
	return &adminv1.Explanation{
		Time: f.now, Cluster: f.target, Items: items, Facts: description, Health: f.health, Partial: len(f.unavailable) > 0, Unavailable: f.unavailable,
		Components: slices.DeleteFunc(components, func(c adminv1.Component) bool { return !c.Away() }),
	}
}

func urgency(party adminv1.Party) int {
	switch party {
	case adminv1.PartySRE:
		return 0
	case adminv1.PartyCustomer:
		return 1
	}
	return 2
}

// items returns the items of all subjects, the cluster's first.
func (f *facts) items() []adminv1.ExplanationItem {
	var items []adminv1.ExplanationItem
	for _, s := range f.subjects() {
		if item, found := s.explain(); found {
			items = append(items, item)
		}
	}
	return items
}

// mergeShared replaces the items of children that wait for the same as their cluster by one sentence. Each permanent refusal has its own cause, as have
// fields that another client has set.
func mergeShared(items []adminv1.ExplanationItem) []adminv1.ExplanationItem {
	var merged []adminv1.ExplanationItem
	var same []string
	for i, item := range items {
		first := items[0]
		if i > 0 && first.Layer == item.Layer && first.State == item.State && blocksChildren(item.Layer) && item.Code != adminv1.ExplanationApplyRefused && item.State != clusterstatus.DriftForeignFields {
			same = append(same, item.Subject)
			continue
		}
		merged = append(merged, item)
	}
	if len(same) > 0 {
		verb := " wait"
		if len(same) == 1 {
			verb = " waits"
		}
		merged[0].Evidence = append(merged[0].Evidence, sentence(adminv1.SentenceSharedByChildren, upperFirst(join(same))+verb+" for the same."))
	}
	return merged
}

// blocksChildren reports whether a layer that blocks a cluster also blocks its children for the same reason.
func blocksChildren(layer string) bool {
	return layer == layerMaestro || layer == layerManagementCluster || layer == layerPaused
}

// sentence returns a sentence without a time of its own.
func sentence(code, text string) adminv1.Sentence { return adminv1.Sentence{Code: code, Text: text} }

// sentenceAt returns a sentence about a moment.
func sentenceAt(code, text string, at time.Time) adminv1.Sentence {
	return adminv1.Sentence{Code: code, Text: text, Time: at}
}

// report quotes the message that a system reported, with its reason. It returns no sentence if both are empty.
func report(system, message, reason string) []adminv1.Sentence {
	return quoted(adminv1.SentenceReport, system+" reports", message, reason)
}

// quoted returns one sentence that begins with subject and verb and quotes a message with its reason.
func quoted(code, subject, message, reason string) []adminv1.Sentence {
	text := subject + " “" + strings.Join(strings.Fields(message), " ") + "”"
	switch {
	case message == "" && reason == "":
		return nil
	case message == "":
		text = subject + " " + reason
	case reason != "" && reason != "AsExpected":
		text += " (" + reason + ")"
	}
	return []adminv1.Sentence{sentence(code, text+".")}
}
