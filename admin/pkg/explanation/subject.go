package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// The phases that all kinds share: the last part of the names in Cluster Service's enumerations.
const (
	phaseInstalling = "INSTALLING"
	phaseReady      = "READY"
	phaseUpdating   = "UPDATING"
	phaseDeleted    = "DELETED"
	phaseFailed     = "FAILED"
	// phaseAwaitingSecret is a phase of external authentications only.
	phaseAwaitingSecret = "AWAITING_SECRET"
)

// subject is a resource that may wait for something. It holds what all kinds have in common.
type subject struct {
	*facts
	noun, resourceID string
	record           *record
	operation        *operation

	// known is true if Cluster Service has the resource; it reported the following fields.
	known                bool
	phase                string
	generation, observed int64
	deleted              time.Time
	conditions           []*csv1.Condition
	progress             []*csv1.LayerProgress
	secrets              []*csv1.AwaitedSecret
	graph                *csv1.Deletion
	// oneShot is true for credentials and revocations, which have no desired state in ARM.
	oneShot bool
}

// String returns the name of the subject in a sentence, for example `node pool workers`.
func (s *subject) String() string { return s.noun + " " + lastSegment(s.resourceID) }

// title returns the name of the subject at the beginning of a sentence.
func (s *subject) title() string {
	if s.oneShot {
		return upperFirst(s.noun)
	}
	return upperFirst(s.String())
}

// subjects returns the cluster and its children: all that either ARM or Cluster Service has.
func (f *facts) subjects() []*subject {
	cluster := f.target.ResourceID
	list := []*subject{f.clusterSubject()}
	seen := map[string]bool{}
	add := func(s *subject) {
		if key := strings.ToLower(s.resourceID); !seen[key] {
			seen[key] = true
			list = append(list, s)
		}
	}
	for _, p := range f.nodePools {
		s := f.subject("node pool", p.GetResourceId())
		s.known, s.generation, s.deleted = true, p.GetGeneration(), asTime(p.GetDeleteTime())
		s.phase, s.observed = verdict.PhaseName(p.GetStatus().GetPhase()), p.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = p.GetStatus().GetConditions(), p.GetStatus().GetProgress(), p.GetStatus().GetDeletion()
		add(s)
	}
	for _, a := range f.externalAuths {
		s := f.subject("external authentication", a.GetResourceId())
		s.known, s.generation, s.deleted = true, a.GetGeneration(), asTime(a.GetDeleteTime())
		s.phase, s.observed = verdict.PhaseName(a.GetStatus().GetPhase()), a.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = a.GetStatus().GetConditions(), a.GetStatus().GetProgress(), a.GetStatus().GetDeletion()
		s.secrets = a.GetStatus().GetAwaitedSecrets()
		add(s)
	}
	for _, r := range f.records {
		switch {
		case isChild(r.resourceID, cluster, "nodePools"):
			add(f.subject("node pool", r.resourceID))
		case isChild(r.resourceID, cluster, "externalAuths"):
			add(f.subject("external authentication", r.resourceID))
		}
	}
	for _, c := range f.credentials {
		if c.GetStatus().GetState() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING {
			s := f.subject("the credential of "+c.GetSpec().GetRequester(), cluster+"/adminCredentials/"+c.GetUid())
			s.known, s.oneShot, s.phase, s.conditions, s.progress = true, true, phaseInstalling, c.GetStatus().GetConditions(), c.GetStatus().GetProgress()
			add(s)
		}
	}
	for _, r := range f.revocations {
		switch r.GetStatus().GetState() {
		case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:
			s := f.subject("the revocation by "+r.GetRequester(), cluster+"/credentialRevocations/"+r.GetUid())
			s.known, s.oneShot, s.phase, s.conditions, s.progress = true, true, phaseInstalling, r.GetStatus().GetConditions(), r.GetStatus().GetProgress()
			add(s)
		}
	}
	return list
}

func (f *facts) clusterSubject() *subject {
	s := f.subject("cluster", f.target.ResourceID)
	if c := f.cluster; c != nil {
		s.known, s.generation, s.deleted = true, c.GetGeneration(), asTime(c.GetDeleteTime())
		s.phase, s.observed = verdict.PhaseName(c.GetStatus().GetPhase()), c.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = c.GetStatus().GetConditions(), c.GetStatus().GetProgress(), c.GetStatus().GetDeletion()
	}
	return s
}

func (f *facts) subject(noun, resourceID string) *subject {
	return &subject{facts: f, noun: noun, resourceID: resourceID, record: f.record(resourceID), operation: f.operation(resourceID)}
}

// item returns an item about the subject with its summary.
func (s *subject) item(code string, responsible adminv1.Party, summary string, since time.Time) adminv1.ExplanationItem {
	return adminv1.ExplanationItem{
		Code: code, Subject: s.String(), ResourceID: s.resourceID, Responsible: responsible, Since: since,
		Summary: sentenceAt(adminv1.SentenceSummary, summary, since),
	}
}

