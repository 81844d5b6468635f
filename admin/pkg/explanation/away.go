package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// layerFacts is the meaning of a layer. Titles may hold the placeholders {shard} and {cluster}.
type layerFacts struct {
	// title names the layer in a sentence.
	title string
	// reports is true if reports about the clusters pass through the layer, so that the last ones may be outdated.
	reports bool
	// impact states what does not happen until the layer is back, as a sentence.
	impact string
	// ignored is true for layers that a cluster does not wait for.
	ignored bool
	command string
}

const (
	noProgress = "Clusters keep running. Requests of customers are stored and executed once it is back."
	noReports  = "Clusters keep running. Changes are delivered and reports arrive once it is back; none is lost."
	regionally = "hcpctl explain"
	showShard  = "hcpctl shard show {shard}"
)

// layerTable holds the layers of package layers.
var layerTable = map[string]layerFacts{
	adminv1.ComponentEtcd:          {title: "etcd", reports: true, impact: "The API servers that use it do not respond until it is back.", command: regionally},
	adminv1.ComponentPostgreSQL:    {title: "PostgreSQL", reports: true, impact: noProgress, command: regionally},
	adminv1.ComponentCosmosDB:      {title: "Cosmos DB", impact: "Clusters keep running. Requests of customers fail with status 503, and operations continue once it is back.", command: regionally},
	adminv1.ComponentMQTTBroker:    {title: "the MQTT broker", reports: true, impact: noReports, command: regionally},
	adminv1.ComponentManagementAPI: {title: "the API server of {shard}", reports: true, impact: noReports, command: showShard},
	adminv1.ComponentMaestroServer: {title: "the Maestro server", reports: true, impact: noReports, command: regionally},
	adminv1.ComponentAgent:         {title: "the agent of {shard}", reports: true, impact: noReports, command: showShard},
	adminv1.ComponentHyperShift: {title: "HyperShift on {shard}", reports: true, command: showShard,
		impact: "Control planes keep running. HyperShift acts on changes and reports about control planes once it is back."},
	adminv1.ComponentHostedAPI:        {title: "the API server of cluster {cluster}", impact: "The customer cannot use the cluster's API; workloads keep running.", command: mustGather},
	adminv1.ComponentClusterService:   {title: "Cluster Service", reports: true, impact: noProgress, command: regionally},
	adminv1.ComponentBackend:          {title: "the backend", impact: "The fleet continues. Operations end, and requests that the frontend could not deliver are delivered, once it is back.", command: regionally},
	adminv1.ComponentFrontend:         {title: "the frontend", ignored: true, impact: "Requests of customers fail; accepted ones continue.", command: regionally},
	adminv1.ComponentManagementWorker: {title: "the controller manager of {shard}", ignored: true, impact: "Namespaces are not removed until it is back.", command: showShard},
}

// predicates state how a component is away: since a known time, for which {since} stands, and since an unknown time.
var predicates = map[adminv1.ComponentState][2]string{
	adminv1.ComponentUnresponsive: {"has not responded {since}", "does not respond"},
	adminv1.ComponentUnreachable:  {"has not been reachable {since}", "is not reachable"},
	adminv1.ComponentNotReady:     {"has not been ready {since}", "is not ready"},
	adminv1.ComponentDiskFull:     {"has had no free disk space {since}", "has no free disk space"},
}

// brief states in few words how a component is away.
var brief = map[adminv1.ComponentState]string{
	adminv1.ComponentUnresponsive: "no response", adminv1.ComponentUnreachable: "not reachable", adminv1.ComponentNotReady: "not ready", adminv1.ComponentDiskFull: "disk full",
}

// shard returns the management cluster of the cluster; empty if it has none or if that is not known.
func (f *facts) shard() string {
	return cmp.Or(f.cluster.GetStatus().GetProvisionShard(), f.target.ProvisionShard)
}

