package explanation

import (
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

const (
	regionStatus = "hcpctl region status"
	resent       = "The backend sends the request until Cluster Service accepts it."
	checkRequest = "search the backend's log for the operation, and check that Cluster Service is ready"
	checkBackend = "search the backend's log for the operation"
)

// absent returns the item of a resource that neither ARM nor Cluster Service has.
func (s *subject) absent() (adminv1.ExplanationItem, bool) {
	if s.missing(adminv1.LayerClusterService) || s.missing(adminv1.LayerARM) {
		item := s.item(adminv1.ExplanationUnknown, adminv1.PartySRE, "The state of "+s.String()+" is unknown: the layers that hold it could not be read.", time.Time{})
		item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for an SRE: find the processes of the region that are not ready.")}
		item.Command = regionStatus
		return item, true
	}
	return s.item(adminv1.ExplanationDeleted, adminv1.PartyNone, s.title()+" no longer exists: neither ARM nor Cluster Service has it.", time.Time{}), true
}

// onlyInARM returns the item of a resource that ARM has and Cluster Service does not.
func (s *subject) onlyInARM() (adminv1.ExplanationItem, bool) {
	if s.missing(adminv1.LayerClusterService) {
		if s.noun != "cluster" {
			return adminv1.ExplanationItem{}, false
		}
		item := s.item(adminv1.ExplanationUnknown, adminv1.PartySRE, fmt.Sprintf("%s is %s in ARM. What it waits for is unknown, because Cluster Service could not be read.",
			s.title(), s.record.provisioningState), time.Time{})
		item.Layer, item.State = adminv1.LayerClusterService, "Unavailable"
		item.Actions = append([]adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for an SRE: restore Cluster Service."),
			sentence(adminv1.SentenceOutcome, "Clusters keep running without it; requests of customers are stored and executed later.")}, s.activeOperation()...)
		item.Command = regionStatus
		return item, true
	}
	var since time.Time
	if o := s.operation; o != nil {
		since = o.started
	}
	if o := s.operation; o != nil && o.status == "Failed" {
		if o.code == deadlineExceeded {
			return s.deliveryExpired(s.String(), nil), true
		}
		item := s.item(adminv1.ExplanationRequestRejected, adminv1.PartyCustomer, s.title()+" was rejected and never reached the fleet.", o.ended)
		item.Layer, item.State = adminv1.LayerClusterService, "Unknown"
		item.Evidence = operationError(o)
		item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for the customer: change the request, or delete the resource.")}
		return item, true
	}
	code, summary := adminv1.ExplanationNotDelivered, fmt.Sprintf("%s was accepted and has been waiting to reach Cluster Service %s.", s.title(), s.since(since))
	w := wait{responsible: adminv1.PartyService, usual: time.Minute, likelyCause: "The request is stored, but neither the frontend nor the backend could deliver it.",
		overdueAction: checkRequest, overdueCommand: regionStatus, outcome: resent}
	if s.record.provisioningState == "Deleting" {
		code, summary = adminv1.ExplanationRemovalPending, fmt.Sprintf("%s is gone from the fleet and has been waiting to be removed from ARM %s.", s.title(), s.since(since))
		w.likelyCause, w.overdueAction, w.outcome, w.usual = "", checkBackend, "", backendDelay
	}
	item := s.item(code, adminv1.PartyService, summary, since)
	item.Layer, item.State = adminv1.LayerClusterService, "Unknown"
	s.assign(&item, w)
	return item, true
}

// deadlineExceeded is the error code of an operation that did not complete in time.
const deadlineExceeded = "DeadlineExceeded"

// deliveryExpired returns the item of a request whose operation reached its deadline before Cluster Service accepted it.
// The backend does not send it any more.
func (s *subject) deliveryExpired(what string, evidence []adminv1.Sentence) adminv1.ExplanationItem {
	o := s.operation
	item := s.item(adminv1.ExplanationDeliveryExpired, adminv1.PartyCustomer, fmt.Sprintf("%s never reached the fleet: Cluster Service had not accepted it when its operation ended at %s.",
		upperFirst(what), s.clock(o.ended)), o.ended)
	item.Layer, item.State = adminv1.LayerClusterService, "Expired"
	item.Evidence = append(evidence, operationError(o)...)
	item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for the customer: repeat the request; it is sent once Cluster Service accepts it.")}
	return item
}

