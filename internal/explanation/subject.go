package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The phases that all kinds share, as Cluster Service's enumerations end.
const (
	phaseInstalling = "INSTALLING"
	phaseReady      = "READY"
	phaseUpdating   = "UPDATING"
	phaseDeleting   = "DELETING"
	phaseDeleted    = "DELETED"
	phaseFailed     = "FAILED"
	// phaseAwaitingSecret is of external auths only.
	phaseAwaitingSecret = "AWAITING_SECRET"
)

// subject is a resource that may be waiting for something: what all kinds have in common.
type subject struct {
	*Facts
	noun, resourceID string
	record           *Record
	operation        *Operation

	// known says that Cluster Service has it; what follows is its word.
	known                bool
	phase                string
	generation, observed int64
	deleted              time.Time
	conditions           []*csv1.Condition
	progress             []*csv1.LayerProgress
	secrets              []*csv1.AwaitedSecret
	graph                *csv1.Deletion
	// errand is set for what is asked for once: credentials and revocations.
	errand bool
}

// String is how a sentence calls it, as in `node pool workers`.
func (s *subject) String() string { return s.noun + " " + nameOf(s.resourceID) }

// subjects are the cluster and what belongs to it, those that either ARM or Cluster Service knows.
func (f *Facts) subjects() []*subject {
	cluster := f.clusterID()
	list := []*subject{f.cluster(cluster)}
	seen := map[string]bool{}
	add := func(s *subject) {
		if key := strings.ToLower(s.resourceID); !seen[key] {
			seen[key] = true
			list = append(list, s)
		}
	}
	for _, p := range f.NodePools {
		s := f.subject("node pool", p.GetResourceId())
		s.known, s.generation, s.deleted = true, p.GetGeneration(), when(p.GetDeleteTime())
		s.phase, s.observed = phase(p.GetStatus().GetPhase().String()), p.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = p.GetStatus().GetConditions(), p.GetStatus().GetProgress(), p.GetStatus().GetDeletion()
		add(s)
	}
	for _, a := range f.ExternalAuths {
		s := f.subject("external auth", a.GetResourceId())
		s.known, s.generation, s.deleted = true, a.GetGeneration(), when(a.GetDeleteTime())
		s.phase, s.observed = phase(a.GetStatus().GetPhase().String()), a.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = a.GetStatus().GetConditions(), a.GetStatus().GetProgress(), a.GetStatus().GetDeletion()
		s.secrets = a.GetStatus().GetAwaitedSecrets()
		add(s)
	}
	for _, r := range f.Records {
		switch {
		case child(r.ResourceID, cluster, "nodePools"):
			add(f.subject("node pool", r.ResourceID))
		case child(r.ResourceID, cluster, "externalAuths"):
			add(f.subject("external auth", r.ResourceID))
		}
	}
	for _, c := range f.Credentials {
		if c.GetStatus().GetState() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING {
			s := f.subject("the credential of "+c.GetSpec().GetRequester(), cluster+"/adminCredentials/"+c.GetUid())
			s.known, s.errand, s.phase, s.conditions, s.progress = true, true, phaseInstalling, c.GetStatus().GetConditions(), c.GetStatus().GetProgress()
			add(s)
		}
	}
	for _, r := range f.Revocations {
		switch r.GetStatus().GetState() {
		case csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:
			s := f.subject("the revocation by "+r.GetRequester(), cluster+"/credentialRevocations/"+r.GetUid())
			s.known, s.errand, s.phase, s.conditions, s.progress = true, true, phaseInstalling, r.GetStatus().GetConditions(), r.GetStatus().GetProgress()
			add(s)
		}
	}
	return list
}

func (f *Facts) cluster(resourceID string) *subject {
	s := f.subject("cluster", resourceID)
	if c := f.Cluster; c != nil {
		s.known, s.generation, s.deleted = true, c.GetGeneration(), when(c.GetDeleteTime())
		s.phase, s.observed = phase(c.GetStatus().GetPhase().String()), c.GetStatus().GetObservedGeneration()
		s.conditions, s.progress, s.graph = c.GetStatus().GetConditions(), c.GetStatus().GetProgress(), c.GetStatus().GetDeletion()
	}
	return s
}

func (f *Facts) subject(noun, resourceID string) *subject {
	return &subject{Facts: f, noun: noun, resourceID: resourceID, record: f.record(resourceID), operation: f.operation(resourceID)}
}

// title is how a sentence calls it where it is the subject.
func (s *subject) title() string {
	if s.errand {
		return s.noun
	}
	return s.String()
}

