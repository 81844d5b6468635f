// Package explanation says in sentences what a cluster is waiting for, since when, who must act, what happens next, and
// the one command that helps: what a colleague would answer who has looked at every layer. It is a pure function of facts,
// which package adminv1's dump holds; time is one of them. What each state of each layer means to people stands in one
// table (waits.go), with how long it usually takes: that is what tells waiting from being stuck.
package explanation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Party is who has to act.
type Party string

// The parties.
const (
	// Nobody: nothing is awaited.
	Nobody Party = "nobody"
	// Service goes on by itself.
	Service  Party = "service"
	SRE      Party = "sre"
	Customer Party = "customer"
	Azure    Party = "azure"
)

// Explanation is the answer for one cluster.
type Explanation struct {
	// ResourceID is the cluster's; empty when the name is unknown or ambiguous.
	ResourceID string `json:"resourceId,omitempty"`
	// Findings are what there is to say, the most important first; at least one.
	Findings []Finding `json:"findings"`
	// About is where the cluster is, in sentences.
	About []string `json:"about,omitempty"`
	// Caveats say which facts are missing.
	Caveats []string `json:"caveats,omitempty"`
}

// Finding is what one resource, or several, wait for.
type Finding struct {
	// Subject is the resource, as in `node pool workers`.
	Subject string `json:"subject"`
	// Layer and State are the entry of the progress that it is about; empty when it is about none.
	Layer string `json:"layer,omitempty"`
	State string `json:"state,omitempty"`
	// Says is what is awaited and since when, in a sentence; Because is the evidence.
	Says    string   `json:"says"`
	Because []string `json:"because,omitempty"`
	// Since is when it began to wait; zero when nothing is awaited.
	Since time.Time `json:"since,omitzero"`
	// Who has to act, and how, in sentences; the last of them are what happens next.
	Who  Party    `json:"who"`
	Acts []string `json:"acts,omitempty"`
	// Command helps; empty when there is none.
	Command string `json:"command,omitempty"`
}

// Of explains.
func Of(f *Facts) Explanation {
	e := Explanation{ResourceID: f.clusterID()}
	for _, s := range f.Silent {
		e.Caveats = append(e.Caveats, fmt.Sprintf("%s could not be asked: %s.", s.Layer, strings.TrimSuffix(s.Error, ".")))
	}
	if e.ResourceID == "" {
		e.Findings = []Finding{f.notOne()}
		return e
	}
	findings := f.merge(f.findings())
	if len(findings) == 0 {
		findings = []Finding{f.settled()}
	}
	// What somebody has to do something about comes first, in the order of the layers otherwise.
	slices.SortStableFunc(findings, func(a, b Finding) int { return urgency(a.Who) - urgency(b.Who) })
	e.Findings = findings
	e.About = f.about()
	return e
}

func urgency(who Party) int {
	switch who {
	case SRE:
		return 0
	case Customer:
		return 1
	}
	return 2
}

// findings are those of all subjects, the cluster's first.
func (f *Facts) findings() []Finding {
	var list []Finding
	for _, s := range f.subjects() {
		if finding, found := s.explain(); found {
			list = append(list, finding)
		}
	}
	return list
}

// merge says of the children that wait for the same as their cluster does just that.
func (f *Facts) merge(list []Finding) []Finding {
	var merged []Finding
	var same []string
	for i, finding := range list {
		first := list[0]
		if i > 0 && first.Layer == finding.Layer && first.State == finding.State && shared(finding.Layer) {
			same = append(same, finding.Subject)
			continue
		}
		merged = append(merged, finding)
	}
	if len(same) > 0 {
		verb := " wait"
		if len(same) == 1 {
			verb = " waits"
		}
		merged[0].Because = append(merged[0].Because, upper(and(same))+verb+" for the same.")
	}
	return merged
}

// shared says that a layer which keeps a cluster waiting keeps its children waiting for the same reason.
func shared(layer string) bool {
	return layer == layerMaestro || layer == layerManagementCluster || layer == layerPaused
}

// notOne is the answer when the name means no cluster, or several.
func (f *Facts) notOne() Finding {
	if len(f.Matches) == 0 {
		return Finding{
			Subject: f.Asked, Says: fmt.Sprintf("No cluster of this region is called %q.", f.Asked), Who: Nobody,
			Because: []string{"Looked for as a name, an ARM resource id, a uid, a cluster id and a domain prefix, among the clusters that are there and those that were deleted in the last 7 days."},
			Acts:    []string{"See how it is spelt in the customer's request; if it is in another region, ask there."},
		}
	}
	return Finding{
		Subject: f.Asked, Says: fmt.Sprintf("%d clusters of this region are called %q.", len(f.Matches), f.Asked), Who: Nobody,
		Because: []string{"They are:\n" + indent(f.Matches)}, Acts: []string{"Ask again with the resource id of the one you mean."},
		Command: "hcpctl explain " + f.Matches[0],
	}
}
