package nodepool

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is the desired state of a node.
type Node struct {
	Name string
	// Ready makes the node report Ready. A node that is not Ready is registered but still starting.
	Ready bool
	// Unreachable simulates a kubelet that stopped reporting. Cordoned makes the node unschedulable, because it is
	// being drained.
	Unreachable, Cordoned bool
	// Version is the OpenShift release, Kubelet the version of the kubelet.
	Version, Kubelet string
	Arch             string
	VMSize, Zone     string
	Location         string
	SubscriptionID   string
	ResourceGroup    string
	// Labels and Taints are those of the node pool.
	Labels map[string]string
	Taints []corev1.Taint

	// announce adds the address of the node's kubelet to its status; nil if it has none.
	announce func(*corev1.NodeStatus)
}

// labelsSynced is HyperShift's annotation of a node that has received the labels and taints of its pool. A node receives them once, so
// that changes of the pool reach new nodes only, and what others change on a node remains.
const labelsSynced = "hypershift.openshift.io/labelsSynced"

// apply changes object to the desired state, and reports whether metadata or spec, and whether the status, differ from
// before. It keeps what others have set.
func (n *Node) apply(pool string, object *corev1.Node, now metav1.Time) (specChanged, statusChanged bool) {
	before := object.DeepCopy()
	object.Name = n.Name
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	if _, synced := object.Annotations[labelsSynced]; !synced {
		object.Annotations[labelsSynced] = "true"
		maps.Copy(object.Labels, n.Labels)
		for _, taint := range n.Taints {
			if !slices.ContainsFunc(object.Spec.Taints, func(existing corev1.Taint) bool { return existing.MatchTaint(&taint) }) {
				object.Spec.Taints = append(object.Spec.Taints, taint)
			}
		}
	}
	maps.Copy(object.Labels, n.WellKnownLabels(pool))
	object.Labels["kubernetes.io/hostname"] = n.Name
	if object.Spec.ProviderID == "" {
		object.Spec.ProviderID = fmt.Sprintf("azure:///subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachines/%s", n.SubscriptionID, n.ResourceGroup, n.Name)
	}
	object.Spec.Taints = n.withStateTaints(object.Spec.Taints)
	// A node that someone else has cordoned remains cordoned.
	object.Spec.Unschedulable = object.Spec.Unschedulable || n.Cordoned
	specChanged = !equality.Semantic.DeepEqual(before.ObjectMeta, object.ObjectMeta) || !equality.Semantic.DeepEqual(before.Spec, object.Spec)

	n.applyStatus(object, now)
	return specChanged, !equality.Semantic.DeepEqual(before.Status, object.Status)
}

// withStateTaints returns taints with those that Kubernetes' controllers add to a node in this state, and without the others of theirs.
func (n *Node) withStateTaints(taints []corev1.Taint) []corev1.Taint {
	taints = slices.DeleteFunc(slices.Clone(taints), func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeUnschedulable || taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady
	})
	if n.Cordoned {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if n.Unreachable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	}
	return taints
}

// allocatable returns the resources of a node that are available to pods. All nodes are equal.
func allocatable() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("64Gi"),
	}
}

// WellKnownLabels returns the labels by which pods select nodes, without the pool's own labels.
func (n *Node) WellKnownLabels(pool string) map[string]string {
	return map[string]string{
		hyperv1.NodePoolLabel:              pool,
		"kubernetes.io/os":                 "linux",
		"kubernetes.io/arch":               n.Arch,
		"node-role.kubernetes.io/worker":   "",
		"node.kubernetes.io/instance-type": n.VMSize,
		"node.openshift.io/os_id":          "rhel",
		"topology.kubernetes.io/region":    n.Location,
		"topology.kubernetes.io/zone":      n.zone(),
	}
}

func (n *Node) zone() string {
	if n.Zone == "" {
		return "0"
	}
	return n.Location + "-" + n.Zone
}

func (n *Node) applyStatus(object *corev1.Node, now metav1.Time) {
	status := &object.Status
	capacity := allocatable()
	status.Capacity, status.Allocatable = capacity, capacity
	status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}, {Type: corev1.NodeInternalIP, Address: n.address()}}
	if n.announce != nil {
		n.announce(status)
	}
	status.NodeInfo.KubeletVersion = n.Kubelet
	status.NodeInfo.OSImage = "Red Hat Enterprise Linux CoreOS (OpenShift " + n.Version + ")"
	status.NodeInfo.OperatingSystem = "linux"
	status.NodeInfo.Architecture = n.Arch
	status.NodeInfo.ContainerRuntimeVersion = "cri-o://" + n.Kubelet[1:]
	status.NodeInfo.MachineID = n.Name
	set := func(kind corev1.NodeConditionType, value corev1.ConditionStatus, reason, message string) {
		condition := corev1.NodeCondition{Type: kind, Status: value, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
		for i := range status.Conditions {
			existing := &status.Conditions[i]
			if existing.Type != kind {
				continue
			}
			if existing.Status == value && existing.Reason == reason && existing.Message == message {
				return
			}
			if existing.Status == value {
				condition.LastTransitionTime = existing.LastTransitionTime
			}
			*existing = condition
			return
		}
		status.Conditions = append(status.Conditions, condition)
	}
	if n.Unreachable {
		for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
			set(kind, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
		}
		return
	}
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	set(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	if n.Ready {
		set(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
		return
	}
	set(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready")
}

// address returns an address in 10.0.0.0/16, the machine network of most clusters. It depends on the name alone.
func (n *Node) address() string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(n.Name))
	sum := hash.Sum32()
	return fmt.Sprintf("10.0.%d.%d", sum>>8&0xff, 4+sum%250)
}
