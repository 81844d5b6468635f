package validation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// NodePoolChange is a requested change of a node pool.
type NodePoolChange struct {
	New *hub.NodePool
	// Old is the stored node pool; nil for a new one.
	Old *hub.NodePool
	// Running is the observed version of the pool; empty before one was observed.
	Running string
	// Cluster is the pool's cluster. ActiveVersions are the versions that its control plane runs.
	Cluster        *hub.Cluster
	ActiveVersions []string
	Subscription   *hub.Subscription
}

// NodePool returns all violations of a change.
func (r *Rules) NodePool(change NodePoolChange) []apierror.Violation {
	now := func(report *report) { r.nodePool(report, change.New, change) }
	if change.Old == nil {
		return validate(now, nil).violations()
	}
	found := validate(now, func(report *report) { r.nodePool(report, change.Old, change) })
	found.location(change.Old.Location, change.New.Location)
	nodePoolVersionStep(found, change)
	nodePoolImmutable(found, change.Old, change.New)
	return found.violations()
}

// maxNodes is the most nodes of a pool without an availability zone.
const maxNodes = 200

func (r *Rules) nodePool(report *report, pool *hub.NodePool, change NodePoolChange) {
	r.resource(report, &pool.Resource)
	p := &pool.Properties
	nodePoolVersion(report, &p.Version, change)
	channelGroup(report, "properties.version.channelGroup", p.Version.ChannelGroup, change.Subscription)
	r.nodePoolPlatform(report, pool, change.Cluster)

	most := int32(maxNodes)
	if p.Platform.AvailabilityZone != "" {
		most = -1
	}
	report.between("properties.replicas", p.Replicas, 0, most)
	if scaling := p.AutoScaling; scaling != nil {
		if p.Replicas != 0 {
			report.invalid("properties.replicas", p.Replicas, "must not be given together with autoScaling")
		}
		report.between("properties.autoScaling.min", scaling.Min, 0, most)
		report.between("properties.autoScaling.max", scaling.Max, 0, most)
		if scaling.Min >= 0 && scaling.Max >= 0 && scaling.Min > scaling.Max && (most < 0 || scaling.Min <= most) {
			report.invalid("properties.autoScaling.max", scaling.Max, "must be greater than or equal to min %d", scaling.Min)
		}
	}
	labels(report, p.Labels)
	taints(report, p.Taints)
	if timeout := p.NodeDrainTimeoutMinutes; timeout != nil {
		report.between("properties.nodeDrainTimeoutMinutes", *timeout, 0, 10080)
	}
}

func (r *Rules) nodePoolPlatform(report *report, pool *hub.NodePool, cluster *hub.Cluster) {
	const field = "properties.platform."
	p := &pool.Properties.Platform
	switch {
	case p.VMSize == "":
		report.required(field + "vmSize")
	case !slices.Contains(r.offer.VMSizes, p.VMSize):
		report.unsupported(field+"vmSize", p.VMSize, slices.Sorted(slices.Values(r.offer.VMSizes))...)
	}
	managedGroup := cluster.Properties.Platform.ManagedResourceGroup
	subnet, ok := subnetRef(report, field+"subnetId", p.SubnetID, pool.ID, managedGroup)
	if ok && !strings.EqualFold(subnet.Parent, parentOf(cluster.Properties.Platform.SubnetID)) {
		report.invalid(field+"subnetId", p.SubnetID, "must be in the virtual network of the cluster's subnet")
	}
	if p.AvailabilityZone != "" && !slices.Contains(r.offer.AvailabilityZones, p.AvailabilityZone) {
		report.unsupported(field+"availabilityZone", p.AvailabilityZone, r.offer.AvailabilityZones...)
	}
	disk := &p.OSDisk
	most := int32(4095)
	if disk.DiskType == "Ephemeral" {
		most = 2040
		if !pool.Properties.AutoRepair {
			report.invalid("properties.autoRepair", false, "must be true when diskType is Ephemeral")
		}
	}
	report.between(field+"osDisk.sizeGiB", disk.SizeGiB, 64, most)
	requiredText(report, field+"osDisk.diskStorageAccountType", disk.DiskStorageAccountType)
	requiredText(report, field+"osDisk.diskType", disk.DiskType)
	if disk.EncryptionSetID != "" {
		// An encryption set of another subscription can be used, unlike other resources.
		id, ok := resourceRef(report, field+"osDisk.encryptionSetId", disk.EncryptionSetID, "Microsoft.Compute/diskEncryptionSets", "", managedGroup)
		if ok && (len(id.Name) > maxEncryptionSetName || !isEncryptionSetName(id.Name)) {
			report.invalid(field+"osDisk.encryptionSetId", disk.EncryptionSetID, "the disk encryption set's name must have at most %d letters, digits, '_' and '-'", maxEncryptionSetName)
		}
		if ok && !hasASCII(id.ResourceGroup) {
			report.invalid(field+"osDisk.encryptionSetId", disk.EncryptionSetID, "%s", groupWithoutASCII)
		}
	}
}

