package fleet

import (
	"fmt"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render/armproperty"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// Region holds the settings of the region that the state machine depends on.
type Region struct {
	// BaseDomain is the DNS zone of the region, for example 0ulz.westus3.aroapp-hcp.io.
	BaseDomain string
	// IssuerBase is the base URL of the token issuers of all clusters.
	IssuerBase string
	// EndpointURLs makes API URLs from the endpoint that the HostedCluster reports instead of from the DNS name.
	EndpointURLs bool
	// AzureKinds are the Azure resources of each cluster; empty in a region without Azure.
	AzureKinds []AzureKind
	// StepLimits are the times after which steps of a deletion count as stuck; nil means the defaults. Copies of a Region share
	// them, so a change takes effect everywhere.
	StepLimits *deletiongraph.Limits
	// ComponentsAfter is the time after which the components of a control plane are read one by one during an upgrade.
	// Shorter rollouts are not worth the additional messages.
	ComponentsAfter time.Duration
}

// APIHost returns the DNS name of a cluster's API.
func (r Region) APIHost(prefix string) string { return "api." + prefix + "." + r.BaseDomain }

// The services that a HostedCluster publishes under names of their own.
const (
	ServiceAPIServer    = "APIServer"
	ServiceOAuth        = "OAuthServer"
	ServiceKonnectivity = "Konnectivity"
	ServiceIgnition     = "Ignition"
)

// Services returns all services in the order in which they are rendered.
func Services() []string {
	return []string{ServiceAPIServer, ServiceOAuth, ServiceKonnectivity, ServiceIgnition}
}

// ServiceHost returns the DNS name under which a service of a control plane is published. The name of the API server
// service differs from the name of the API, which has a serving certificate of its own.
func (r Region) ServiceHost(service, prefix string) string {
	name := map[string]string{ServiceAPIServer: "api-int", ServiceOAuth: "oauth", ServiceKonnectivity: "konnectivity-server",
		ServiceIgnition: "ignition-server"}[service]
	return name + "." + prefix + "." + r.BaseDomain
}

// ClusterDomain returns the base domain of the applications of a cluster.
func (r Region) ClusterDomain(prefix string) string { return "aro." + prefix + "." + r.BaseDomain }

// IssuerURL returns the issuer of a cluster's service account tokens.
func (r Region) IssuerURL(clusterID string) string { return r.IssuerBase + "/" + clusterID }

// Issuer returns the issuer of a cluster. It stays the one that the cluster got first, because the issuer of a
// HostedCluster is immutable.
func (r Region) Issuer(c *Cluster) string {
	if issuer := c.Status.GetIssuerUrl(); issuer != "" {
		return issuer
	}
	return r.IssuerURL(c.ID())
}

// Settle advances the state machine. It removes works whose deletion is confirmed, plans the desired works, and updates the
// status of all resources from the desired and the observed state. Settle is idempotent. With a nil renderer it changes
// neither the content of works nor the progress of upgrades; that is right unless the desired state changed.
func (r Region) Settle(now time.Time, t *ClusterAggregate, renderer Renderer) error {
	return r.settle(now, t, renderer, true)
}

// SettleObserved advances the state machine after a report. It renders content only if an upgrade proceeds or a revocation requests a
// restart of the control plane. Other changes of the rendering, for example by a newer release of this service, take effect with the
// next change of the desired state.
//
// An upgrade or a revocation whose content cannot be rendered does not proceed. It does not block other changes.
func (r Region) SettleObserved(now time.Time, t *ClusterAggregate, renderer Renderer) error {
	if len(t.ActiveUpgrades()) == 0 && !t.awaitsRestart() && len(t.refusedUpdates()) == 0 {
		return r.settle(now, t, nil, false)
	}
	before := t.Clone()
	err := r.settle(now, t, renderer, false)
	if err == nil {
		return nil
	}
	*t = *before
	if err := r.settle(now, t, nil, false); err != nil {
		return err
	}
	for _, u := range t.ActiveUpgrades() {
		u.say(now, u.State(), "The next step cannot be rendered: "+err.Error())
	}
	return nil
}

func (r Region) settle(now time.Time, t *ClusterAggregate, renderer Renderer, changed bool) error {
	t.dropGone()
	if t.Cluster != nil && t.Cluster.Deleting() {
		for _, p := range t.Pools {
			if !p.Deleting() {
				p.DeleteTime = now
			}
		}
		for _, a := range t.ExternalAuths {
			if !a.Deleting() {
				a.DeleteTime = now
			}
		}
	}
	recordRemovals(t)
	returned := t.returnToAccepted(now, renderer)
	restart := t.Cluster.RestartTime()
	advanceBreakGlass(now, t, renderer != nil)
	restarts := !t.Cluster.RestartTime().Equal(restart)
	if moved := r.advanceUpgrades(now, t, renderer != nil); !moved && !changed && !restarts && !returned {
		renderer = nil
	}
	if t.Cluster != nil && !t.Cluster.Gone() {
		if err := plan(now, t, renderer); err != nil {
			return err
		}
	}
	t.endAppliedUpdates()
	planRollout(now, t)
	r.planAzure(now, t)
	requirements := t.Azure.Requirements()
	for _, p := range t.Pools {
		decidePool(now, t, p, requirements)
	}
	if t.Cluster != nil {
		r.decideCluster(now, t)
	}
	for _, a := range t.ExternalAuths {
		decideExternalAuth(now, t, a)
	}
	// The cluster may have become ready, or may be gone now.
	planBreakGlass(now, t)
	if t.Cluster != nil && t.Cluster.Gone() {
		advanceBreakGlass(now, t, false)
	}
	reportBreakGlass(now, t)
	r.describeDeletions(now, t)
	return nil
}

func (t *ClusterAggregate) dropGone() {
	var kept []*Work
	for _, w := range t.Works {
		if w.Deleting() && w.Observed.Deleted {
			continue
		}
		kept = append(kept, w)
	}
	t.Works = kept
}

func (r Region) decideCluster(now time.Time, t *ClusterAggregate) {
	c := t.Cluster
	if c.Status == nil {
		c.Status = &csv1.ClusterStatus{}
	}
	switch {
	case c.Gone():
	case c.Deleting():
		decideClusterDeletion(now, t)
	case c.Shard == "":
		c.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_PENDING
		message := c.waits()
		c.Status.Conditions = setConditions(c.Status.Conditions, now, c.Generation, condition{"Placed", "False", "NoCapacity", message})
		c.Status.Progress = setProgress(c.Status.Progress, now, layer{LayerPlacement, clusterstatus.StateWaitingForCapacity, message})
	default:
		r.decideWanted(now, t)
	}
}

// waits returns the reason for which a cluster has no shard: the newest decision.
func (c *Cluster) waits() string {
	if c.PlacementMessage != "" {
		return c.PlacementMessage
	}
	for _, p := range c.Status.GetProgress() {
		if p.GetLayer() == LayerPlacement && p.GetMessage() != "" {
			return p.GetMessage()
		}
	}
	return "Waiting for a provision shard with a free place."
}

func (r Region) decideWanted(now time.Time, t *ClusterAggregate) {
	c, s := t.Cluster, t.Cluster.Status
	work := t.Work(HostedCluster, "")
	if work == nil {
		work = &Work{}
	}
	seen := &work.Observed
	s.ProvisionShard = c.Shard
	s.BaseDomain = r.ClusterDomain(s.BaseDomainPrefix)
	s.ConsoleUrl = "https://console-openshift-console.apps." + s.BaseDomain
	s.IssuerUrl = r.Issuer(c)
	if seen.EndpointHost != "" && seen.EndpointPort != 0 {
		host := r.APIHost(s.BaseDomainPrefix)
		if r.EndpointURLs {
			host = seen.EndpointHost
		}
		s.ApiUrl = fmt.Sprintf("https://%s:%d", host, seen.EndpointPort)
	}
	if seen.ServingCA != "" {
		s.ServingCertificateAuthority = seen.ServingCA
	}
	s.InsideObservation = insideObservation(seen.Inside)
	s.ActiveVersions = activeVersions(seen, s.ActiveVersions)
	s.Identities = t.identitiesRead()

	available := seen.Condition(feedback.Available).Status == "True"
	carried := work.Applied()
	rolledOut := rolledOut(c.Release, seen)
	awaited := clusterPending(c.Spec, seen)
	wasReady := s.ObservedGeneration > 0
	owed := t.customerWaitsForUpgrade()
	lost := identify(now, t, seen)
	ready := lost.none() && carried && rolledOut && awaited.none() && !owed && s.ApiUrl != "" && (wasReady || available && !seen.Namespace.BeingDeleted() && r.azureReady(t))
	if ready {
		s.ObservedGeneration = work.Generation
	}
	switch {
	case !lost.none():
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_LOST
	case c.Refused != nil:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_FAILED
	case ready:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_READY
	// A change of its external authentication or another rendering is being rolled out, or the management cluster refuses it.
	// That does not change the phase of the cluster.
	case wasReady && s.ObservedGeneration >= c.Generation && !work.Refused:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_READY
	case work.Refused, t.clusterWork(work).Refusal() != nil:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_FAILED
	// The upgrade that the generation requires was aborted or failed.
	case wasReady && owed && len(t.ActiveUpgrades()) == 0:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_FAILED
	case wasReady:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
	default:
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING
	}

	observed := []condition{observedCondition(feedback.Available, seen), observedCondition(feedback.Progressing, seen), observedCondition(feedback.Degraded, seen)}
	switch {
	case !lost.none():
		observed = lost.conditions(seen)
	case seen.Missing:
		observed[0] = condition{feedback.Available, "False", "ControlPlaneMissing", "The control plane does not exist on the management cluster."}
	default:
		for _, part := range feedback.PartConditions {
			observed = append(observed, observedCondition(part, seen))
		}
	}
	before := s.Conditions
	s.Conditions = setConditions(before, now, work.Generation, append([]condition{
		{"Placed", "True", "Placed", "Placed on provision shard " + c.Shard + "."}, c.appliedCondition(t.clusterWork(work), armproperty.Cluster)}, observed...)...)
	s.Conditions = append(s.Conditions, t.customerConditions(now, before, work)...)
	layers := append([]layer{{LayerPlacement, clusterstatus.StatePlaced, "Placed on provision shard " + c.Shard + "."}}, t.azureLayers()...)
	controlPlane := controlPlaneLayer(seen, carried, awaited, s.Phase == csv1.ClusterPhase_CLUSTER_PHASE_READY, rolledOut)
	if !lost.none() {
		controlPlane = layer{LayerControlPlane, lost.reason, lost.message}
	}
	// Until the identities are read there is no HostedCluster that another layer could wait for.
	if t.Work(HostedCluster, "") != nil || t.Azure == nil {
		layers = append(layers, c.progress(s.Conditions, maestroLayer(t.Work(Namespaces, ""), work), managementClusterLayer(t.clusterWork(work)))...)
		layers = append(layers, controlPlane)
	}
	s.Progress = setProgress(s.Progress, now, append(layers, upgradeLayer(t)...)...)
}

// activeVersions returns the versions that the control plane runs: the newest entries of its history, down to the last
// completed one.
func activeVersions(seen *feedback.Observed, old []string) []string {
	history := seen.ControlPlaneVersions
	if len(history) == 0 {
		history = seen.Versions
	}
	var versions []string
	for _, entry := range history {
		if entry.Version != "" {
			versions = append(versions, entry.Version)
		}
		if entry.State == "Completed" {
			break
		}
	}
	if len(versions) == 0 {
		return old
	}
	return versions
}

// appliedCondition returns the condition Applied of the resource of a work.
func appliedCondition(w *Work, resource armproperty.Resource) condition {
	switch {
	case w.Refused:
		return condition{"Applied", "False", "Refused", w.Error}
	case w.Refusal() != nil:
		return refusedCondition(w, resource)
	case w.Applied():
		return condition{"Applied", "True", "AppliedManifestWorkComplete", "The desired state is applied on the management cluster."}
	case w.Observed.Applied.Status == "False":
		return condition{"Applied", "False", w.Observed.Applied.Reason, w.Observed.Applied.Message}
	case w.Observed.Missing:
		return condition{"Applied", "False", "Removed", "The desired state was removed from the management cluster and is applied again."}
	}
	return condition{"Applied", "False", "Pending", "The desired state is not applied on the management cluster yet."}
}

func observedCondition(name string, seen *feedback.Observed) condition {
	c := seen.Condition(name)
	return condition{name, c.Status, c.Reason, c.Message}
}

// maestroLayer returns the progress of the works that a resource needs. The first work with an error determines it.
func maestroLayer(works ...*Work) layer {
	waiting := false
	for _, w := range works {
		switch {
		case w == nil:
		case w.Refused:
			return layer{LayerMaestro, clusterstatus.StateRefused, w.Error}
		case w.Error != "":
			return layer{LayerMaestro, clusterstatus.StateRetrying, "Publishing to Maestro failed and is retried: " + w.Error}
		case w.Published < w.Desired || w.Desired == 0:
			waiting = true
		}
	}
	if waiting {
		return layer{LayerMaestro, clusterstatus.StatePublishing, "Waiting for Maestro to accept the desired state."}
	}
	return layer{LayerMaestro, clusterstatus.StatePublished, "Maestro accepted the desired state."}
}

func managementClusterLayer(w *Work) layer {
	switch {
	case w.Applied() && len(w.Observed.ForeignFields) > 0:
		return layer{LayerManagementCluster, clusterstatus.DriftForeignFields, w.Observed.ForeignText()}
	case w.Applied():
		return layer{LayerManagementCluster, clusterstatus.StateApplied, "The desired state is applied on the management cluster."}
	case w.Refusal() != nil:
		return layer{LayerManagementCluster, clusterstatus.StateRefused, w.refusalText()}
	case w.Observed.Applied.Status == "False":
		return layer{LayerManagementCluster, clusterstatus.StateApplyFailing, w.Observed.Applied.Message}
	case w.Observed.Missing:
		return layer{LayerManagementCluster, clusterstatus.StateRemoved, "The objects were removed from the management cluster. The agent applies them again."}
	case w.Observed.Applied.Status == "True":
		return layer{LayerManagementCluster, clusterstatus.StateApplying, "Waiting for the agent of the management cluster to report the applied objects."}
	}
	return layer{LayerManagementCluster, clusterstatus.StateWaiting, "Waiting for the agent of the management cluster."}
}

func controlPlaneLayer(seen *feedback.Observed, carried bool, awaited pending, ready, rolledOut bool) layer {
	available := seen.Condition(feedback.Available)
	switch {
	case !ready && carried && available.Status == "True" && rolledOut && !awaited.none():
		return layer{LayerControlPlane, awaited.state, awaited.message}
	case ready && available.Status == "True":
		return layer{LayerControlPlane, clusterstatus.StateAvailable, available.Message}
	case available.Status == "True" && !rolledOut:
		return layer{LayerControlPlane, clusterstatus.StateRollingOut, "Waiting for the control plane to complete its release."}
	case available.Status == "":
		return layer{LayerControlPlane, clusterstatus.StateWaiting, "Waiting for the first status of the HostedCluster."}
	case available.Reason != "":
		return layer{LayerControlPlane, available.Reason, available.Message}
	}
	return layer{LayerControlPlane, clusterstatus.StateWaiting, "Waiting for the control plane to become available."}
}

// decideClusterDeletion sets the progress of a deletion. plan decides its steps.
func decideClusterDeletion(now time.Time, t *ClusterAggregate) {
	c, s := t.Cluster, t.Cluster.Status
	s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_DELETING
	pools := t.ofKind(NodePoolWork)
	breakGlass := append(t.ofKind(CredentialWork), t.ofKind(RevocationWork)...)
	rollouts := t.ofKind(RolloutWork)
	clusters := t.ofKind(HostedCluster)
	namespaces := t.ofKind(Namespaces)
	var at layer
	switch {
	case len(pools) > 0:
		at = layer{LayerManagementCluster, "DeletingNodePools", "Waiting for the deletion of works " + names(pools) + deletionTrouble(pools) + "."}
	case len(breakGlass) > 0:
		at = layer{LayerManagementCluster, "DeletingCredentials", "Waiting for the deletion of works " + names(breakGlass) + deletionTrouble(breakGlass) + "."}
	case len(rollouts) > 0:
		at = layer{LayerManagementCluster, "DeletingRollout", "Waiting for the deletion of works " + names(rollouts) + deletionTrouble(rollouts) + "."}
	case len(clusters) > 0:
		at = layer{LayerManagementCluster, "DeletingHostedCluster", "Waiting for the deletion of work " + names(clusters) + deletionTrouble(clusters) + "."}
	case len(namespaces) > 0:
		at = layer{LayerManagementCluster, "DeletingNamespaces", "Waiting for the deletion of work " + names(namespaces) + deletionTrouble(namespaces) + "."}
	case t.Azure != nil && len(t.Azure.Steps) > 0:
		at = layer{LayerManagementCluster, clusterstatus.StateDeleted, "All objects on the management cluster are deleted."}
	default:
		c.GoneTime = now
		c.SigningKey = nil
		s.Phase = csv1.ClusterPhase_CLUSTER_PHASE_DELETED
		at = layer{LayerManagementCluster, clusterstatus.StateDeleted, "All objects on the management cluster are deleted."}
	}
	layers := []layer{at}
	if t.Azure != nil && t.Azure.Deleting {
		inAzure := t.azureLayers()
		if layers = append(inAzure, at); at.state == clusterstatus.StateDeleted && !c.Gone() {
			at = inAzure[0]
		}
	}
	s.Progress = setProgress(s.Progress, now, layers...)
	s.Conditions = setConditions(s.Conditions, now, c.Generation, condition{"Deleting", "True", at.state, at.message})
}

func (t *ClusterAggregate) ofKind(kind WorkKind) []*Work {
	var works []*Work
	for _, w := range t.Works {
		if w.Kind == kind {
			works = append(works, w)
		}
	}
	return works
}

func deletionTrouble(works []*Work) string {
	for _, w := range works {
		if w.Error != "" {
			return " (" + w.Error + ")"
		}
	}
	return ""
}

func decidePool(now time.Time, t *ClusterAggregate, p *NodePool, checked map[string]Requirement) {
	if p.Status == nil {
		p.Status = &csv1.NodePoolStatus{}
	}
	s := p.Status
	work := t.Work(NodePoolWork, p.UID)
	switch {
	case p.Gone():
		return
	case p.Deleting():
		decidePoolDeletion(now, p, work)
		return
	case work == nil:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_PENDING
		message := "Waiting for the cluster to be placed."
		if t.Cluster != nil && t.Cluster.Shard != "" {
			message = "Waiting for the HostedCluster of the cluster."
		}
		s.Progress = setProgress(s.Progress, now, layer{LayerPlacement, clusterstatus.StateWaitingForCluster, message})
		return
	}
	seen := &work.Observed
	if seen.Missing {
		seen = missingPool(seen)
	}
	s.Replicas = int32(min(max(seen.Replicas, 0), 1<<20))
	s.Version = seen.Version
	carried := work.Applied()
	rolledOut := seen.Version == p.Release.Version || seen.Version == "" && seen.Replicas == 0
	awaited := poolPending(p.Spec, seen)
	ready := carried && rolledOut && awaited.none() && sized(p.Spec, seen) && seen.Condition(feedback.UpdatingVersion).Status != "True" &&
		seen.Condition(feedback.UpdatingTemplate).Status != "True"
	wasReady := s.ObservedGeneration > 0
	if ready {
		s.ObservedGeneration = work.Generation
	}
	switch {
	case p.Refused != nil:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED
	case ready:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_READY
	case work.Refused:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED
	// The number of nodes may change, and another rendering may be rolled out or refused. A pool that reached its generation
	// stays ready until a newer one is requested.
	case wasReady && s.ObservedGeneration >= p.Generation:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_READY
	case work.Refusal() != nil:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED
	case wasReady:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING
	default:
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING
	}
	requirements := t.requirementsCondition(p, checked)
	s.Conditions = setConditions(s.Conditions, now, work.Generation, p.appliedCondition(work, armproperty.NodePool),
		observedCondition(feedback.Ready, seen), observedCondition(feedback.AllMachines, seen),
		observedCondition(feedback.AllNodes, seen), observedCondition(feedback.UpdatingVersion, seen), observedCondition(feedback.UpdatingConfig, seen),
		observedCondition(feedback.VersionSkew, seen), requirements)
	layers := []layer{{LayerPlacement, clusterstatus.StatePlaced, "Placed with its cluster on provision shard " + work.Shard + "."}}
	if requirements.status == "False" {
		layers = append(layers, layer{LayerAzure, clusterstatus.StateRequirementsUnmet, requirements.message})
	}
	layers = append(layers, p.progress(s.Conditions, maestroLayer(t.Work(Namespaces, ""), work), managementClusterLayer(work))...)
	s.Progress = setProgress(s.Progress, now, append(layers, nodePoolLayer(p, seen, awaited, ready, s.ObservedGeneration >= p.renderedGeneration(p.Generation)))...)
}

// sized reports whether the number of ready nodes is the requested one.
func sized(spec *csv1.NodePoolSpec, seen *feedback.Observed) bool {
	if autoscaling := spec.GetAutoscaling(); autoscaling != nil {
		if seen.Replicas < int64(autoscaling.GetMin()) || seen.Replicas > int64(autoscaling.GetMax()) {
			return false
		}
	} else if seen.Replicas != int64(spec.GetReplicas()) {
		return false
	}
	return seen.Replicas == 0 || seen.Condition(feedback.AllMachines).Status == "True"
}

func decidePoolDeletion(now time.Time, p *NodePool, work *Work) {
	s := p.Status
	if work == nil {
		p.GoneTime = now
		s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
		s.Progress = setProgress(s.Progress, now, layer{LayerManagementCluster, clusterstatus.StateDeleted, "All objects on the management cluster are deleted."})
		return
	}
	s.Phase = csv1.NodePoolPhase_NODE_POOL_PHASE_DELETING
	s.Progress = setProgress(s.Progress, now, layer{LayerManagementCluster, "DeletingNodePool",
		"Waiting for the deletion of work " + work.Name + deletionTrouble([]*Work{work}) + "."})
}
