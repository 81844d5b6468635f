package explanation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// phaseLost is the phase of a cluster whose control plane was removed with its data.
const phaseLost = "LOST"

// The states of the control plane of a lost cluster, as Cluster Service names them.
const (
	controlPlaneBeingRemoved = "ControlPlaneBeingRemoved"
	controlPlaneRemoved      = "ControlPlaneRemoved"
	controlPlaneReplaced     = "ControlPlaneReplaced"
)

// lostControlPlane returns the item of a cluster whose control plane was removed. An SRE must decide how it continues, whatever
// the new control plane reports.
func (s *subject) lostControlPlane() adminv1.ExplanationItem {
	cp := s.cluster.GetStatus().GetControlPlane()
	since := asTime(cp.GetLostTime())
	state := controlPlaneReplaced
	for _, p := range s.progress {
		if p.GetLayer() == layerControlPlane {
			state = p.GetState()
		}
	}
	when := fmt.Sprintf("%s ago, at %s,", duration(s.now.Sub(since)), s.clock(since))
	if since.IsZero() {
		when = "at an unknown time"
	}
	summary := s.title() + " has lost its control plane: it was removed from {shard} " + when + " and rebuilt without its data."
	switch state {
	case controlPlaneBeingRemoved:
		summary = s.title() + " is losing its control plane: it has been in deletion on {shard} " + s.since(since) + ", and nobody requested the deletion of the cluster."
	case controlPlaneRemoved:
		summary = s.title() + " has lost its control plane: it was removed from {shard} " + when + " although nobody requested the deletion of the cluster."
	}
	item := s.item(adminv1.ExplanationControlPlaneLost, adminv1.PartySRE, s.fill(summary), since)
	item.Layer, item.State = layerControlPlane, state
	item.Evidence = []adminv1.Sentence{sentence(adminv1.SentenceIdentity, installed(cp)+" "+successor(cp))}
	act := func(code, text string) { item.Actions = append(item.Actions, sentence(code, s.fill(text))) }
	act(adminv1.SentenceAction, "Action for an SRE: find out who removed it (audit log of {shard}), inform the customer, and decide: restore the data, delete the cluster, or accept the new control plane.")
	switch state {
	case controlPlaneReplaced:
		act(adminv1.SentenceOutcome, "Until then ARM shows the cluster as Failed. The customer's objects in the API server are gone; the machines of the node pools are replaced.")
		item.Command = s.fill("hcpctl cluster accept-control-plane {asked} --reason … --ticket …")
	default:
		act(adminv1.SentenceOutcome, "Until then ARM shows the cluster as Failed. The control plane is built again, without its data, as soon as it is removed.")
		item.Command = s.fill("hcpctl cluster dump {asked}")
	}
	item.Actions = append(item.Actions, s.activeOperation()...)
	return item
}

// installed returns which identities hold the data of the cluster.
func installed(cp *csv1.ControlPlaneIdentity) string {
	text := "The cluster was installed with HostedCluster " + cp.GetUid()
	if uid := cp.GetNamespaceUid(); uid != "" {
		text += ", whose control-plane namespace had the UID " + uid
	}
	return text + "."
}

// successor returns which HostedCluster or control-plane namespace exists now.
func successor(cp *csv1.ControlPlaneIdentity) string {
	hosted, namespace := cp.GetReplacementUid(), cp.GetReplacementNamespaceUid()
	switch {
	case hosted != "" && namespace != "":
		return "Its successor is HostedCluster " + hosted + ", whose control-plane namespace has the UID " + namespace + "."
	case hosted != "":
		return "Its successor is HostedCluster " + hosted + "."
	case namespace != "":
		return "The HostedCluster is the same; the successor of its control-plane namespace has the UID " + namespace + "."
	}
	return "No other one has taken its place yet."
}

const (
	// maxRemovals is the number of removals that an explanation lists.
	maxRemovals = 3
	// removalAge is the age after which a removal is not listed.
	removalAge = 7 * 24 * time.Hour
)

// removals returns which objects of the cluster were removed from its management cluster lately, and when they existed again.
func (f *facts) removals() []adminv1.Sentence {
	var sentences []adminv1.Sentence
	for _, r := range f.cluster.GetStatus().GetRemovals() {
		at := asTime(r.GetRemoveTime())
		if len(sentences) == maxRemovals || f.now.Sub(at) > removalAge {
			break
		}
		name := strings.Join(slices.DeleteFunc([]string{r.GetNamespace(), r.GetName()}, func(s string) bool { return s == "" }), "/")
		text := fmt.Sprintf("%s %s was removed from %s at %s by another client than hcpmesh", r.GetKind(), name, r.GetProvisionShard(), f.clock(at))
		switch again := asTime(r.GetAppliedAgainTime()); {
		case !again.IsZero():
			text += ", and exists again since " + f.clock(again)
		default:
			text += ", and does not exist again yet"
		}
		sentences = append(sentences, sentenceAt(adminv1.SentenceRemoval, text+".", at))
	}
	return sentences
}
