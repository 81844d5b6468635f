package nodepool

import (
	"cmp"
	"fmt"
	"slices"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions sets conditions of a node pool, which have a type of their own. A transition time changes only with the
// status.
type conditions struct {
	list       *[]hyperv1.NodePoolCondition
	now        metav1.Time
	generation int64
}

func (c conditions) set(kind string, status corev1.ConditionStatus, reason, message string) {
	condition := hyperv1.NodePoolCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: c.now, ObservedGeneration: c.generation,
	}
	for i := range *c.list {
		existing := &(*c.list)[i]
		if existing.Type != kind {
			continue
		}
		if existing.Status == status {
			condition.LastTransitionTime = existing.LastTransitionTime
		}
		*existing = condition
		return
	}
	*c.list = append(*c.list, condition)
}

func (c conditions) setBool(kind string, yes bool, reason, message string) {
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	c.set(kind, status, reason, message)
}

func (c conditions) setTrue(kind, message string) {
	c.setBool(kind, true, hyperv1.AsExpectedReason, message)
}

func (c conditions) remove(kind string) {
	*c.list = slices.DeleteFunc(*c.list, func(condition hyperv1.NodePoolCondition) bool { return condition.Type == kind })
}

// decide returns the status of the pool.
func decide(pool *hyperv1.NodePool, o *observation) hyperv1.NodePoolStatus {
	status := *pool.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.now), generation: pool.Generation}
	if o.pause.Active {
		c.setBool(hyperv1.NodePoolReconciliationActiveConditionType, false, hyperv1.ReconciliationPausedConditionReason, o.pause.Message)
		return status
	}
	if o.problem != nil {
		c.setBool(hyperv1.NodePoolReconciliationActiveConditionType, true, hyperv1.ReconciliationInvalidPausedUntilConditionReason, o.problem.Error())
	} else {
		c.setTrue(hyperv1.NodePoolReconciliationActiveConditionType, "Reconciliation active on resource")
	}
	decideSpec(c, pool, o)
	if o.release == nil || o.skew != "" {
		c.setBool(hyperv1.NodePoolReadyConditionType, false, hyperv1.NodePoolValidationFailedReason, "The NodePool's release cannot be used")
		return status
	}
	provisioning := canProvision(o.cluster)
	c.setBool(hyperv1.NodePoolValidGeneratedPayloadConditionType, provisioning, reasonIf(provisioning, hyperv1.IgnitionEndpointMissingReason), textIf(provisioning, "Payload generated successfully", "Ignition endpoint is not available yet"))
	decideMachines(c, &status, o)
	return status
}

// decideSpec sets the conditions that follow from the spec alone.
func decideSpec(c conditions, pool *hyperv1.NodePool, o *observation) {
	if o.release == nil {
		c.setBool(hyperv1.NodePoolValidReleaseImageConditionType, false, hyperv1.NodePoolValidationFailedReason, fmt.Sprintf("failed to lookup release image: %s is not in the release catalogue", pool.Spec.Release.Image))
	} else {
		c.setTrue(hyperv1.NodePoolValidReleaseImageConditionType, "Using release image: "+pool.Spec.Release.Image)
	}
	if o.skew == "" {
		c.setTrue(hyperv1.NodePoolSupportedVersionSkewConditionType, "Release image version is valid")
	} else {
		c.setBool(hyperv1.NodePoolSupportedVersionSkewConditionType, false, hyperv1.NodePoolUnsupportedSkewReason, o.skew)
	}
	c.setTrue(hyperv1.NodePoolUpdateManagementEnabledConditionType, "")
	c.setTrue(hyperv1.NodePoolValidArchPlatform, "")
	c.setTrue(hyperv1.NodePoolValidPlatformConfigConditionType, "")
	c.setTrue(hyperv1.NodePoolValidMachineConfigConditionType, "")
	c.setTrue(hyperv1.NodePoolValidTuningConfigConditionType, "")
	if autoscaling := pool.Spec.AutoScaling; autoscaling != nil {
		lowest := int32(1)
		if autoscaling.Min != nil {
			lowest = *autoscaling.Min
		}
		c.setTrue(hyperv1.NodePoolAutoscalingEnabledConditionType, fmt.Sprintf("Maximum nodes: %d, Minimum nodes: %d", autoscaling.Max, lowest))
	} else {
		c.setBool(hyperv1.NodePoolAutoscalingEnabledConditionType, false, hyperv1.AsExpectedReason, "")
	}
	c.setBool(hyperv1.NodePoolAutorepairEnabledConditionType, pool.Spec.Management.AutoRepair, hyperv1.AsExpectedReason, "")
}

