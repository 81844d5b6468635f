package explanation

import (
	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// faultCustomer is the fault of concerns that the customer causes and can end.
const faultCustomer = "customer"

// unknownHealth states why the state of an API is unknown, by reason. A reason that this release does not know stands for itself.
var unknownHealth = map[string]string{
	adminv1.HealthMonitorAway: "monitor does not observe the cluster",
	adminv1.HealthNotRecorded: "monitor has not probed the cluster yet",
	adminv1.HealthBlind:       "monitor cannot see any cluster",
	"not_ready":               "the cluster is not ready, or is being deleted",
	"no_endpoint":             "the URL of the API is not known yet",
	"blocked":                 "the customer does not allow connections from monitor: the API is private or has authorized CIDRs",
	"not_probed":              "no probe ended within the last 90 seconds",
	"probe_failed":            "the last probe failed in monitor itself",
	"inside_silent":           "the customer does not allow connections from monitor, and the prober of the management cluster does not report",
}

// guestConcerns are the kinds of monitor's concerns that are about the nodes of a cluster, and not about its API.
var guestConcerns = map[string]bool{"machines_missing": true, "nodes_not_ready": true, "data_plane_disconnected": true, "degraded": true, "operators_fail": true}

// concerns returns one item for each concern of monitor. A deletion ends them.
func (f *facts) concerns() []adminv1.ExplanationItem {
	if f.health == nil || f.cluster.GetDeleteTime() != nil {
		return nil
	}
	s := f.clusterSubject()
	var items []adminv1.ExplanationItem
	for _, c := range f.health.Concerns {
		responsible, action, command := adminv1.PartySRE, "Action for an SRE: ", s.fill(mustGather)
		if c.Fault == faultCustomer {
			responsible, action, command = adminv1.PartyCustomer, "Action for the customer: ", ""
		}
		state := "needs attention"
		if f.health.API == adminv1.HealthUnavailable {
			state = "has been unavailable"
		}
		subject := "The API of " + s.String()
		if guestConcerns[c.Kind] {
			subject = upperFirst(s.String())
		}
		item := s.item(adminv1.ExplanationConcern, responsible, subject+" "+state+" "+f.since(c.Since)+": "+c.Summary+".", c.Since)
		item.Layer, item.State, item.Command = adminv1.LayerMonitor, c.Kind, command
		item.Evidence = report("Monitor", c.Evidence, c.Kind)
		if c.Help != "" {
			item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, action+lowerFirst(c.Help))}
		}
		items = append(items, item)
	}
	return items
}

// addCauses adds to the item of an API server that is away what monitor sees, and what helps. Without it, only the symptom is known.
func (f *facts) addCauses(item *adminv1.ExplanationItem) {
	for i, c := range f.concerns() {
		item.Evidence = append(append(item.Evidence, c.Summary), c.Evidence...)
		if i == 0 && len(c.Actions) > 0 {
			item.Responsible = c.Responsible
			item.Actions = append(c.Actions, item.Actions[1:]...)
		}
	}
}

// healthFact returns the state of the API of a cluster that has one, or why that is unknown.
func (f *facts) healthFact() []adminv1.Sentence {
	h := f.health
	if h == nil || f.cluster.GetStatus().GetApiUrl() == "" {
		return nil
	}
	if h.API != adminv1.HealthUnknown {
		return []adminv1.Sentence{sentenceAt(adminv1.SentenceHealth, "Monitor sees that the API has been "+h.API+" "+f.since(h.Since)+".", h.Since)}
	}
	text, known := unknownHealth[h.Reason]
	if !known {
		text = h.Reason
	}
	if h.Detail != "" {
		text += " (" + h.Detail + ")"
	}
	return []adminv1.Sentence{sentenceAt(adminv1.SentenceHealth, "Whether the API is available is unknown: "+text+".", h.Since)}
}
