package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render/armproperty"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// DesiredState is a desired state of a cluster, node pool or external authentication.
type DesiredState struct {
	Generation int64
	// Spec is nil for the state before the creation of an external authentication.
	Spec    proto.Message
	Release Release
}

// Update is what a resource keeps while its management cluster has not applied an update of it. The specs are immutable.
type Update struct {
	// Accepted is the desired state that the management cluster accepted last. It is nil if that is the newest one, or if none was accepted.
	Accepted *DesiredState
	// Refused is the spec of the resource's generation if the management cluster permanently refuses it; otherwise nil. The spec and the release
	// of the resource are then those of Accepted.
	Refused proto.Message
}

// begin keeps the desired state before an update if the management cluster accepted it. If not, an earlier one is kept.
func (u *Update) begin(before DesiredState, accepted bool) {
	if u.Accepted == nil && accepted {
		u.Accepted = &before
	}
	u.Refused = nil
}

// beginRelease keeps the desired state before a change of the release by an upgrade. The generation is complete only with the release.
func (u *Update) beginRelease(before DesiredState, accepted bool) {
	switch {
	case u.Refused != nil:
		u.Accepted = &DesiredState{u.Accepted.Generation, u.Accepted.Spec, before.Release}
	case u.Accepted == nil && accepted:
		u.Accepted = &before
	}
}

// withdrawn reports whether the creation of the resource is refused, so that the resource is not rendered.
func (u *Update) withdrawn() bool { return u.Refused != nil && u.Accepted.Spec == nil }

// renderedGeneration returns the generation whose content is rendered. The argument is the generation of the resource.
func (u *Update) renderedGeneration(generation int64) int64 {
	if u.Refused == nil || u.Accepted.Spec == nil {
		return generation
	}
	return u.Accepted.Generation
}

// requested returns the spec of the generation. The argument is the spec of the resource.
func requested[S proto.Message](u Update, spec S) S {
	if refused, ok := u.Refused.(S); ok {
		return refused
	}
	return spec
}

// RequestedSpec returns the spec of the cluster's generation. It differs from Spec if the management cluster refuses it.
func (c *Cluster) RequestedSpec() *csv1.ClusterSpec { return requested(c.Update, c.Spec) }

// RequestedSpec is like that of a cluster.
func (p *NodePool) RequestedSpec() *csv1.NodePoolSpec { return requested(p.Update, p.Spec) }

// RequestedSpec is like that of a cluster.
func (a *ExternalAuth) RequestedSpec() *csv1.ExternalAuthSpec { return requested(a.Update, a.Spec) }

// BeginUpdate must be called before a newer generation of the cluster is stored.
func (c *Cluster) BeginUpdate(t *ClusterAggregate) {
	c.begin(DesiredState{c.Generation, c.Spec, c.Release}, t.accepted(HostedCluster, "", c.Status.GetObservedGeneration() == c.Generation))
}

func (c *Cluster) beginRelease(t *ClusterAggregate) {
	observed := c.Status.GetObservedGeneration()
	c.Update.beginRelease(DesiredState{observed, c.Spec, c.Release}, t.accepted(HostedCluster, "", observed == c.Generation))
}

// BeginUpdate is like that of a cluster.
func (p *NodePool) BeginUpdate(t *ClusterAggregate) {
	p.begin(DesiredState{p.Generation, p.Spec, p.Release}, t.accepted(NodePoolWork, p.UID, p.Status.GetObservedGeneration() == p.Generation))
}

func (p *NodePool) beginRelease(t *ClusterAggregate) {
	observed := p.Status.GetObservedGeneration()
	p.Update.beginRelease(DesiredState{observed, p.Spec, p.Release}, t.accepted(NodePoolWork, p.UID, observed == p.Generation))
}

// BeginUpdate is like that of a cluster. It must be called before the creation too: the cluster is accepted without the external authentication.
func (a *ExternalAuth) BeginUpdate(t *ClusterAggregate) {
	if a.Generation == 0 {
		a.begin(DesiredState{}, true)
		return
	}
	a.begin(DesiredState{Generation: a.Generation, Spec: a.Spec}, t.accepted(HostedCluster, "", a.Status.GetObservedGeneration() == a.Generation))
}