// decideMachines sets the conditions and counts that follow from the machines and their rollout.
func decideMachines(c conditions, status *hyperv1.NodePoolStatus, o *observation) {
	t := o.target
	versions := map[[2]string]*hyperv1.NodeVersion{}
	active, provisioned, ready := 0, 0, 0
	var outdatedConfig, outdatedTemplate bool
	for i := range o.machines {
		m := &o.machines[i]
		if !m.active() {
			continue
		}
		active++
		healthy := m.ready() && (o.nodeReady == nil || o.nodeReady[m.Name])
		outdatedConfig = outdatedConfig || m.Config != t.config
		outdatedTemplate = outdatedTemplate || m.Template != t.template
		if m.ready() || !t.neverIgnites && o.now.Sub(m.Created) >= o.machineReady {
			provisioned++
		}
		count := versions[[2]string{m.Version, m.Kubelet}]
		if count == nil {
			count = &hyperv1.NodeVersion{OCPVersion: m.Version, KubeletVersion: m.Kubelet, ReadyNodeCount: new(int32), UnreadyNodeCount: new(int32)}
			versions[[2]string{m.Version, m.Kubelet}] = count
		}
		if healthy {
			ready++
			*count.ReadyNodeCount++
		} else {
			*count.UnreadyNodeCount++
		}
	}
	status.Replicas = int32(ready)
	status.NodesInfo.NodeVersions = nil
	for _, count := range versions {
		status.NodesInfo.NodeVersions = append(status.NodesInfo.NodeVersions, *count)
	}
	slices.SortFunc(status.NodesInfo.NodeVersions, func(a, b hyperv1.NodeVersion) int { return cmp.Compare(a.OCPVersion, b.OCPVersion) })

	complete := converged(o.machines, t) && ready == t.replicas
	if complete {
		status.Version = t.version
	}
	// A pool without a version is updating to its first version.
	updatingVersion := status.Version != t.version
	updatingConfig := !complete && (outdatedConfig || status.Version == "")
	c.setBool(hyperv1.NodePoolUpdatingVersionConditionType, updatingVersion, hyperv1.AsExpectedReason, textIf(updatingVersion, "Updating version in progress. Target version: "+t.version, ""))
	c.setBool(hyperv1.NodePoolUpdatingConfigConditionType, updatingConfig, hyperv1.AsExpectedReason, textIf(updatingConfig, "Updating config in progress. Target config: "+t.config, ""))
	c.setBool(hyperv1.NodePoolUpdatingPlatformMachineTemplateConditionType, outdatedTemplate, hyperv1.AsExpectedReason, textIf(outdatedTemplate, "Updating platform machine template in progress", ""))

	switch {
	case t.replicas == 0 && active == 0:
		c.remove(hyperv1.NodePoolReachedIgnitionEndpoint)
		for _, kind := range []string{hyperv1.NodePoolAllMachinesReadyConditionType, hyperv1.NodePoolAllNodesHealthyConditionType} {
			c.setBool(kind, false, hyperv1.AsExpectedReason, "NodePool set to no replicas")
		}
		c.setTrue(hyperv1.NodePoolReadyConditionType, "")
		return
	case active == 0:
		for _, kind := range []string{hyperv1.NodePoolAllMachinesReadyConditionType, hyperv1.NodePoolAllNodesHealthyConditionType} {
			c.setBool(kind, false, hyperv1.NodePoolNotFoundReason, "No Machines are created")
		}
	default:
		reached := provisioned > 0 || !t.neverIgnites && o.oldestMachineAge() >= o.ignition
		c.setBool(hyperv1.NodePoolReachedIgnitionEndpoint, reached, reasonIf(reached, hyperv1.IgnitionNotReached), "")
		machines := provisioned == active && active >= t.replicas
		c.setBool(hyperv1.NodePoolAllMachinesReadyConditionType, machines, reasonIf(machines, "Provisioning"), textIf(machines, hyperv1.AllIsWellMessage, fmt.Sprintf("%d of %d machines are not ready", max(active, t.replicas)-provisioned, max(active, t.replicas))))
		healthy := ready == active && active >= t.replicas
		c.setBool(hyperv1.NodePoolAllNodesHealthyConditionType, healthy, reasonIf(healthy, unhealthyReason(o.machines)), textIf(healthy, hyperv1.AllIsWellMessage, fmt.Sprintf("%d of %d nodes are not healthy", max(active, t.replicas)-ready, max(active, t.replicas))))
	}
	if tooManyUnhealthy(o.machines, t) {
		c.setBool(hyperv1.NodePoolReadyConditionType, false, "TooManyUnhealthy", fmt.Sprintf("Remediation is not allowed, more than %d machines are unhealthy", maxUnhealthy))
		return
	}
	available := ready >= t.replicas
	c.setBool(hyperv1.NodePoolReadyConditionType, available, reasonIf(available, "ScalingUp"), textIf(available, "", fmt.Sprintf("Minimum availability requires %d replicas, current %d available", t.replicas, ready)))
}

// unhealthyReason returns the reason why nodes are not healthy: they have stopped reporting, or have not started yet.
func unhealthyReason(machines []Machine) string {
	if slices.ContainsFunc(machines, func(m Machine) bool { return m.active() && !m.Unhealthy.IsZero() }) {
		return "NodeConditionsFailed"
	}
	return "NodeProvisioning"
}

func reasonIf(yes bool, otherwise string) string {
	if yes {
		return hyperv1.AsExpectedReason
	}
	return otherwise
}

func textIf(yes bool, text, otherwise string) string {
	if yes {
		return text
	}
	return otherwise
}
