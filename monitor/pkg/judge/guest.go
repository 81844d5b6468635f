package judge

import (
	"fmt"
	"time"
)

// The times after which a problem of a guest is a concern. Machines start, join and are replaced within nodeDelay; connections of nodes
// and operators recover from restarts within guestDelay. Cluster operators move to other nodes, one after the other, within operatorsDelay.
const (
	nodeDelay      = 20 * time.Minute
	guestDelay     = 10 * time.Minute
	operatorsDelay = 30 * time.Minute
)

// Nodes are the nodes of a cluster, as its node pools report them. Monitor does not read the cluster itself.
type Nodes struct {
	// Wanted is the number of nodes that the node pools must have, of an autoscaled one the minimum; Ready is the number of ready nodes.
	Wanted, Ready int
	// Machines and Healthy are the worst conditions of a node pool: all its machines run, and all its nodes are ready.
	Machines, Healthy Condition
}

// Condition is what a condition of a HostedCluster or of a NodePool reports, with its message. The zero value means that it reports nothing.
type Condition struct {
	Part
	Message string
	// Pool is the name of the node pool that has the condition.
	Pool string
}

// judgeGuest adds concerns about the nodes and about what depends on them. It makes no statement while the API is unavailable or its control
// plane is created or upgraded: nodes and operators are expected to be reported late then.
func (v *Verdict) judgeGuest(now time.Time, cluster *Cluster) {
	if v.API == Unavailable || v.During != "" {
		return
	}
	nodes := &cluster.Nodes
	switch {
	case nodes.Machines.failed(now, nodeDelay):
		v.add(MachinesMissing, nodes.Machines.Since, nodes.evidence(&nodes.Machines))
	case nodes.Healthy.failed(now, nodeDelay):
		v.add(NodesNotReady, nodes.Healthy.Since, nodes.evidence(&nodes.Healthy))
	}
	// Without nodes, operators have nowhere to run, and nothing connects to the control plane.
	if nodes.Ready == 0 {
		return
	}
	if cluster.DataPlane.failed(now, guestDelay) {
		v.add(DataPlaneDisconnected, cluster.DataPlane.Since, "HyperShift reports that the control plane does not reach the nodes")
	}
	if degraded := &cluster.Degraded; degraded.Status == partAvailable && now.Sub(degraded.Since) >= guestDelay {
		v.add(Degraded, degraded.Since, "HyperShift reports: "+degraded.Message)
	}
	if operators := &cluster.Operators; operators.failed(now, operatorsDelay) {
		v.add(OperatorsFail, operators.Since, "the cluster-version operator reports: "+operators.Message)
	}
}

func (n *Nodes) evidence(part *Condition) string {
	text := fmt.Sprintf("%d of %d nodes are ready; node pool %s", n.Ready, n.Wanted, part.Pool)
	if part.Message != "" {
		text += ": " + part.Message
	}
	return text
}