// operationError quotes the error of an operation.
func operationError(o *operation) []adminv1.Sentence {
	return quoted(adminv1.SentenceOperationError, fmt.Sprintf("The %s operation %s failed with", operationNoun(o.request), o.id), o.message, o.code)
}

// changeNotDelivered returns the item of a change that Cluster Service has not received.
func (s *subject) changeNotDelivered() adminv1.ExplanationItem {
	generations := []adminv1.Sentence{sentence(adminv1.SentenceGenerations, fmt.Sprintf("ARM has generation %d, Cluster Service has generation %d.", s.record.generation, s.generation))}
	var since time.Time
	if o := s.operation; o != nil {
		since = o.started
		if o.status == "Failed" && o.code == deadlineExceeded {
			return s.deliveryExpired("the last change of "+s.String(), generations)
		}
	}
	item := s.item(adminv1.ExplanationNotDelivered, adminv1.PartyService, fmt.Sprintf("%s was changed, and the change has been waiting to reach Cluster Service %s.", s.title(), s.since(since)), since)
	item.Layer, item.State = adminv1.LayerClusterService, "Behind"
	item.Evidence = generations
	s.assign(&item, wait{responsible: adminv1.PartyService, usual: time.Minute, overdueCommand: regionStatus, outcome: resent, overdueAction: checkRequest})
	return item
}

// orphaned returns the item of a resource that Cluster Service has and ARM does not.
func (s *subject) orphaned() adminv1.ExplanationItem {
	item := s.item(adminv1.ExplanationOrphaned, adminv1.PartySRE, s.title()+" has no resource in ARM, but still exists on "+s.fill("{shard}")+".", time.Time{})
	item.Layer, item.State = adminv1.LayerARM, "Orphan"
	item.Actions = []adminv1.Sentence{
		sentence(adminv1.SentenceOutcome, "The backend deletes it at its next comparison if ARM's documents prove that it was deleted."),
		sentence(adminv1.SentenceAction, "Action for an SRE otherwise: decide whether to delete it; the list of drifts shows the proof."),
	}
	item.Command = "hcpctl drift list"
	return item
}

// failed returns the item of a resource that Cluster Service does not retry until it changes.
func (s *subject) failed() adminv1.ExplanationItem {
	var layer, state, message string
	var since time.Time
	if entry := s.awaited(); entry != nil {
		layer, state, message, since = entry.GetLayer(), entry.GetState(), entry.GetMessage(), asTime(entry.GetSince())
	}
	var item adminv1.ExplanationItem
	action := func(text string) { item.Actions = append(item.Actions, sentence(adminv1.SentenceAction, text)) }
	valid := s.condition("Valid")
	switch {
	case layer == layerMaestro:
		item = s.item(adminv1.ExplanationManifestsRejected, adminv1.PartySRE, fmt.Sprintf("%s cannot reach its desired state: Maestro has permanently rejected its manifests %s.", s.title(), s.since(since)), since)
		item.Evidence = report("Maestro", message, "")
		action("Action for an SRE: inform the maintainers of Cluster Service. This is a fault of the rendering and not of the customer, unless the request was very large.")
		item.Actions = append(item.Actions, sentence(adminv1.SentenceOutcome, "The same manifests are not sent again; any change of the resource is sent immediately."))
	case layer == layerManagementCluster && state == clusterstatus.StateRefused:
		item = s.applyRefused(message, since)
	case valid.GetStatus() == "False":
		since = asTime(valid.GetLastTransitionTime())
		item = s.item(adminv1.ExplanationInvalid, adminv1.PartyCustomer, fmt.Sprintf("%s is invalid: the control plane has rejected it %s.", s.title(), s.since(since)), since)
		item.Evidence = report(s.fill(hyperShift), valid.GetMessage(), valid.GetReason())
		action("Action for the customer: correct it. The control plane keeps the previous configuration until then.")
	default:
		item = s.item(adminv1.ExplanationFailed, adminv1.PartySRE, fmt.Sprintf("%s has failed; Cluster Service retries only after a change.", s.title()), since)
		item.Evidence = report("Cluster Service", message, state)
		action("Action for an SRE: find the cause in the evidence.")
	}
	item.Layer, item.State, item.Command = layer, state, s.fill(mustGather)
	if o := s.operation; o != nil && o.status == "Failed" {
		item.Actions = append(item.Actions, sentenceAt(adminv1.SentenceCustomerNotified, fmt.Sprintf("The customer's operation %s failed at %s.", o.id, s.clock(o.ended)), o.ended))
	}
	return item
}

