package nodepool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

func (c conditions) isTrue(kind string) bool {
	return slices.ContainsFunc(*c.list, func(condition hyperv1.NodePoolCondition) bool {
		return condition.Type == kind && condition.Status == corev1.ConditionTrue
	})
}

func (c conditions) remove(kind string) {
	*c.list = slices.DeleteFunc(*c.list, func(condition hyperv1.NodePoolCondition) bool { return condition.Type == kind })
}

// decide returns the status of the pool.
func decide(pool *hyperv1.NodePool, o *observation) hyperv1.NodePoolStatus {
	status := *pool.Status.DeepCopy()
	c := conditions{list: &status.Conditions, now: metav1.NewTime(o.now), generation: pool.Generation}
	switch {
	case o.pause.Active:
		c.setBool(hyperv1.NodePoolReconciliationActiveConditionType, false, hyperv1.ReconciliationPausedConditionReason, o.pause.Message)
	case o.problem != nil:
		c.setBool(hyperv1.NodePoolReconciliationActiveConditionType, true, hyperv1.ReconciliationInvalidPausedUntilConditionReason, o.problem.Error())
	default:
		// The operator has a constant of its own for the reason, which the API does not have.
		c.setBool(hyperv1.NodePoolReconciliationActiveConditionType, true, "ReconciliationActive", "Reconciliation active on resource")
	}
	decideSpec(c, pool, o)
	if o.release == nil || o.newerThanCluster {
		c.setBool(hyperv1.NodePoolReadyConditionType, false, hyperv1.NodePoolValidationFailedReason, "The NodePool's release cannot be used")
		return status
	}
	if o.cluster.Status.KubeConfig == nil {
		return status // the operator ends the pass: the configuration of nodes contains the address of the API server
	}
	c.setTrue(hyperv1.NodePoolValidPlatformConfigConditionType, hyperv1.AllIsWellMessage)
	c.setTrue(hyperv1.NodePoolValidMachineConfigConditionType, "")
	c.setTrue(hyperv1.NodePoolValidTuningConfigConditionType, "")
	if !pool.Spec.Management.AutoRepair {
		c.setBool(hyperv1.NodePoolAutorepairEnabledConditionType, false, hyperv1.AsExpectedReason, "")
	}
	switch {
	case canProvision(o.cluster):
		c.setTrue(hyperv1.NodePoolValidGeneratedPayloadConditionType, "Payload generated successfully")
	case !c.isTrue(hyperv1.NodePoolValidGeneratedPayloadConditionType):
		c.set(hyperv1.NodePoolValidGeneratedPayloadConditionType, corev1.ConditionUnknown, "", "Unable to get status data from token secret")
	}
	decideMachines(c, &status, o, pool.Annotations[contract.CurrentConfigAnnotation] != reportedHash(pool, o.cluster))
	if o.pause.Active {
		keepMachineDeployment(c, pool, &status)
	}
	return status
}

// keepMachineDeployment restores what a paused pool does not report: the operator ends the pass before its MachineDeployment.
func keepMachineDeployment(c conditions, pool *hyperv1.NodePool, status *hyperv1.NodePoolStatus) {
	status.Replicas, status.Version = pool.Status.Replicas, pool.Status.Version
	for _, kind := range []string{hyperv1.NodePoolReadyConditionType, hyperv1.NodePoolUpdatingPlatformMachineTemplateConditionType, hyperv1.NodePoolAutorepairEnabledConditionType} {
		c.remove(kind)
		for _, before := range pool.Status.Conditions {
			if before.Type == kind {
				*c.list = append(*c.list, before)
			}
		}
	}
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
	if autoscaling := pool.Spec.AutoScaling; autoscaling != nil {
		c.setTrue(hyperv1.NodePoolAutoscalingEnabledConditionType, fmt.Sprintf("Maximum nodes: %d, Minimum nodes: %d", autoscaling.Max, ptr.Deref(autoscaling.Min, 0)))
	} else {
		c.setBool(hyperv1.NodePoolAutoscalingEnabledConditionType, false, hyperv1.AsExpectedReason, "")
	}
}