// explain says what it waits for; nothing when it does not.
func (s *subject) explain() (Finding, bool) {
	if going := s.deletionOf(s.resourceID); going != nil && !s.silent(layerClusterService) {
		s.graph, s.deleted = &csv1.Deletion{Steps: going.Steps}, going.StartTime
		return s.deletion(), true
	}
	switch {
	case !s.known && s.record == nil:
		return s.nowhere()
	case !s.known:
		return s.notYetKnown()
	case s.phase == phaseDeleted:
		return s.gone()
	case s.record == nil && !s.errand && !s.silent(layerCosmos) && s.deleted.IsZero():
		return s.orphan(), true
	case !s.deleted.IsZero():
		return s.deletion(), true
	case s.phase == phaseFailed:
		return s.failure(), true
	case s.record != nil && s.record.Generation > s.generation:
		return s.behind(), true
	}
	if entry := s.awaited(); entry != nil {
		if pause := s.pause(); pause != nil && stops(entry.GetLayer()) {
			return s.paused(pause), true
		}
		return s.waiting(entry), true
	}
	if pause := s.pause(); pause != nil && s.noun == "cluster" {
		return s.paused(pause), true
	}
	if s.phase != phaseReady {
		return s.unsaid(), true
	}
	return s.failedOperation()
}

// awaited is the outermost entry of the progress that is not done.
func (s *subject) awaited() *csv1.LayerProgress {
	i := slices.IndexFunc(s.progress, func(p *csv1.LayerProgress) bool { return !done(p) })
	if i < 0 {
		return nil
	}
	return s.progress[i]
}

// does says what is under way with it.
func (s *subject) does() string {
	switch {
	case s.errand:
		return "was asked for"
	case s.phase == phaseReady:
		return "is ready"
	case s.phase == phaseAwaitingSecret:
		return "is in effect"
	case s.phase == phaseUpdating || s.observed > 0:
		return "is being changed"
	}
	return "is being created"
}

// waiting says what is awaited.
func (s *subject) waiting(entry *csv1.LayerProgress) Finding {
	w, known := waits[[2]string{entry.GetLayer(), entry.GetState()}]
	if !known {
		w = s.inGeneral(entry)
	}
	since := when(entry.GetSince())
	finding := Finding{Subject: s.String(), Layer: entry.GetLayer(), State: entry.GetState(), Since: since}
	link := ", and has been waiting for "
	if s.phase == phaseReady || s.phase == phaseAwaitingSecret {
		link = ", but has been waiting for "
	}
	finding.Says = s.fill(upper(s.title()) + " " + s.does() + link + w.awaits + " " + s.since(since) + ".")
	if w.headline != "" {
		finding.Says = strings.Replace(s.fill(w.headline), "{since}", s.since(since), 1)
	}
	if w.speaker != "" {
		finding.Because = append(finding.Because, said(s.fill(w.speaker), strings.TrimPrefix(entry.GetMessage(), w.strip), s.reason(entry)))
	}
	if w.evidence != nil {
		finding.Because = append(finding.Because, w.evidence(s)...)
	}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(w)...)
	return finding
}

// reason is the state where it is one that another system gave.
func (s *subject) reason(entry *csv1.LayerProgress) string {
	if _, known := waits[[2]string{entry.GetLayer(), entry.GetState()}]; known {
		return ""
	}
	return entry.GetState()
}

// act says who has to act, which may change with how long it has been.
func (s *subject) act(finding *Finding, w wait) {
	late := w.usual > 0 && !finding.Since.IsZero() && s.Now.Sub(finding.Since) > w.usual
	usual := "it usually takes less than " + lasting(w.usual)
	finding.Who, finding.Command = w.who, s.fill(w.command)
	switch {
	case late:
		finding.Who, finding.Command = SRE, s.fill(cmp.Or(w.stuckCommand, mustGather))
		finding.Because = append(finding.Because, upper(usual)+".")
		if w.suspicion != "" {
			finding.Because = append(finding.Because, s.fill(w.suspicion))
		}
		finding.Acts = append(finding.Acts, "An SRE has to act: "+s.fill(w.stuck)+".")
	case w.who == Service && w.usual == 0:
		finding.Acts = append(finding.Acts, "Nobody has to act: the service goes on by itself.")
	case w.who == Service:
		finding.Acts = append(finding.Acts, "Nobody has to act: the service goes on by itself, and "+usual+".")
	case w.who == Azure:
		finding.Acts = append(finding.Acts, "It is Azure's turn, and nobody else has to act: "+usual+".")
	case w.who == Customer:
		finding.Acts = append(finding.Acts, "The customer has to act: "+s.fill(w.what)+".")
	default:
		finding.Acts = append(finding.Acts, "An SRE has to act: "+s.fill(w.what)+".")
	}
}