// explain returns what the subject waits for; false if it waits for nothing.
func (s *subject) explain() (adminv1.ExplanationItem, bool) {
	if graph := s.deletionOf(s.resourceID); graph != nil && !s.missing(adminv1.LayerClusterService) {
		s.graph, s.deleted = &csv1.Deletion{Steps: graph.Steps}, graph.StartTime
		return s.deleting(), true
	}
	switch {
	case !s.known && s.record == nil:
		return s.absent()
	case !s.known:
		return s.onlyInARM()
	case s.phase == phaseDeleted:
		return s.deletedInFleet()
	case s.record == nil && !s.oneShot && !s.missing(adminv1.LayerARM) && s.deleted.IsZero():
		return s.orphaned(), true
	case !s.deleted.IsZero():
		return s.deleting(), true
	case s.phase == phaseLost:
		return s.lostControlPlane(), true
	case s.phase == phaseFailed:
		return s.failed(), true
	case s.record != nil && s.record.generation > s.generation:
		return s.changeNotDelivered(), true
	}
	if entry := s.awaited(); entry != nil {
		if pause := s.pause(); pause != nil && stoppedByPause(entry.GetLayer()) {
			return s.paused(pause), true
		}
		return s.waiting(entry), true
	}
	if pause := s.pause(); pause != nil && s.noun == "cluster" {
		return s.paused(pause), true
	}
	if s.verdict().Concern.Layer != "" {
		return s.withoutProgress(), true
	}
	if item, found := s.operationNotCompleted(); found {
		return item, true
	}
	return s.failedOperation()
}

// verdict returns the verdict of the subject without its children, which are subjects of their own.
func (s *subject) verdict() verdict.Verdict {
	return verdict.Of(s.now, verdict.Resource{ID: s.resourceID, Phase: s.phase, Deleted: s.deleted, Progress: s.progress, Deletion: s.graph})
}

// awaited returns the first progress entry that is not done; nil if all are.
func (s *subject) awaited() *csv1.LayerProgress { return clusterstatus.AwaitedLayer(s.progress) }

// activity returns the predicate that states what happens to the subject.
func (s *subject) activity() string {
	switch {
	case s.oneShot:
		return "was requested"
	case s.phase == phaseReady:
		return "is ready"
	case s.phase == phaseAwaitingSecret:
		return "is in effect"
	case s.phase == phaseUpdating || s.observed > 0:
		return "is being updated"
	}
	return "is being created"
}

// waiting returns the item of a progress entry.
func (s *subject) waiting(entry *csv1.LayerProgress) adminv1.ExplanationItem {
	w, known := waits[[2]string{entry.GetLayer(), entry.GetState()}]
	if !known {
		w = s.unlisted(entry)
	}
	since := asTime(entry.GetSince())
	link := " and has been waiting for "
	if s.phase == phaseReady || s.phase == phaseAwaitingSecret {
		link = ", but has been waiting for "
	}
	summary := s.fill(s.title() + " " + s.activity() + link + w.awaits + " " + s.since(since) + ".")
	if w.summary != "" {
		summary = strings.Replace(s.fill(w.summary), "{since}", s.since(since), 1)
	}
	item := s.item(adminv1.ExplanationWaiting, w.responsible, summary, since)
	item.Layer, item.State = entry.GetLayer(), entry.GetState()
	if w.reporter != "" {
		reason := ""
		if !known {
			reason = entry.GetState() // another system chose it
		}
		for _, reported := range report(s.fill(w.reporter), entry.GetMessage(), reason) {
			reported.Time = since
			item.Evidence = append(item.Evidence, reported)
		}
	}
	if w.evidence != nil {
		item.Evidence = append(item.Evidence, w.evidence(s)...)
	}
	s.assign(&item, w)
	return item
}

// assign sets who must act and what happens next. An SRE must act once the wait is longer than usual.
func (s *subject) assign(item *adminv1.ExplanationItem, w wait) {
	usual := "This usually takes less than " + duration(w.usual) + "."
	act := func(code, text string) { item.Actions = append(item.Actions, sentence(code, s.fill(text))) }
	item.Responsible, item.Command = w.responsible, s.fill(w.command)
	if w.usual > 0 {
		item.UsualDuration = w.usual.String()
		item.Overdue = !item.Since.IsZero() && s.now.Sub(item.Since) > w.usual
	}
	switch {
	case item.Overdue:
		item.Responsible, item.Command = adminv1.PartySRE, s.fill(cmp.Or(w.overdueCommand, mustGather))
		item.Evidence = append(item.Evidence, sentence(adminv1.SentenceUsualDuration, usual))
		if w.likelyCause != "" {
			item.Evidence = append(item.Evidence, sentence(adminv1.SentenceLikelyCause, s.fill(w.likelyCause)))
		}
		act(adminv1.SentenceAction, "Action for an SRE: "+w.overdueAction+".")
	case w.responsible == adminv1.PartyService && w.usual == 0:
		act(adminv1.SentenceNoAction, "No action is needed: hcpmesh continues automatically.")
	case w.responsible == adminv1.PartyService:
		act(adminv1.SentenceNoAction, "No action is needed: hcpmesh continues automatically. "+usual)
	case w.responsible == adminv1.PartyAzure:
		act(adminv1.SentenceNoAction, "No action is needed: Azure is working on it. "+usual)
	case w.responsible == adminv1.PartyCustomer:
		act(adminv1.SentenceAction, "Action for the customer: "+w.action+".")
	default:
		act(adminv1.SentenceAction, "Action for an SRE: "+w.action+".")
	}
	if w.outcome != "" {
		act(adminv1.SentenceOutcome, w.outcome)
	}
	item.Actions = append(item.Actions, s.activeOperation()...)
}

