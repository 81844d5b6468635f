package explanation

import (
	"fmt"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// nowhere: neither ARM nor Cluster Service has it.
func (s *subject) nowhere() (Finding, bool) {
	if s.silent(layerClusterService) || s.silent(layerCosmos) {
		return Finding{Subject: s.String(), Who: SRE, Says: "Nothing can be said about " + s.String() + ": what knows of it does not answer.",
			Acts: []string{"An SRE has to act: see which processes of the region are not ready."}, Command: "hcpctl region status"}, true
	}
	return Finding{Subject: s.String(), Who: Nobody, Says: upper(s.String()) + " is not there any more: neither ARM nor Cluster Service has anything of it."}, true
}

// notYetKnown: ARM has it, and Cluster Service does not.
func (s *subject) notYetKnown() (Finding, bool) {
	if s.silent(layerClusterService) {
		if s.noun != "cluster" {
			return Finding{}, false
		}
		finding := Finding{Subject: s.String(), Who: SRE, Layer: layerClusterService, State: "Silent", Command: "hcpctl region status",
			Says: fmt.Sprintf("%s is %s in ARM. What it waits for cannot be said, because Cluster Service does not answer.", upper(s.String()), s.record.ProvisioningState),
			Acts: []string{"An SRE has to act: bring Cluster Service back. The clusters themselves run on without it; what customers ask for meanwhile is kept and done then."}}
		finding.Acts = append(finding.Acts, s.outcome(wait{})...)
		return finding, true
	}
	finding := Finding{Subject: s.String(), Layer: layerClusterService, State: "Unknown"}
	if o := s.operation; o != nil {
		finding.Since = o.StartTime
	}
	w := wait{who: Service, usual: time.Minute, suspicion: "The request is safe, for it is stored; but neither the frontend nor the backend got it through.",
		stuck:        "see what the backend's log says of the operation, and whether Cluster Service is ready",
		stuckCommand: "hcpctl region status", next: "The backend sends it again until Cluster Service has taken it"}
	finding.Says = fmt.Sprintf("%s was accepted, and has been waiting to reach Cluster Service %s.", upper(s.String()), s.since(finding.Since))
	if s.record.ProvisioningState == "Deleting" {
		finding.Says = fmt.Sprintf("%s is gone from the fleet, and has been waiting to be removed from ARM %s.", upper(s.String()), s.since(finding.Since))
		w.suspicion, w.stuck, w.next = "", "see what the backend's log says of the operation", ""
	}
	if o := s.operation; o != nil && o.Status == "Failed" {
		if o.Code == deadlineExceeded {
			return s.neverTaken(finding, s.String()), true
		}
		finding.Says = fmt.Sprintf("%s was refused: it never reached the fleet.", upper(s.String()))
		finding.Because = []string{said("The operation "+o.ID, o.Message, o.Code)}
		finding.Since, finding.Who = o.EndTime, Customer
		finding.Acts = []string{"The customer has to act: change what was asked for, or delete it."}
		return finding, true
	}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(w)...)
	return finding, true
}

// deadlineExceeded is the code of an operation that was not at its end in time.
const deadlineExceeded = "DeadlineExceeded"

// neverTaken: its operation came to its deadline before Cluster Service had taken it, and nobody sends it any more.
func (s *subject) neverTaken(finding Finding, what string) Finding {
	o := s.operation
	finding.Says = fmt.Sprintf("%s never reached the fleet: Cluster Service had not taken it when its operation ended, at %s.", upper(what), s.clock(o.EndTime))
	finding.Because = append(finding.Because, said("The operation "+o.ID, o.Message, o.Code))
	finding.Since, finding.Who = o.EndTime, Customer
	finding.Acts = []string{"The customer has to act: repeat the request, which is sent at once when Cluster Service takes it."}
	return finding
}