// decideMachines sets the conditions and counts that follow from the machines and their rollout. configChanged reports whether another
// configuration is rolled out than the last one.
func decideMachines(c conditions, status *hyperv1.NodePoolStatus, o *observation, configChanged bool) {
	t := o.target
	versions := map[[2]string]*hyperv1.NodeVersion{}
	active, provisioned, ready := 0, 0, 0
	var outdatedTemplate, ignited bool
	unhealthy := map[string][]string{}
	for i := range o.machines {
		m := &o.machines[i]
		registered := !m.Ready.IsZero() || !t.neverIgnites && o.now.Sub(m.Created) >= o.machineReady
		// The kubelet of a machine that is being drained still reports.
		healthy := !m.Ready.IsZero() && m.Unhealthy.IsZero() && (o.nodeReady == nil || o.nodeReady[m.Name] || !m.active())
		if registered {
			count := versions[[2]string{m.Version, m.Kubelet}]
			if count == nil {
				count = &hyperv1.NodeVersion{OCPVersion: m.Version, KubeletVersion: m.Kubelet, ReadyNodeCount: new(int32), UnreadyNodeCount: new(int32)}
				versions[[2]string{m.Version, m.Kubelet}] = count
			}
			if healthy {
				*count.ReadyNodeCount++
			} else {
				*count.UnreadyNodeCount++
			}
		}
		// Nodes fetch the configuration of a version with a token of its own.
		ignited = ignited || m.Config == t.config && m.Version == t.version && (registered || !t.neverIgnites && o.now.Sub(m.Created) >= o.ignition)
		if !m.active() {
			continue
		}
		active++
		outdatedTemplate = outdatedTemplate || m.Template != t.template
		if registered {
			provisioned++
		}
		if healthy {
			ready++
			continue
		}
		reason := unhealthyReason(m, registered, t)
		unhealthy[reason] = append(unhealthy[reason], m.Name)
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
	updatingConfig := !complete && (configChanged || status.Version == "")
	c.setBool(hyperv1.NodePoolUpdatingVersionConditionType, updatingVersion, hyperv1.AsExpectedReason, textIf(updatingVersion, "Updating version in progress. Target version: "+t.version, ""))
	c.setBool(hyperv1.NodePoolUpdatingConfigConditionType, updatingConfig, hyperv1.AsExpectedReason, textIf(updatingConfig, "Updating config in progress. Target config: "+t.config, ""))
	c.setBool(hyperv1.NodePoolUpdatingPlatformMachineTemplateConditionType, outdatedTemplate, hyperv1.AsExpectedReason, textIf(outdatedTemplate, "Updating platform machine template in progress", ""))

	// The token of a configuration records that a node has fetched it, so the condition stays True without machines.
	if reached := ignited || t.inPlace && c.isTrue(hyperv1.NodePoolReachedIgnitionEndpoint); active > 0 || !c.isTrue(hyperv1.NodePoolReachedIgnitionEndpoint) {
		c.setBool(hyperv1.NodePoolReachedIgnitionEndpoint, reached, reasonIf(reached, hyperv1.IgnitionNotReached), "")
	}
	switch {
	case t.replicas == 0 && active == 0:
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
		machines := provisioned == active && active >= t.replicas
		c.setBool(hyperv1.NodePoolAllMachinesReadyConditionType, machines, reasonIf(machines, "Provisioning"), textIf(machines, hyperv1.AllIsWellMessage, fmt.Sprintf("%d of %d machines are not ready", max(active, t.replicas)-provisioned, max(active, t.replicas))))
		c.setBool(hyperv1.NodePoolAllNodesHealthyConditionType, ready == active, reasonIf(ready == active, joinReasons(unhealthy)), textIf(ready == active, hyperv1.AllIsWellMessage, unhealthyText(unhealthy, active)))
	}
	if t.autoRepair && c.isTrue(hyperv1.NodePoolReachedIgnitionEndpoint) {
		c.setTrue(hyperv1.NodePoolAutorepairEnabledConditionType, "")
	}
	if tooManyUnhealthy(o.machines, t) {
		c.setBool(hyperv1.NodePoolReadyConditionType, false, "TooManyUnhealthy", fmt.Sprintf("Remediation is not allowed, more than %d machines are unhealthy", maxUnhealthy))
		return
	}
	available := ready >= t.replicas
	c.setBool(hyperv1.NodePoolReadyConditionType, available, reasonIf(available, "ScalingUp"), textIf(available, "", fmt.Sprintf("Minimum availability requires %d replicas, current %d available", t.replicas, ready)))
}

// unhealthyReason returns the reason of Cluster API for a machine whose node is not healthy.
func unhealthyReason(m *Machine, registered bool, t target) string {
	switch {
	case registered:
		return "NodeConditionsFailed"
	case t.neverIgnites:
		return "NodeProvisioning"
	}
	return "WaitingForNodeRef"
}

// joinReasons joins the reasons of machines as the operator does.
func joinReasons(machines map[string][]string) string {
	return strings.Join(slices.Sorted(maps.Keys(machines)), ",")
}

// unhealthyText returns the operator's message about machines whose nodes are not healthy, by reason.
func unhealthyText(machines map[string][]string, active int) string {
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(machines)) {
		for _, name := range slices.Sorted(slices.Values(machines[reason])) {
			lines = append(lines, fmt.Sprintf("Machine %s: %s\n", name, reason))
		}
	}
	return fmt.Sprintf("%d of %d machines are not healthy\n%s", len(lines), active, strings.Join(lines, ""))
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