// relevantComponents returns the components that the cluster depends on, and for a layer that could not be read or does not
// report a component that nobody asked.
func (f *facts) relevantComponents() []adminv1.Component {
	shard := f.shard()
	var relevant []adminv1.Component
	for _, c := range f.components {
		ignored := layerTable[c.Layer].ignored && (c.Layer != adminv1.ComponentManagementWorker || f.clusterSubject().deleted.IsZero())
		ofOther := c.ProvisionShard != "" && c.ProvisionShard != shard
		if ignored || ofOther || c.Layer == adminv1.ComponentHostedAPI && !f.controlPlaneAvailable() {
			continue
		}
		relevant = append(relevant, c)
	}
	explained := func(layer string) bool {
		return slices.ContainsFunc(relevant, func(c adminv1.Component) bool {
			return c.Away() && (c.Layer == layer || layers.Needs(layer, c.Layer))
		})
	}
	for _, read := range []struct{ layer, component string }{
		{adminv1.LayerARM, adminv1.ComponentCosmosDB}, {adminv1.LayerClusterService, adminv1.ComponentClusterService},
	} {
		if f.missing(read.layer) && !explained(read.component) {
			relevant = append(relevant, adminv1.Component{Name: read.component, Layer: read.component, State: adminv1.ComponentNotReady, Message: f.unavailable[read.layer], Time: f.now})
		}
	}
	for _, c := range silentAgents(f.shards, relevant, f.now) {
		if c.ProvisionShard == shard {
			relevant = append(relevant, c)
		}
	}
	return relevant
}

// heartbeatLayers are the layers through which the heartbeats of agents reach Cluster Service's database. While one is away, silence
// proves nothing about an agent.
func heartbeatLayers() []string {
	return []string{adminv1.ComponentMQTTBroker, adminv1.ComponentMaestroServer, adminv1.ComponentClusterService, adminv1.ComponentPostgreSQL}
}

// silentAgents returns the agents that send no heartbeats, or, if they have never sent one, those that Cluster Service reports as
// silent. An agent that sends heartbeats is not away, even if it has nothing to report or does not confirm works. An agent is left out
// if a component that is away explains its silence.
func silentAgents(shards []*csv1.ProvisionShard, components []adminv1.Component, now time.Time) []adminv1.Component {
	explained := func(shard string) bool {
		return slices.ContainsFunc(components, func(c adminv1.Component) bool {
			ofShard := c.ProvisionShard == "" || c.ProvisionShard == shard
			return c.Away() && ofShard && (c.Layer == adminv1.ComponentAgent || layers.Needs(adminv1.ComponentAgent, c.Layer) || slices.Contains(heartbeatLayers(), c.Layer))
		})
	}
	var silent []adminv1.Component
	for _, s := range shards {
		since, last := asTime(s.GetUnansweredSince()), asTime(s.GetLastHeardTime())
		away := s.GetAgentSilent()
		if heartbeat := asTime(s.GetLastHeartbeatTime()); !heartbeat.IsZero() {
			since, last, away = heartbeat, heartbeat, now.Sub(heartbeat) > heartbeatOverdue
		}
		if away && !explained(s.GetName()) {
			silent = append(silent, adminv1.Component{Name: s.GetName() + "-" + adminv1.ComponentAgent, Layer: adminv1.ComponentAgent, ProvisionShard: s.GetName(),
				State: adminv1.ComponentUnresponsive, Since: since, LastReady: last, ReportedBy: adminv1.ComponentClusterService, Time: now})
		}
	}
	return silent
}

// controlPlaneAvailable reports whether the last report about the control plane is that it is available, also while it is being
// updated. Until then, and during the deletion, its API server is expected not to respond.
func (f *facts) controlPlaneAvailable() bool {
	if f.cluster.GetDeleteTime() != nil {
		return false
	}
	return f.clusterSubject().condition("Available").GetStatus() == "True" ||
		slices.ContainsFunc(f.cluster.GetStatus().GetProgress(), func(p *csv1.LayerProgress) bool {
			return p.GetLayer() == layerControlPlane && clusterstatus.LayerDone(p)
		})
}

