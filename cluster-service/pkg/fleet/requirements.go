package fleet

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// PoolNeed is what a node pool needs from Azure Compute.
type PoolNeed struct {
	UID string
	// VMSize is the size of the virtual machines. Zone is their availability zone, or empty.
	VMSize, Zone string
	// Nodes is the number of nodes of the pool, the minimum of an autoscaled one. Missing is the number of those that are not ready yet.
	Nodes, Missing int64
}

// Input identifies the part of the need that only a request of the customer changes.
func (n PoolNeed) Input() string { return fmt.Sprintf("%s/%s/%d", n.VMSize, n.Zone, n.Nodes) }

// Requirement is the result of the last check of a PoolNeed.
type Requirement struct {
	// Input is that of the checked need.
	Input string `json:"input"`
	// Status, Reason and Message are those of the condition RequirementsValid.
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// factRequirements is the fact of AzureRequirements with the Requirement of each node pool by its UID, in JSON.
const factRequirements = "requirements"

// RequirementFacts returns the facts of AzureRequirements. They replace those of the last attempt.
func RequirementFacts(byPool map[string]Requirement) map[string]string {
	text, _ := json.Marshal(byPool) // strings and times
	return map[string]string{factRequirements: string(text)}
}

// Requirements returns the results of the last check by the UID of the node pool.
func (a *Azure) Requirements() map[string]Requirement {
	byPool := map[string]Requirement{}
	if s := a.Step(AzureRequirements); s != nil && s.Facts[factRequirements] != "" {
		_ = json.Unmarshal([]byte(s.Facts[factRequirements]), &byPool) // an unreadable result is checked again
	}
	return byPool
}

// PoolNeeds returns the needs of all node pools that are not being deleted.
func (t *ClusterAggregate) PoolNeeds() []PoolNeed {
	var needs []PoolNeed
	for _, p := range t.Pools {
		if !p.Deleting() {
			needs = append(needs, t.poolNeed(p))
		}
	}
	return needs
}

func (t *ClusterAggregate) poolNeed(p *NodePool) PoolNeed {
	platform := p.Spec.GetPlatform()
	n := PoolNeed{UID: p.UID, VMSize: platform.GetVmSize(), Zone: platform.GetAvailabilityZone(), Nodes: int64(p.Spec.GetReplicas())}
	if autoscales(p.Spec) {
		n.Nodes = int64(p.Spec.GetAutoscaling().GetMin())
	}
	n.Missing = n.Nodes
	if w := t.Work(NodePoolWork, p.UID); w != nil && !w.Observed.Missing {
		n.Missing = max(0, n.Nodes-max(0, w.Observed.Replicas))
	}
	return n
}

// requirementsInput returns a digest of the needs of all node pools; empty if there are none.
func (t *ClusterAggregate) requirementsInput() string {
	var inputs []string
	for _, n := range t.PoolNeeds() {
		inputs = append(inputs, n.UID+"/"+n.Input())
	}
	if len(inputs) == 0 {
		return ""
	}
	return digest(inputs)
}

// requirementsCondition returns the condition RequirementsValid of a node pool from the results of the last check. It keeps its status until the current need is checked. A pool whose
// nodes are all ready needs nothing, whatever the last check found.
func (t *ClusterAggregate) requirementsCondition(p *NodePool, checked map[string]Requirement) condition {
	need := t.poolNeed(p)
	found, known := checked[p.UID]
	switch {
	case !known || found.Input != need.Input():
		return condition{name: clusterstatus.RequirementsValid}
	case need.Missing == 0:
		return condition{clusterstatus.RequirementsValid, "True", clusterstatus.RequirementsMet, ""}
	}
	return condition{clusterstatus.RequirementsValid, found.Status, found.Reason, found.Message}
}
