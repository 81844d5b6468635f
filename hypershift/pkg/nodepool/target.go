package nodepool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/release"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// skew returns why nodes of a release are not compatible with a control plane: they must not be newer, nor more than
// three minor versions older. It returns "" if they are compatible.
func skew(pool, cluster *release.Release) string {
	switch {
	case cluster == nil:
		return ""
	case cluster.LessThan(pool):
		return fmt.Sprintf("NodePool version %s cannot be higher than the HostedCluster version %s", pool.Version, cluster.Version)
	case cluster.Version.Ordinal()-pool.Version.Ordinal() > 3:
		return fmt.Sprintf("NodePool minor version %s is more than 3 minor versions older than the HostedCluster version %s", pool.Version, cluster.Version)
	}
	return ""
}

// target derives the desired state of the machines from the spec.
func (r *Reconciler) target(pool *hyperv1.NodePool, o *observation) (target, error) {
	faults, err := contract.ParseFaults(pool.Annotations)
	if err != nil {
		return target{}, err
	}
	t := target{
		replicas: replicas(pool), config: configHash(pool, o.cluster), template: templateHash(pool),
		maxSurge: 1, neverIgnites: faults.Has(contract.FaultNeverIgnites), drainStuck: faults.Has(contract.FaultDrainStuck),
	}
	if o.release != nil {
		t.version, t.kubelet = o.release.Version.String(), o.release.Kubelet
	}
	t.autoRepair, t.unhealthy = pool.Spec.Management.AutoRepair, unhealthyNodes(pool)
	if azure := pool.Spec.Platform.Azure; azure != nil {
		t.vmSize, t.zone = azure.VMSize, azure.AvailabilityZone
	}
	if pool.Spec.NodeDrainTimeout != nil {
		t.drainTimeout = pool.Spec.NodeDrainTimeout.Duration
	}
	management := pool.Spec.Management
	switch management.UpgradeType {
	case hyperv1.UpgradeTypeInPlace:
		t.inPlace, t.maxUnavailable = true, 1
		if management.InPlace != nil {
			t.maxUnavailable = max(1, scaledValue(management.InPlace.MaxUnavailable, t.replicas, 1, false))
		}
		return t, nil
	case hyperv1.UpgradeTypeReplace, "":
	default:
		return target{}, fmt.Errorf("spec.management.upgradeType: unknown value %q: supported values are %q and %q", management.UpgradeType, hyperv1.UpgradeTypeReplace, hyperv1.UpgradeTypeInPlace)
	}
	if management.Replace != nil {
		switch strategy := management.Replace.Strategy; strategy {
		case hyperv1.UpgradeStrategyOnDelete:
			t.onDelete = true
		case hyperv1.UpgradeStrategyRollingUpdate, "":
		default:
			return target{}, fmt.Errorf("spec.management.replace.strategy: unknown value %q: supported values are %q and %q", strategy, hyperv1.UpgradeStrategyRollingUpdate, hyperv1.UpgradeStrategyOnDelete)
		}
		if rolling := management.Replace.RollingUpdate; rolling != nil {
			t.maxSurge = scaledValue(rolling.MaxSurge, t.replicas, 1, true)
			t.maxUnavailable = scaledValue(rolling.MaxUnavailable, t.replicas, 0, false)
		}
	}
	if t.maxSurge == 0 && t.maxUnavailable == 0 {
		t.maxUnavailable = 1 // as in a MachineDeployment: a rollout without surge and unavailability could never progress
	}
	return t, nil
}

// unhealthyNodes returns the nodes that the annotation names.
func unhealthyNodes(pool *hyperv1.NodePool) map[string]bool {
	names := map[string]bool{}
	for name := range strings.SplitSeq(pool.Annotations[contract.UnhealthyAnnotation], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names[name] = true
		}
	}
	return names
}

func scaledValue(value *intstr.IntOrString, total, unset int, roundUp bool) int {
	if value == nil {
		return unset
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, total, roundUp)
	if err != nil {
		return unset
	}
	return max(0, n)
}

// replicas returns the desired number of nodes. An autoscaled pool has its minimum, or the load that the annotation
// states, within its range.
func replicas(pool *hyperv1.NodePool) int {
	autoscaling := pool.Spec.AutoScaling
	if autoscaling == nil {
		if pool.Spec.Replicas == nil {
			return 0
		}
		return int(*pool.Spec.Replicas)
	}
	minimum, maximum := autoscalingRange(pool)
	load, err := strconv.Atoi(pool.Annotations[contract.AutoscaleAnnotation])
	if err != nil {
		load = minimum
	}
	return min(max(load, minimum), maximum)
}

// configHash identifies the settings, besides release and template, whose change replaces machines.
func configHash(pool *hyperv1.NodePool, hc *hyperv1.HostedCluster) string {
	var proxy, image any
	if hc.Spec.Configuration != nil {
		proxy, image = hc.Spec.Configuration.Proxy, hc.Spec.Configuration.Image
	}
	return hash(pool.Spec.Config, pool.Spec.TuningConfig, hc.Spec.PullSecret.Name, hc.Spec.AdditionalTrustBundle, hc.Spec.ImageContentSources, proxy, image)
}

// reportedHash identifies the settings of configHash whose change UpdatingConfig reports.
func reportedHash(pool *hyperv1.NodePool, hc *hyperv1.HostedCluster) string {
	return hash(pool.Spec.Config, pool.Spec.TuningConfig, hc.Spec.PullSecret.Name, hc.Spec.AdditionalTrustBundle, hc.Spec.ImageContentSources)
}

func templateHash(pool *hyperv1.NodePool) string { return hash(pool.Spec.Platform, pool.Spec.Arch) }

func hash(parts ...any) string {
	digest := sha256.New()
	_ = json.NewEncoder(digest).Encode(parts) // API types can always be encoded, and writing to a digest never fails
	return hex.EncodeToString(digest.Sum(nil))[:8]
}