// waitingDoesNotHelp is the outcome of a permanent refusal.
const waitingDoesNotHelp = "Waiting and repeating the request do not help: {shard} keeps what it accepted last until a person changes the {noun} or {shard}."

// applyRefused returns the item of a resource whose manifests the management cluster permanently refuses. The customer must act if a property
// can be chosen otherwise, and an SRE in all other cases.
func (s *subject) applyRefused(message string, since time.Time) adminv1.ExplanationItem {
	responsible, action := adminv1.PartySRE, "Action for an SRE: "+checkRefusal+"."
	if properties := clusterstatus.RefusedProperties(s.condition(clusterstatus.Applied).GetMessage()); len(properties) > 0 {
		responsible = adminv1.PartyCustomer
		action = "Action for the customer: choose another value of " + join(properties) + ", or delete the {noun} and create it again."
	}
	item := s.item(adminv1.ExplanationApplyRefused, responsible, s.fill(s.title()+" cannot reach its desired state: {shard} has permanently refused its manifests "+s.since(since)+"."), since)
	item.Evidence = report(s.fill("The API server of {shard}"), message, "")
	item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, s.fill(action)), sentence(adminv1.SentenceOutcome, s.fill(waitingDoesNotHelp))}
	if responsible == adminv1.PartyCustomer {
		item.Actions = append(item.Actions, sentence(adminv1.SentenceOutcome, "The alert WorksRefused notifies the engineers: the service should have rejected the request."))
	}
	return item
}

// checkRefusal is the action of a refusal that no property of the customer causes.
const checkRefusal = "compare the kinds and policies of {shard} with those of other management clusters, and inform the maintainers of Cluster Service"

// failedOperation returns the item of a resource that waits for nothing although its last operation failed.
func (s *subject) failedOperation() (adminv1.ExplanationItem, bool) {
	o := s.operation
	if s.record == nil || s.record.provisioningState != "Failed" || o == nil || o.status != "Failed" {
		return adminv1.ExplanationItem{}, false
	}
	when := fmt.Sprintf("failed %s ago, at %s", duration(s.now.Sub(o.ended)), s.clock(o.ended))
	if o.request == "Delete" {
		item := s.item(adminv1.ExplanationDeletionFailed, adminv1.PartyCustomer, fmt.Sprintf("%s still exists: its deletion %s, before the fleet began it.", s.title(), when), o.ended)
		item.Evidence = operationError(o)
		item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for the customer: repeat the deletion if it is still wanted.")}
		return item, true
	}
	item := s.item(adminv1.ExplanationOperationFailed, adminv1.PartyCustomer, fmt.Sprintf("%s is ready now, but its last operation %s.", s.title(), when), o.ended)
	item.Evidence = append(operationError(o), sentence(adminv1.SentenceContinuedInFleet, "The fleet continued after that and reached the desired state."))
	item.Actions = []adminv1.Sentence{
		sentence(adminv1.SentenceAction, "Action for the customer: repeat the request. It changes nothing and succeeds immediately."),
		sentence(adminv1.SentenceOutcome, "Until then ARM shows the "+s.noun+" as Failed."),
	}
	return item, true
}

// backendDelay is the time in which the backend completes an operation after the fleet has reached the desired state.
const backendDelay = 5 * time.Second

// operationNotCompleted returns the item of a resource that the fleet has brought to its desired state while its operation is in
// progress: only the backend completes operations.
func (s *subject) operationNotCompleted() (adminv1.ExplanationItem, bool) {
	o := s.operation
	if o == nil || s.record == nil || o.terminal() || (o.request != "Create" && o.request != "Update") || s.observed < s.record.generation {
		return adminv1.ExplanationItem{}, false
	}
	since := o.started
	for _, p := range s.progress {
		if at := asTime(p.GetSince()); at.After(since) {
			since = at
		}
	}
	item := s.item(adminv1.ExplanationOperationNotCompleted, adminv1.PartyService,
		fmt.Sprintf("The fleet completed the %s of %s, but the backend has not completed its operation %s.", operationNoun(o.request), s, s.since(since)), since)
	item.Layer, item.State = adminv1.ComponentBackend, "OperationOpen"
	s.assign(&item, wait{responsible: adminv1.PartyService, usual: backendDelay, overdueAction: checkBackend + ", and check that it runs", overdueCommand: regionStatus})
	return item, true
}