// behind: a change was accepted that Cluster Service does not have.
func (s *subject) behind() Finding {
	finding := Finding{Subject: s.String(), Layer: layerClusterService, State: "Behind"}
	if o := s.operation; o != nil {
		finding.Since = o.StartTime
		if o.Status == "Failed" && o.Code == deadlineExceeded {
			finding.Because = []string{fmt.Sprintf("ARM has generation %d, Cluster Service %d.", s.record.Generation, s.generation)}
			return s.neverTaken(finding, "the last change of "+s.String())
		}
	}
	finding.Says = fmt.Sprintf("%s was changed, and the change has been waiting to reach Cluster Service %s.", upper(s.String()), s.since(finding.Since))
	finding.Because = []string{fmt.Sprintf("ARM has generation %d, Cluster Service %d.", s.record.Generation, s.generation)}
	w := wait{who: Service, usual: time.Minute, stuckCommand: "hcpctl region status", next: "The backend sends it again until Cluster Service has taken it",
		stuck: "see what the backend's log says of the operation, and whether Cluster Service is ready"}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(w)...)
	return finding
}

// orphan: Cluster Service has what ARM does not.
func (s *subject) orphan() Finding {
	return Finding{Subject: s.String(), Who: SRE, Layer: layerCosmos, State: "Orphan",
		Says: upper(s.String()) + " has no resource in ARM any more, and stands on " + s.fill("{shard}") + " all the same.",
		Acts: []string{"The backend deletes it once it compares, if ARM's documents prove that it was deleted. Otherwise an SRE has to decide: the list says which it is."}, Command: "hcpctl drift list"}
}

// failure: Cluster Service gave up, until the customer asks for something else.
func (s *subject) failure() Finding {
	finding := Finding{Subject: s.String(), Who: SRE, Command: s.fill(mustGather)}
	for _, p := range s.progress {
		if !done(p) {
			finding.Layer, finding.State, finding.Since = p.GetLayer(), p.GetState(), when(p.GetSince())
			break
		}
	}
	switch {
	case finding.Layer == layerMaestro:
		finding.Says = fmt.Sprintf("%s cannot be brought to what was asked for: Maestro has refused its manifests for good %s.", upper(s.String()), s.since(finding.Since))
		finding.Because = []string{said("Maestro", strings.TrimPrefix(s.message(), "refused: "), "")}
		finding.Acts = []string{"An SRE has to act: this is our rendering, not the customer's mistake, unless they asked for something very large. Tell those who maintain Cluster Service.",
			"The same content is not sent again; any change of the resource is sent at once."}
	case s.condition("Valid").GetStatus() == "False":
		c := s.condition("Valid")
		finding.Since, finding.Who = when(c.GetLastTransitionTime()), Customer
		finding.Says = fmt.Sprintf("%s is not valid: the control plane has refused it %s.", upper(s.String()), s.since(finding.Since))
		finding.Because = []string{said(s.fill(platform), c.GetMessage(), c.GetReason())}
		finding.Acts = []string{"The customer has to act: correct it; the control plane takes what it had before until then."}
	default:
		finding.Says = fmt.Sprintf("%s has failed, and is not tried again until it is changed.", upper(s.String()))
		finding.Because = []string{said("Cluster Service", s.message(), finding.State)}
		finding.Acts = []string{"An SRE has to act."}
	}
	if o := s.operation; o != nil && o.Status == "Failed" {
		finding.Acts = append(finding.Acts, fmt.Sprintf("The customer was told at %s: their operation %s is Failed.", s.clock(o.EndTime), o.ID))
	}
	return finding
}

func (s *subject) message() string {
	if entry := s.awaited(); entry != nil {
		return entry.GetMessage()
	}
	return ""
}

// failedOperation: nothing is awaited, but what the customer was told is that it failed.
func (s *subject) failedOperation() (Finding, bool) {
	o := s.operation
	if s.record == nil || s.record.ProvisioningState != "Failed" || o == nil || o.Status != "Failed" {
		return Finding{}, false
	}
	if o.Request == "Delete" {
		return Finding{Subject: s.String(), Who: Customer, Since: o.EndTime,
			Says:    fmt.Sprintf("%s is still there: its deletion failed %s ago, at %s, and the fleet has not begun with it.", upper(s.String()), lasting(s.Now.Sub(o.EndTime)), s.clock(o.EndTime)),
			Because: []string{said("The operation "+o.ID, o.Message, o.Code)},
			Acts:    []string{"The customer has to act: delete it again, if that is still wanted."},
		}, true
	}
	return Finding{Subject: s.String(), Who: Customer, Since: o.EndTime,
		Says: fmt.Sprintf("%s is ready now, but its last operation failed %s ago, at %s.", upper(s.String()), lasting(s.Now.Sub(o.EndTime)), s.clock(o.EndTime)),
		Because: []string{said(fmt.Sprintf("The operation %s (%s)", o.ID, strings.ToLower(o.Request)), o.Message, o.Code),
			"The fleet went on after that, and has come to what was asked for."},
		Acts: []string{"The customer has to act: repeat the request, which changes nothing and is Succeeded at once. Until then ARM shows the " + s.noun + " as Failed."},
	}, true
}