// accepted reports whether the management cluster accepted the desired content of a work: it took effect, or it is applied.
func (t *ClusterAggregate) accepted(kind WorkKind, owner string, effective bool) bool {
	w := t.Work(kind, owner)
	return effective || w != nil && w.Applied()
}

// pendingUpdate is a resource with an accepted desired state.
type pendingUpdate struct {
	*Update
	owner      armproperty.Resource
	work       *Work
	current    DesiredState
	observed   int64
	conditions []*csv1.Condition
	// restore sets the spec, unless it is nil, the release and the conditions of the resource.
	restore func(to DesiredState, conditions []*csv1.Condition)
}

// pendingUpdates returns the resources with an accepted desired state whose deletion is not requested.
func (t *ClusterAggregate) pendingUpdates() []pendingUpdate {
	var list []pendingUpdate
	if c := t.Cluster; c != nil && c.Accepted != nil && !c.Deleting() {
		list = append(list, pendingUpdate{&c.Update, armproperty.Cluster, t.Work(HostedCluster, ""), DesiredState{c.Generation, c.Spec, c.Release},
			c.Status.GetObservedGeneration(), c.Status.GetConditions(), func(to DesiredState, conditions []*csv1.Condition) {
				c.Spec, c.Release, c.Status.Conditions = to.Spec.(*csv1.ClusterSpec), to.Release, conditions
			}})
	}
	for _, p := range t.Pools {
		if p.Accepted == nil || p.Deleting() {
			continue
		}
		list = append(list, pendingUpdate{&p.Update, armproperty.NodePool, t.Work(NodePoolWork, p.UID), DesiredState{p.Generation, p.Spec, p.Release},
			p.Status.GetObservedGeneration(), p.Status.GetConditions(), func(to DesiredState, conditions []*csv1.Condition) {
				p.Spec, p.Release, p.Status.Conditions = to.Spec.(*csv1.NodePoolSpec), to.Release, conditions
			}})
	}
	for _, a := range t.ExternalAuths {
		if a.Accepted == nil || a.Deleting() {
			continue
		}
		list = append(list, pendingUpdate{&a.Update, armproperty.ExternalAuth, t.Work(HostedCluster, ""), DesiredState{Generation: a.Generation, Spec: a.Spec},
			a.Status.GetObservedGeneration(), a.Status.GetConditions(), func(to DesiredState, conditions []*csv1.Condition) {
				a.Status.Conditions = conditions
				if to.Spec != nil {
					a.Spec = to.Spec.(*csv1.ExternalAuthSpec)
				}
			}})
	}
	return list
}

// refusedUpdates returns the updates of the content that is permanently refused. If all refused fields are known to belong to some resources
// of a work, the updates of its other resources are left out.
func (t *ClusterAggregate) refusedUpdates() []pendingUpdate {
	return slices.DeleteFunc(t.pendingUpdates(), func(u pendingUpdate) bool {
		if u.work == nil || !u.work.permanentlyRefused() || u.Refused != nil && u.Accepted.Release == u.current.Release {
			return true
		}
		owners := u.work.refusedOwners()
		// Without a HostedCluster, nothing was accepted without the external authentication.
		return len(owners) > 0 && !slices.Contains(owners, u.owner) || u.Accepted.Spec == nil && u.work.Observed.Digest == ""
	})
}

// refusedOwners returns the resources that the refused fields come from; none if this is unknown for one of them.
func (w *Work) refusedOwners() (owners []armproperty.Resource) {
	if w.Refusal() == nil {
		return nil
	}
	for _, field := range w.Refusal().Fields {
		owner, _ := armproperty.Of(w.Refusal().Kind, field)
		if owner == armproperty.Service {
			return nil
		}
		owners = append(owners, owner)
	}
	return owners
}

// returnToAccepted gives the resources whose update a management cluster permanently refuses their accepted desired state, and reports whether
// there are such resources. A nil renderer prevents it.
func (t *ClusterAggregate) returnToAccepted(now time.Time, renderer Renderer) bool {
	if renderer == nil {
		return false
	}
	updates := slices.DeleteFunc(t.refusedUpdates(), func(u pendingUpdate) bool {
		digest, err := renderer.Digest(t, u.work)
		return err != nil || digest != u.work.Digest // what was rendered before the update says nothing about it
	})
	for _, u := range updates {
		u.takeBack(now, t)
	}
	return len(updates) > 0
}