// pause returns the pause of the cluster while it lasts; nil if there is none.
func (f *facts) pause() *csv1.ClusterPause {
	pause := f.cluster.GetOverrides().GetPause()
	if pause == nil || !f.now.Before(asTime(pause.GetUntil())) {
		return nil
	}
	return pause
}

// stoppedByPause reports whether a layer does nothing for a paused cluster.
func stoppedByPause(layer string) bool {
	return layer == layerControlPlane || layer == layerNodePool || layer == layerUpgrade
}

// paused returns the item of a subject for which an SRE paused HyperShift.
func (s *subject) paused(pause *csv1.ClusterPause) adminv1.ExplanationItem {
	since, until, actor := asTime(pause.GetTime()), s.clock(asTime(pause.GetUntil())), pause.GetActor()
	item := s.item(adminv1.ExplanationPaused, adminv1.PartySRE, fmt.Sprintf("%s has been paused %s: HyperShift does not reconcile it until %s.", s.title(), s.since(since), until), since)
	item.Layer, item.State, item.Command = layerPaused, "Paused", s.fill("hcpctl cluster resume {asked} --reason … --ticket …")
	item.Evidence = []adminv1.Sentence{sentence(adminv1.SentencePauseReason, fmt.Sprintf("%s paused it. Reason: %s.", actor.GetName(), strings.TrimSuffix(actor.GetReason(), ".")))}
	if ticket := actor.GetTicket(); ticket != "" {
		item.Evidence = append(item.Evidence, sentence(adminv1.SentenceTicket, "Ticket: "+ticket+"."))
	}
	if entry := s.awaited(); entry != nil {
		item.Evidence = append(item.Evidence, sentence(adminv1.SentenceInterruptedState, "Interrupted state: "+lowerFirst(entry.GetMessage())))
	}
	item.Actions = append([]adminv1.Sentence{
		sentence(adminv1.SentenceAction, fmt.Sprintf("Action for an SRE: resume it when the reason no longer applies. It resumes automatically at %s.", until)),
		sentence(adminv1.SentenceOutcome, "Workloads keep running; changes by the customer are stored and applied later."),
	}, s.activeOperation()...)
	return item
}

// withoutProgress returns the item of a resource that is not in its desired state while no layer reports what is awaited.
func (s *subject) withoutProgress() adminv1.ExplanationItem {
	var since time.Time
	if o := s.operation; o != nil {
		since = o.started
	}
	for _, p := range s.progress {
		if at := asTime(p.GetSince()); at.After(since) {
			since = at
		}
	}
	item := s.item(adminv1.ExplanationNoProgress, adminv1.PartyService, fmt.Sprintf("%s %s and has been waiting for Cluster Service to start the next step %s.", s.title(), s.activity(), s.since(since)), since)
	item.Layer, item.State = adminv1.LayerClusterService, "NoProgress"
	s.assign(&item, wait{responsible: adminv1.PartyService, usual: time.Minute, overdueAction: "search the log of Cluster Service for {subject}"})
	return item
}

// deletedInFleet returns the item of a resource of which Cluster Service has only the deletion record.
func (s *subject) deletedInFleet() (adminv1.ExplanationItem, bool) {
	if s.record == nil || s.missing(adminv1.LayerARM) {
		if s.noun != "cluster" {
			return adminv1.ExplanationItem{}, false
		}
		return s.item(adminv1.ExplanationDeleted, adminv1.PartyNone, fmt.Sprintf("%s is deleted. The deletion was requested at %s, and nothing is left. No action is needed.",
			s.title(), s.clock(s.deleted)), time.Time{}), true
	}
	if s.noun != "cluster" && s.record.provisioningState != "Deleting" {
		return adminv1.ExplanationItem{}, false
	}
	var since time.Time
	for _, p := range s.progress {
		since = asTime(p.GetSince())
	}
	item := s.item(adminv1.ExplanationRemovalPending, adminv1.PartyService, fmt.Sprintf("%s is gone from the fleet and has been waiting to be removed from ARM %s.", s.title(), s.since(since)), since)
	item.Layer, item.State = adminv1.ComponentBackend, "Removing"
	s.assign(&item, wait{responsible: adminv1.PartyService, usual: backendDelay, overdueAction: checkBackend})
	return item, true
}