// activeOperation returns a sentence about the customer's operation in progress.
func (s *subject) activeOperation() []adminv1.Sentence {
	o := s.operation
	if o == nil || o.terminal() {
		return nil
	}
	text := "The customer's " + operationNoun(o.request) + " operation " + o.id + " is in progress"
	if !o.deadline.IsZero() {
		text += " and fails if it has not completed by " + s.clock(o.deadline)
	}
	return []adminv1.Sentence{sentenceAt(adminv1.SentenceActiveOperation, text+".", o.deadline)}
}

// fill replaces the placeholders of a text of the tables.
func (s *subject) fill(text string) string {
	shard := s.cluster.GetStatus().GetProvisionShard()
	return strings.NewReplacer("{shard}", cmp.Or(shard, "its management cluster"), "{cluster}", lastSegment(s.target.ResourceID), "{scope}", s.scope(),
		"{asked}", s.facts.name, "{uid}", s.uid(), "{gate}", s.gate(),
		"{component}", cmp.Or(s.component().GetName(), "a component"),
		"{subject}", s.String(), "{noun}", s.noun, "{name}", lastSegment(s.resourceID)).Replace(text)
}

// scope returns the flags with which a customer's command finds the cluster.
func (f *facts) scope() string {
	id, err := arm.ParseResourceID(f.target.ResourceID)
	if err != nil || id.ResourceGroupName == "" {
		return ""
	}
	return " -g " + id.ResourceGroupName + " --subscription " + id.SubscriptionID
}

// condition returns a condition; nil, whose getters return empty strings, if there is none.
func (s *subject) condition(name string) *csv1.Condition {
	i := slices.IndexFunc(s.conditions, func(c *csv1.Condition) bool { return c.GetType() == name })
	if i < 0 {
		return nil
	}
	return s.conditions[i]
}

func asTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// ready returns the item of a cluster that waits for nothing.
func (f *facts) ready() adminv1.ExplanationItem {
	s := f.clusterSubject()
	item := s.item(adminv1.ExplanationReady, adminv1.PartyNone, s.title()+" is ready. Nothing is awaited and no action is needed.", time.Time{})
	if o := s.operation; o != nil && o.status == "Succeeded" && !o.ended.IsZero() {
		item.Evidence = append(item.Evidence, sentenceAt(adminv1.SentenceLastOperation, fmt.Sprintf("Its last operation, %s %s, took %s and succeeded %s ago, at %s.",
			strings.ToLower(o.request), o.id, duration(o.ended.Sub(o.started)), duration(f.now.Sub(o.ended)), f.clock(o.ended)), o.ended))
	}
	return item
}

// description returns where the cluster runs and which node pools it has.
func (f *facts) description() []adminv1.Sentence {
	c := f.cluster
	if c == nil || c.GetDeleteTime() != nil {
		return nil
	}
	var sentences []adminv1.Sentence
	status := c.GetStatus()
	if shard := status.GetProvisionShard(); shard != "" {
		text := "The cluster runs on " + shard + " as " + status.GetClusterId()
		switch versions := status.GetActiveVersions(); len(versions) {
		case 0:
		case 1:
			text += " with version " + versions[0]
		default:
			text += " with versions " + join(versions)
		}
		if status.GetApiUrl() != "" {
			text += "; its API server is " + status.GetApiUrl()
		}
		sentences = append(sentences, sentence(adminv1.SentencePlacement, text+"."))
	}
	sentences = append(append(sentences, f.healthFact()...), f.removals()...)
	var pools []string
	for _, p := range f.nodePools {
		if p.GetDeleteTime() == nil {
			text := lastSegment(p.GetResourceId()) + " (" + count(int64(p.GetStatus().GetReplicas()), "node")
			if version := p.GetStatus().GetVersion(); version != "" {
				text += ", version " + version
			}
			pools = append(pools, text+")")
		}
	}
	switch len(pools) {
	case 0:
	case 1:
		sentences = append(sentences, sentence(adminv1.SentenceNodePools, "Node pool: "+pools[0]+"."))
	default:
		sentences = append(sentences, sentence(adminv1.SentenceNodePools, "Node pools: "+join(pools)+"."))
	}
	return sentences
}
