package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a misbehaviour of a hosted cluster or node pool that FaultAnnotation injects. It lasts as long as the
// annotation names it.
type Fault string

// The faults. A HostedCluster supports all but the last two, a NodePool only those two.
const (
	// FaultInfrastructureStuck keeps a creation in WaitingOnInfrastructureReady.
	FaultInfrastructureStuck Fault = "infrastructure-stuck"
	// FaultEtcdQuorumLoss makes etcd lose its quorum.
	FaultEtcdQuorumLoss Fault = "etcd-quorum-loss"
	// FaultComponentsStuck stops the rollout of the operators' components, in a creation and in an upgrade.
	FaultComponentsStuck Fault = "components-stuck"
	// FaultKMSInvalid makes the Azure key vault refuse the key.
	FaultKMSInvalid Fault = "kms-invalid"
	// FaultConditionsUnknown reports every condition that comes from the control plane as Unknown.
	FaultConditionsUnknown Fault = "conditions-unknown"
	// FaultDegraded reports the control plane as degraded.
	FaultDegraded Fault = "degraded"
	// FaultNotUpgradeable makes the cluster report that it is not upgradeable to another minor version.
	FaultNotUpgradeable Fault = "not-upgradeable"
	// FaultEndpointBroken makes the HostedCluster report an endpoint at which nothing listens, as a load balancer without members
	// would do. The API server and its probes work.
	FaultEndpointBroken Fault = "endpoint-broken"
	// FaultDeleteStuck makes a deletion wait for cloud resources forever.
	FaultDeleteStuck Fault = "delete-stuck"

	// FaultCloudGone simulates that the resource group of the cloud resources is gone: a deletion waits until
	// HyperShift's timeout and continues.
	FaultCloudGone Fault = "cloud-gone"

	// FaultNeverIgnites stops new machines from reaching the ignition endpoint.
	FaultNeverIgnites Fault = "never-ignites"
	// FaultDrainStuck stops the draining of machines that are marked for deletion.
	FaultDrainStuck Fault = "drain-stuck"
)

var knownFaults = []Fault{
	FaultInfrastructureStuck, FaultEtcdQuorumLoss, FaultComponentsStuck, FaultKMSInvalid, FaultConditionsUnknown,
	FaultDegraded, FaultNotUpgradeable, FaultEndpointBroken, FaultDeleteStuck, FaultCloudGone, FaultNeverIgnites, FaultDrainStuck,
}

// Faults is a set of faults.
type Faults []Fault

// Has reports whether the set contains fault.
func (f Faults) Has(fault Fault) bool { return slices.Contains(f, fault) }

// ParseFaults returns the faults that FaultAnnotation names. Unknown names are an error that lists them and the supported
// faults; the known ones are returned as well.
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
		return faults, fmt.Errorf("annotation %s: unknown faults %q: supported faults are %q", FaultAnnotation, unknown, knownFaults)
	}
	return faults, nil
}