// The ends of messages about refused updates.
const (
	previousInForce = "; the previous configuration is in force"
	notConfigured   = "; the external authentication is not configured"
)

// takeBack restores the accepted desired state. If the update is a newer generation, and not only a release, the condition Applied of the resource
// states from now on that the generation is refused.
func (u *pendingUpdate) takeBack(now time.Time, t *ClusterAggregate) {
	to := *u.Accepted
	if u.work.Observed.Image == u.current.Release.Image {
		to.Release = u.current.Release // the object has it already, and a release cannot be lowered
	}
	if u.Refused != nil || u.observed >= u.current.Generation {
		u.restore(DesiredState{Spec: u.current.Spec, Release: to.Release}, u.conditions)
		if u.Accepted = nil; u.Refused != nil {
			u.Accepted = &to
		}
		return
	}
	applied := appliedCondition(u.work, u.owner)
	if to.Spec == nil {
		applied.message += notConfigured
	} else {
		applied.message += previousInForce
	}
	others := slices.DeleteFunc(slices.Clone(u.conditions), func(c *csv1.Condition) bool { return c.GetType() == applied.name })
	u.Accepted, u.Refused = &to, u.current.Spec
	u.restore(to, append(others, setConditions(u.conditions, now, u.current.Generation, applied)...))
	if u.owner != armproperty.Cluster {
		return
	}
	for _, upgrade := range t.ActiveUpgrades() {
		// advanceUpgrades ends one that rolls out a release.
		if upgrade.Spec.GetClusterGeneration() == u.current.Generation && upgrade.rollingOut() == nil {
			upgrade.end(now, csv1.UpgradeState_UPGRADE_STATE_FAILED, fmt.Sprintf("%s permanently refuses generation %d of the cluster, which requested the upgrade.",
				u.work.refuser(), u.current.Generation))
		}
	}
}

// endAppliedUpdates forgets the accepted desired states that the management cluster has replaced by the newest one.
func (t *ClusterAggregate) endAppliedUpdates() {
	for _, u := range t.pendingUpdates() {
		if u.work == nil || !u.work.Applied() || u.owner != armproperty.ExternalAuth && u.work.Generation != u.renderedGeneration(u.current.Generation) {
			continue
		}
		switch {
		case u.Refused == nil:
			u.Accepted = nil
		case u.Accepted.Release != u.current.Release:
			u.Accepted = &DesiredState{u.Accepted.Generation, u.Accepted.Spec, u.current.Release}
		}
	}
}

// appliedCondition returns the condition Applied of a resource. That of a refused update is kept.
func (u *Update) appliedCondition(w *Work, resource armproperty.Resource) condition {
	if u.Refused != nil {
		return condition{name: clusterstatus.Applied}
	}
	return appliedCondition(w, resource)
}

// progress returns the progress of the works of a resource: that of Maestro and that of the management cluster. A refused update stays visible
// after the return to the accepted desired state. Conditions are those of the resource.
func (u *Update) progress(conditions []*csv1.Condition, atMaestro, atManagementCluster layer) []layer {
	if u.Refused == nil {
		return []layer{atMaestro, atManagementCluster}
	}
	applied := findCondition(conditions, clusterstatus.Applied)
	message := strings.TrimSuffix(strings.TrimSuffix(applied.GetMessage(), previousInForce), notConfigured)
	if applied.GetReason() != clusterstatus.ApplyRefused {
		return []layer{{LayerMaestro, clusterstatus.StateRefused, message}, atManagementCluster}
	}
	return []layer{atMaestro, {LayerManagementCluster, clusterstatus.StateRefused, clusterstatus.RefusedText(message)}}
}

// refusedDrift returns the drift of a work whose resources had to return to an accepted desired state; empty if none had to.
func (t *ClusterAggregate) refusedDrift(w *Work) string {
	for _, u := range t.pendingUpdates() {
		if u.work != w || u.Refused == nil {
			continue
		}
		if findCondition(u.conditions, clusterstatus.Applied).GetReason() == clusterstatus.ApplyRefused {
			return clusterstatus.DriftApplyRefused
		}
		return clusterstatus.DriftRefused
	}
	return ""
}