// maxEncryptionSetName is the most characters of the name of a disk encryption set. With it, the ID has at most the 285
// characters that HyperShift accepts.
const maxEncryptionSetName = 80

// minNodePoolVersion is the oldest version that node pools can have without ExperimentalFeature.
var minNodePoolVersion = version{major: 4, minor: 20, patch: 8}

// maxSkew is the most minor versions between nodes and their control plane, and the most that one upgrade may cover.
const maxSkew = 2

func nodePoolVersion(report *report, v *hub.Version, change NodePoolChange) {
	const field = "properties.version.id"
	if v.ID == "" {
		report.required(field)
		return
	}
	parsed, ok := parseVersion(v.ID, 3)
	if !ok {
		report.invalid(field, v.ID, "must be of the form MAJOR.MINOR.PATCH")
		return
	}
	if parsed.compare(minNodePoolVersion) < 0 && !change.Subscription.HasFeature(ExperimentalFeature) {
		report.invalid(field, v.ID, "must be at least %s", minNodePoolVersion)
		return
	}
	lowest, highest, ok := controlPlaneVersions(change)
	if !ok || change.Old != nil && v.ID == change.Running {
		return
	}
	if parsed.compare(lowest) > 0 {
		report.invalid(field, v.ID, "must not be higher than the control plane's version %s", lowest)
		return
	}
	if highest.ordinal()-parsed.ordinal() > maxSkew {
		report.invalid(field, v.ID, "must be within %d minor versions of the control plane's version %s", maxSkew, highest)
	}
}

// controlPlaneVersions returns the lowest and the highest version that the control plane runs, which differ during an
// upgrade. Before it runs any, both are the cluster's desired version.
func controlPlaneVersions(change NodePoolChange) (lowest, highest version, ok bool) {
	if lowest, highest, ok = versionRange(change.ActiveVersions); ok {
		return lowest, highest, true
	}
	desired, ok := parseVersion(change.Cluster.Properties.Version.ID, 2)
	return desired, desired, ok
}

// nodePoolVersionStep validates a change of the version. The nodes can always return to the version that they run, so that a
// customer can end an upgrade that does not make progress.
func nodePoolVersionStep(report *report, change NodePoolChange) {
	const field = "properties.version.id"
	id := change.New.Properties.Version.ID
	if id == change.Running {
		return
	}
	old, oldOK := parseVersion(change.Old.Properties.Version.ID, 3)
	now, nowOK := parseVersion(id, 3)
	if !oldOK || !nowOK {
		return
	}
	if now.compare(old) < 0 {
		report.invalid(field, id, "must not be lower than the current version %s", old)
	}
	// A version that the nodes have not reached does not count.
	running := old
	if nodes, ok := parseVersion(change.Running, 3); ok && nodes.compare(old) < 0 {
		running = nodes
	}
	if now.compare(old) != 0 && now.ordinal()-running.ordinal() > maxSkew {
		report.invalid(field, id, "must be at most %d minor versions above the current version %s", maxSkew, running)
	}
	if now.major != old.major && !change.Subscription.HasFeature(ExperimentalFeature) {
		report.invalid(field, id, "a new major version needs the feature %s registered on the subscription", ExperimentalFeature)
	}
}

// The labels that determine a machine's role are reserved for the service.
var (
	forbiddenLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/worker"}
	roleLabels      = []string{"machine.openshift.io/cluster-api-machine-role", "machine.openshift.io/cluster-api-machine-type"}
	forbiddenRoles  = []string{"infra", "master"}
)

// managedLabel precedes the key of a node's label in the key of the label with which HyperShift hands it to the Machine. That must be a
// qualified name too: otherwise HyperShift cannot create the pool's machines.
const managedLabel = "managed.hypershift.openshift.io."

const managedLabelMessage = "must have no more than 221 characters before '/', and no more than 31 characters if it has no '/'"

// labels validates the labels of the nodes. Their form is in the message of the whole list, because a malformed key is not
// part of a path.
func labels(report *report, labels []hub.Label) {
	if report.tooMany("properties.labels", len(labels), hub.MaxLabels) {
		return
	}
	for _, label := range labels {
		field := "properties.labels[" + label.Key + "]"
		switch {
		case !isQualifiedName(label.Key):
			report.invalid("properties.labels", label.Key, "%s", qualifiedNameMessage)
			continue
		case !isQualifiedName(managedLabel + label.Key):
			report.invalid("properties.labels", label.Key, "%s", managedLabelMessage)
			continue
		case slices.Contains(forbiddenLabels, label.Key), isOwnedLabel(label.Key):
			report.invalid(field, label.Key, "the label is reserved")
		case slices.Contains(roleLabels, label.Key) && slices.Contains(forbiddenRoles, label.Value):
			report.invalid(field, label.Value, "the label must not have this value")
		}
		if !isLabelValue(label.Value) {
			report.invalid(field, label.Value, "%s", labelValueMessage)
		}
	}
}