// awayItems returns one item for each outage. The first one has what was reported last about the cluster and its children as
// evidence; the items that are based on it are left out.
func (f *facts) awayItems(outages []layers.Outage, known []adminv1.ExplanationItem) []adminv1.ExplanationItem {
	var items []adminv1.ExplanationItem
	// A layer away through which reports pass makes all reports outdated.
	outdated := slices.ContainsFunc(outages, func(o layers.Outage) bool { return layerTable[o.Layer].reports })
	s := f.clusterSubject()
	for i, o := range outages {
		layer := layerTable[o.Layer]
		item := s.item(adminv1.ExplanationLayerAway, adminv1.PartySRE, s.awaySummary(o.Component), o.Since)
		item.Layer, item.State, item.Command = o.Layer, string(o.State), s.fillFor(o.ProvisionShard, layer.command)
		item.Evidence = s.componentEvidence(o)
		for _, shard := range f.shards {
			if o.Layer == adminv1.ComponentAgent && shard.GetName() == o.ProvisionShard {
				item.Evidence = append(item.Evidence, f.heartbeat(shard)...)
			}
		}
		if i == 0 {
			item.Evidence = append(item.Evidence, f.lastKnown(known, outdated, o.LastReady)...)
		}
		title := s.fillFor(o.ProvisionShard, layer.title)
		item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for an SRE: "+restore(o, title)+"."), sentence(adminv1.SentenceOutcome, layer.impact)}
		if o.Layer == adminv1.ComponentHostedAPI {
			f.addCauses(&item)
		}
		if i == 0 {
			item.Actions = append(item.Actions, s.activeOperation()...)
		}
		items = append(items, item)
	}
	// A lost control plane needs its own decision, whatever is away.
	for _, item := range known {
		if item.Code == adminv1.ExplanationControlPlaneLost {
			items = append(items, item)
		}
	}
	return items
}

// restore states what an SRE must do about an outage of the layer with a title.
func restore(o layers.Outage, title string) string {
	if o.State == adminv1.ComponentDiskFull {
		return "free or add disk space for " + title
	}
	return "restore " + title
}

// awaySummary states which component is away, since when, and what that means for the cluster.
func (s *subject) awaySummary(c adminv1.Component) string {
	predicate := predicates[c.State][1]
	if !c.Since.IsZero() {
		predicate = strings.Replace(predicates[c.State][0], "{since}", s.since(c.Since), 1)
	}
	return upperFirst(s.fillFor(c.ProvisionShard, layerTable[c.Layer].title)) + " " + predicate + ": " + s.consequence(c) + "."
}

// consequence states what an outage means for the cluster.
func (s *subject) consequence(c adminv1.Component) string {
	name := s.String()
	if s.record == nil && !s.known {
		return "the state of " + name + " is unknown"
	}
	operation := s.activeRequest()
	switch {
	case c.Layer == adminv1.ComponentHostedAPI:
		return "the customer cannot use " + name
	case operation != "":
		return "the " + operation + " cannot complete"
	case layerTable[c.Layer].reports:
		return "the current state of " + name + " is unknown"
	}
	return "requests for " + name + " cannot complete"
}

// activeRequest names the oldest operation in progress on the cluster or a child, for example `update of node pool workers`;
// empty if there is none or if ARM could not be read.
func (s *subject) activeRequest() string {
	var oldest *operation
	for i := range s.operations {
		if o := &s.operations[i]; !o.terminal() && (oldest == nil || o.started.Before(oldest.started)) {
			oldest = o
		}
	}
	if oldest == nil {
		if !s.deleted.IsZero() {
			return "deletion of " + s.String()
		}
		return ""
	}
	noun := s.String()
	switch {
	case isChild(oldest.resourceID, s.target.ResourceID, "nodePools"):
		noun = "node pool " + lastSegment(oldest.resourceID)
	case isChild(oldest.resourceID, s.target.ResourceID, "externalAuths"):
		noun = "external authentication " + lastSegment(oldest.resourceID)
	}
	return requestNoun(oldest.request) + " of " + noun
}