// pause is the cluster's while it lasts; nil when there is none.
func (f *Facts) pause() *csv1.ClusterPause {
	pause := f.Cluster.GetOverrides().GetPause()
	if pause == nil || !f.Now.Before(when(pause.GetUntil())) {
		return nil
	}
	return pause
}

// stops says whether a layer does nothing for a cluster that is paused.
func stops(layer string) bool {
	return layer == layerControlPlane || layer == layerNodePool || layer == layerUpgrade
}

// paused: an SRE has stopped HyperShift for the cluster.
func (s *subject) paused(pause *csv1.ClusterPause) Finding {
	since, actor := when(pause.GetTime()), pause.GetActor()
	finding := Finding{Subject: s.String(), Layer: layerPaused, State: "Paused", Since: since, Who: SRE,
		Says:    fmt.Sprintf("%s has been paused %s: HyperShift does nothing about it until %s.", upper(s.String()), s.since(since), s.clock(when(pause.GetUntil()))),
		Because: []string{fmt.Sprintf("%s paused it, because: %s.", actor.GetName(), strings.TrimSuffix(actor.GetReason(), "."))},
		Acts: []string{fmt.Sprintf("An SRE has to act: resume it when that is over. It resumes by itself at %s.", s.clock(when(pause.GetUntil()))),
			"What runs keeps running; what the customer asks for meanwhile waits, and is done then."},
		Command: s.fill("hcpctl cluster resume {asked} --reason … --ticket …"),
	}
	if ticket := actor.GetTicket(); ticket != "" {
		finding.Because = append(finding.Because, "The ticket is "+ticket+".")
	}
	if entry := s.awaited(); entry != nil {
		finding.Because = append(finding.Because, "Under way was: "+lower(entry.GetMessage()))
	}
	finding.Acts = append(finding.Acts, s.outcome(wait{})...)
	return finding
}

// unsaid: it is not what was asked for, and no layer says what is awaited.
func (s *subject) unsaid() Finding {
	finding := Finding{Subject: s.String(), Layer: layerClusterService, State: "Unsaid"}
	if o := s.operation; o != nil {
		finding.Since = o.StartTime
	}
	for _, p := range s.progress {
		if at := when(p.GetSince()); at.After(finding.Since) {
			finding.Since = at
		}
	}
	finding.Says = fmt.Sprintf("%s %s, and has been waiting for Cluster Service to take the next step %s.", upper(s.title()), s.does(), s.since(finding.Since))
	w := wait{who: Service, usual: time.Minute, stuck: "see what its log says of {subject}"}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(w)...)
	return finding
}

// gone: only the tombstone is left.
func (s *subject) gone() (Finding, bool) {
	if s.record == nil || s.silent(layerCosmos) {
		if s.noun != "cluster" {
			return Finding{}, false
		}
		return Finding{Subject: s.String(), Who: Nobody,
			Says: fmt.Sprintf("%s was deleted: it was asked for at %s, and nothing of it is left. Nobody has to act.", upper(s.String()), s.clock(s.deleted))}, true
	}
	if s.noun != "cluster" && s.record.ProvisioningState != "Deleting" {
		return Finding{}, false
	}
	finding := Finding{Subject: s.String(), Layer: layerCosmos, State: "Removing"}
	for _, p := range s.progress {
		finding.Since = when(p.GetSince())
	}
	finding.Says = fmt.Sprintf("%s is gone from the fleet, and has been waiting to be removed from ARM %s.", upper(s.String()), s.since(finding.Since))
	w := wait{who: Service, usual: time.Minute, stuck: "see what the backend's log says of the operation"}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(w)...)
	return finding, true
}