// outcome says what happens next.
func (s *subject) outcome(w wait) []string {
	var next []string
	if w.next != "" {
		next = append(next, s.fill(w.next)+".")
	}
	if o := s.operation; o != nil && !o.ended() {
		text := "The customer's " + noun(o.Request) + " is under way meanwhile (operation " + o.ID + ")"
		if !o.Deadline.IsZero() {
			text += ", and fails at " + s.clock(o.Deadline) + " if it is not through by then"
		}
		next = append(next, text+".")
	}
	return next
}

// fill puts names into a text of the table.
func (s *subject) fill(text string) string {
	shard := s.Cluster.GetStatus().GetProvisionShard()
	return strings.NewReplacer("{shard}", cmp.Or(shard, "its management cluster"), "{cluster}", nameOf(s.clusterID()), "{scope}", s.scope(),
		"{asked}", cmp.Or(s.Asked, s.clusterID()), "{uid}", s.uid(), "{gate}", s.gate(),
		"{component}", cmp.Or(s.component().GetName(), "a component"),
		"{subject}", s.String(), "{noun}", s.noun, "{name}", nameOf(s.resourceID)).Replace(text)
}

// uid is the cluster's: Cluster Service's word, or ARM's of one that it does not have.
func (f *Facts) uid() string {
	if record := f.record(f.clusterID()); record != nil && f.Cluster == nil {
		return record.UID
	}
	return f.Cluster.GetUid()
}

// scope are the flags with which a customer's command finds the cluster.
func (f *Facts) scope() string {
	parts := strings.Split(f.clusterID(), "/")
	if len(parts) < 5 {
		return ""
	}
	return " -g " + parts[4] + " --subscription " + parts[2]
}

// condition finds a condition; its getters give empty strings when there is none.
func (s *subject) condition(name string) *csv1.Condition {
	i := slices.IndexFunc(s.conditions, func(c *csv1.Condition) bool { return c.GetType() == name })
	if i < 0 {
		return nil
	}
	return s.conditions[i]
}

// phase is the end of an enumeration's name: READY of CLUSTER_PHASE_READY. One that this release does not know has a number for a
// name, and is none of those above.
func phase(name string) string {
	_, end, known := strings.Cut(name, "_PHASE_")
	if !known {
		return name
	}
	return end
}

func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// settled is the answer when nothing is awaited.
func (f *Facts) settled() Finding {
	s := f.cluster(f.clusterID())
	finding := Finding{Subject: s.String(), Who: Nobody, Says: upper(s.String()) + " is ready. Nothing is awaited, and nobody has to act."}
	if o := s.operation; o != nil && o.Status == "Succeeded" && !o.EndTime.IsZero() {
		finding.Because = append(finding.Because, fmt.Sprintf("Its last operation, %s %s, took %s and was Succeeded %s ago, at %s.",
			strings.ToLower(o.Request), o.ID, lasting(o.EndTime.Sub(o.StartTime)), lasting(f.Now.Sub(o.EndTime)), f.clock(o.EndTime)))
	}
	return finding
}

// about says where the cluster is and what belongs to it.
func (f *Facts) about() []string {
	c := f.Cluster
	if c == nil || c.GetDeleteTime() != nil {
		return nil
	}
	var list []string
	status := c.GetStatus()
	if shard := status.GetProvisionShard(); shard != "" {
		text := "It is on " + shard + " as " + status.GetClusterId()
		if versions := status.GetActiveVersions(); len(versions) > 0 {
			text += ", runs " + and(versions)
		}
		if status.GetApiUrl() != "" {
			text += ", and its API is at " + status.GetApiUrl()
		}
		list = append(list, text+".")
	}
	var pools []string
	for _, p := range f.NodePools {
		if p.GetDeleteTime() == nil {
			text := nameOf(p.GetResourceId()) + " with " + plural(int64(p.GetStatus().GetReplicas()), "node")
			if version := p.GetStatus().GetVersion(); version != "" {
				text += " of " + version
			}
			pools = append(pools, text)
		}
	}
	switch len(pools) {
	case 0:
	case 1:
		list = append(list, "It has the node pool "+pools[0]+".")
	default:
		list = append(list, "It has the node pools "+and(pools)+".")
	}
	return list
}