// isOwnedLabel reports whether HyperShift or a component of Kubernetes owns a label of nodes. Kubernetes reserves its domains. Its admission
// plugin NodeRestriction leaves the labels of kubelet.kubernetes.io and node.kubernetes.io to nodes, and those of
// node-restriction.kubernetes.io to administrators. Roles of nodes are labels of customers.
func isOwnedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	if slices.ContainsFunc(settableDomains, func(settable string) bool { return isWithin(domain, settable) }) {
		return slices.Contains(nodeLabels, key)
	}
	return isOwnedDomain(domain)
}

// isOwnedTaint reports whether HyperShift or a component of Kubernetes owns a taint. It adds and removes the taint by the state of a node.
func isOwnedTaint(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain != "node-role.kubernetes.io" && isOwnedDomain(domain)
}

// settableDomains are the domains of ownedDomains with labels that customers can set, except nodeLabels, which the cloud controller manager
// and the kubelet set.
var (
	settableDomains = []string{"node-role.kubernetes.io", "node-restriction.kubernetes.io", "kubelet.kubernetes.io", "node.kubernetes.io"}
	nodeLabels      = []string{"node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build"}
)

// ownedDomains are the domains of Kubernetes, Cluster API and HyperShift, with all domains below them.
var ownedDomains = []string{"kubernetes.io", "k8s.io", "cluster.x-k8s.io", "hypershift.openshift.io"}

func isOwnedDomain(domain string) bool {
	return slices.ContainsFunc(ownedDomains, func(owned string) bool { return isWithin(domain, owned) })
}

// isWithin reports whether a domain is another one or below it.
func isWithin(domain, outer string) bool {
	return domain == outer || strings.HasSuffix(domain, "."+outer)
}

// maxTaintKey is the longest key of a taint that HyperShift accepts.
const maxTaintKey = 253

func taints(report *report, taints []hub.Taint) {
	if report.tooMany("properties.taints", len(taints), hub.MaxTaints) {
		return
	}
	seen := make(map[[2]string]bool, len(taints))
	for i, taint := range taints {
		field := func(name string) string { return fmt.Sprintf("properties.taints[%d].%s", i, name) }
		switch {
		case taint.Key == "":
			report.required(field("key"))
		case len(taint.Key) > maxTaintKey:
			report.tooLong(field("key"), taint.Key, maxTaintKey)
		case !isQualifiedName(taint.Key):
			report.invalid(field("key"), taint.Key, "%s", qualifiedNameMessage)
		case isOwnedTaint(taint.Key):
			report.invalid(field("key"), taint.Key, "the taint is reserved")
		case seen[[2]string{taint.Key, taint.Effect}]:
			report.duplicate(fmt.Sprintf("properties.taints[%d]", i), taint.Key+":"+taint.Effect)
		}
		seen[[2]string{taint.Key, taint.Effect}] = true
		if len(taint.Value) > 63 {
			report.tooLong(field("value"), taint.Value, 63)
		} else if !isLabelValue(taint.Value) {
			report.invalid(field("value"), taint.Value, "%s", labelValueMessage)
		}
		if taint.Effect == "" {
			report.unsupported(field("effect"), "", "NoExecute", "NoSchedule", "PreferNoSchedule")
		}
	}
}

// nodePoolImmutable reports create-only fields whose values differ, in addition to other violations at the fields. A
// change of the platform is reported at the platform and at its field.
func nodePoolImmutable(found *report, old, now *hub.NodePool) {
	const field = "properties.platform"
	pool, platform := immutable{found}, immutable{&report{}}
	o, n := &old.Properties.Platform, &now.Properties.Platform
	platform.id(field+".subnetId", o.SubnetID, n.SubnetID)
	platform.text(field+".vmSize", o.VMSize, n.VMSize)
	platform.value(field+".enableEncryptionAtHost", o.EnableEncryptionAtHost == n.EnableEncryptionAtHost, n.EnableEncryptionAtHost)
	platform.text(field+".availabilityZone", o.AvailabilityZone, n.AvailabilityZone)
	oldDisk, disk := o.OSDisk, n.OSDisk
	if strings.EqualFold(oldDisk.EncryptionSetID, disk.EncryptionSetID) {
		oldDisk.EncryptionSetID = disk.EncryptionSetID
	}
	platform.value(field+".osDisk", oldDisk == disk, nil)
	if changes := platform.report.findings; len(changes) > 0 {
		pool.changed(field, nil)
		found.findings = append(found.findings, changes...)
	}
	pool.value("properties.autoRepair", old.Properties.AutoRepair == now.Properties.AutoRepair, now.Properties.AutoRepair)
}