// componentEvidence states how a component answered, when it was last ready, and which others need it and are away as well.
func (s *subject) componentEvidence(o layers.Outage) []adminv1.Sentence {
	var evidence []adminv1.Sentence
	for _, c := range append([]adminv1.Component{o.Component}, o.Also...) {
		text := "Component " + c.Name
		if c.ReportedBy != "" {
			text += ", as " + c.ReportedBy + " reports"
		}
		text += " at " + s.clock(c.Time) + ": " + strings.TrimSuffix(cmp.Or(c.Message, brief[c.State]), ".") + "."
		evidence = append(evidence, sentenceAt(adminv1.SentenceComponentState, text, c.Time))
	}
	if !o.LastReady.IsZero() {
		evidence = append(evidence, sentenceAt(adminv1.SentenceComponentState, fmt.Sprintf("It was last ready %s ago, at %s.", duration(s.now.Sub(o.LastReady)), s.clock(o.LastReady)), o.LastReady))
	}
	var dependents []string
	for _, d := range o.Dependents {
		text := s.fillFor(d.ProvisionShard, layerTable[d.Layer].title)
		if !slices.Contains(dependents, text) {
			dependents = append(dependents, text)
		}
	}
	if len(dependents) > 0 {
		evidence = append(evidence, sentence(adminv1.SentenceDependents, "Not ready either, and dependent on it: "+join(dependents)+"."))
	}
	return evidence
}

// lastKnown returns what was reported last, with its time. If reports are outdated, it is the time of the last one.
func (f *facts) lastKnown(items []adminv1.ExplanationItem, outdated bool, lastReady time.Time) []adminv1.Sentence {
	if f.unfound {
		return nil
	}
	at, prefix := f.now, "Currently reported: "
	if outdated {
		at = lastReady
		for _, s := range f.shards {
			for _, heard := range []time.Time{asTime(s.GetLastHeardTime()), asTime(s.GetLastHeartbeatTime())} {
				if s.GetName() == f.shard() && heard.After(at) {
					at = heard
				}
			}
		}
		prefix = "Last report, at an unknown time: "
		if !at.IsZero() {
			prefix = fmt.Sprintf("Last report, %s ago, at %s: ", duration(f.now.Sub(at)), f.clock(at))
		}
	}
	var sentences []adminv1.Sentence
	for _, item := range items {
		text := item.Summary.Text
		switch item.Code {
		case adminv1.ExplanationUnknown, adminv1.ExplanationLayerAway:
			continue
		case adminv1.ExplanationReady:
			text = item.Subject + " was ready."
		}
		sentences = append(sentences, sentenceAt(adminv1.SentenceLastKnown, prefix+lowerFirst(text), at))
	}
	if r := f.record(f.target.ResourceID); r != nil && len(sentences) == 0 {
		sentences = append(sentences, sentenceAt(adminv1.SentenceLastKnown, fmt.Sprintf("ARM shows the cluster as %s.", r.provisioningState), f.now))
	}
	return sentences
}

// fillFor is fill with another management cluster than that of the subject; empty means that of the subject.
func (s *subject) fillFor(shard, text string) string {
	return s.fill(strings.ReplaceAll(text, "{shard}", cmp.Or(shard, "{shard}")))
}

// Unfound returns the explanation for a cluster that could not be looked up because layers are away. Searched is the error of the
// search. It returns nil if no component is away.
func Unfound(name string, now time.Time, components []adminv1.Component, searched string) *adminv1.Explanation {
	f := &facts{now: now, name: name, target: adminv1.Cluster{Name: name, ResourceID: name}, components: components, unfound: true}
	if len(layers.Outages(f.relevantComponents())) == 0 {
		return nil
	}
	e := f.explain()
	e.Cluster = adminv1.Cluster{Name: name}
	e.Partial = true
	e.Items[0].Evidence = append(e.Items[0].Evidence, sentence(adminv1.SentenceReport, "The cluster could not be looked up: "+searched))
	return e
}
