package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a way for a hosted cluster or node pool to go wrong, asked for with FaultAnnotation. It lasts as long as the
// annotation names it.
type Fault string

// The faults there are. The first group is read from a HostedCluster, the second from a NodePool.
const (
	// FaultInfrastructureStuck keeps a creation in WaitingOnInfrastructureReady.
	FaultInfrastructureStuck Fault = "infrastructure-stuck"
	// FaultEtcdQuorumLoss takes etcd's quorum away.
	FaultEtcdQuorumLoss Fault = "etcd-quorum-loss"
	// FaultComponentsStuck keeps the operators' components from rolling out, in a creation and in an upgrade.
	FaultComponentsStuck Fault = "components-stuck"
	// FaultKMSInvalid has the Azure key vault refuse the key.
	FaultKMSInvalid Fault = "kms-invalid"
	// FaultConditionsUnknown reports every condition that comes from the control plane as Unknown.
	FaultConditionsUnknown Fault = "conditions-unknown"
	// FaultDegraded reports the control plane as degraded.
	FaultDegraded Fault = "degraded"
	// FaultNotUpgradeable has the cluster say that it is not ready for another minor version.
	FaultNotUpgradeable Fault = "not-upgradeable"
	// FaultDeleteStuck keeps a deletion waiting for cloud resources.
	FaultDeleteStuck Fault = "delete-stuck"

	// FaultCloudGone has the resource group gone that a deletion's cloud resources are in: it waits for them in vain until
	// HyperShift gives up waiting, and goes on.
	FaultCloudGone Fault = "cloud-gone"

	// FaultNeverIgnites keeps new machines from reaching the ignition endpoint.
	FaultNeverIgnites Fault = "never-ignites"
	// FaultDrainStuck keeps machines that are to go from being drained.
	FaultDrainStuck Fault = "drain-stuck"
)

var knownFaults = []Fault{
	FaultInfrastructureStuck, FaultEtcdQuorumLoss, FaultComponentsStuck, FaultKMSInvalid, FaultConditionsUnknown,
	FaultDegraded, FaultNotUpgradeable, FaultDeleteStuck, FaultCloudGone, FaultNeverIgnites, FaultDrainStuck,
}

// Faults is a set of faults.
type Faults []Fault

// Has reports whether the set contains fault.
func (f Faults) Has(fault Fault) bool { return slices.Contains(f, fault) }

// ParseFaults reads FaultAnnotation. Names it does not know are an error that lists them; the others count.
func ParseFaults(annotations map[string]string) (Faults, error) {
	var faults Faults
	var unknown []string
	for name := range strings.SplitSeq(annotations[FaultAnnotation], ",") {
		fault := Fault(strings.TrimSpace(name))
		switch {
		case fault == "":
		case slices.Contains(knownFaults, fault):
			faults = append(faults, fault)
		default:
			unknown = append(unknown, string(fault))
		}
	}
	if len(unknown) > 0 {
		return faults, fmt.Errorf("annotation %s: unknown faults %s", FaultAnnotation, strings.Join(unknown, ", "))
	}
	return faults, nil
}
