package service

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

var (
	prefixPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$`)
	clusterName   = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]{0,52}[a-zA-Z0-9])?$`)
	nodePoolName  = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]{0,13}[a-zA-Z0-9])?$`)
	minorPattern  = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}$`)
	fullPattern   = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}$`)
	subnetPattern = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$`)
	nsgPattern    = regexp.MustCompile(`(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/networkSecurityGroups/[^/]+$`)
)

const (
	maxAPICIDRs = 500
	// zoneLessMaximum is the largest number of nodes of a node pool outside of availability zones.
	zoneLessMaximum = int32(200)
)

func quote(s string) string { return fmt.Sprintf("%q", s) }

// check collects violations of a request.
type check struct{ violations []apierror.Violation }

func (c *check) fail(field, format string, args ...any) {
	c.violations = append(c.violations, apierror.Violation{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *check) required(field, value string) bool {
	if value == "" {
		c.fail(field, "Required value")
		return false
	}
	return true
}

func (c *check) matches(field, value string, pattern *regexp.Regexp) {
	if c.required(field, value) && !pattern.MatchString(value) {
		c.fail(field, "Invalid value: %q: must match %s", value, pattern)
	}
}

func (c *check) oneOf(field, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	c.fail(field, "Unsupported value: %q: supported values: %s", value, strings.Join(allowed, ", "))
}

func (c *check) within(field string, value, low, high int32) {
	if value < low || value > high {
		c.fail(field, "Invalid value: %d: must be between %d and %d", value, low, high)
	}
}

func (c *check) cidr(field, value string) netip.Prefix {
	if !c.required(field, value) {
		return netip.Prefix{}
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() || prefix.Masked() != prefix {
		c.fail(field, "Invalid value: %q: must be an IPv4 CIDR in canonical notation", value)
		return netip.Prefix{}
	}
	return prefix
}

// isUUID reports whether text is a UUID in its usual form, in any casing. Package uuid also parses other forms, which would be different keys of one row.
func isUUID(text string) bool { return len(text) == 36 && uuid.Validate(text) == nil }

func (c *check) uuid(field, value string) {
	if !isUUID(value) {
		c.fail(field, "Invalid value: must be a UUID")
	}
}

func validUID(field, uid string) error {
	var c check
	c.uuid(field, uid)
	return apierror.InvalidFields(c.violations)
}

// validUIDs validates a list of at most a page of UUIDs.
func validUIDs(field string, uids []string) error {
	var c check
	for _, uid := range uids {
		if !isUUID(uid) {
			c.fail(field, "Invalid value: %q: must be a UUID", uid)
		}
	}
	if len(uids) > maxPage {
		c.fail(field, "Too many: may not be more than %d", maxPage)
	}
	return apierror.InvalidFields(c.violations)
}

// versionFilter matches a version of OpenShift, or its first two parts.
var versionFilter = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,6}(-[0-9A-Za-z.-]{1,64})?)?$`)

// validVersion returns an error unless a version that selects clusters is empty, a version, or its first two parts.
func validVersion(version string) error {
	var c check
	if version != "" && !versionFilter.MatchString(version) {
		c.fail("version", "Invalid value: %q: must be a version such as 4.19.3, or its first two parts", version)
	}
	return apierror.InvalidFields(c.violations)
}

// maxResourceID is the length of the longest resource ID in bytes. The frontend accepts no longer one, and the indexes of the database could not contain one.
const maxResourceID = 2048

func (c *check) resourceID(id string) {
	if len(id) > maxResourceID {
		c.fail("resource_id", "Too long: may not be more than %d bytes", maxResourceID)
	}
}

// validDeletion validates the IDs of a deletion.
func validDeletion(uid, resourceID string) error {
	var c check
	c.uuid("uid", uid)
	c.resourceID(resourceID)
	return apierror.InvalidFields(c.violations)
}

func validateIdentity(uid, resourceID string, generation int64) []apierror.Violation {
	var c check
	c.uuid("uid", uid)
	if c.required("resource_id", resourceID) {
		c.resourceID(resourceID)
	}
	if generation < 1 {
		c.fail("generation", "Invalid value: %d: must be at least 1", generation)
	}
	return c.violations
}

// maxGenerationStep is the most by which a generation may exceed the stored one. The backend counts changes, and makes a change newer than what is stored: above
// the greatest generation there would be none.
const maxGenerationStep = 1 << 20

// validateStep rejects a generation that exceeds the stored one, which is 0 for a new resource, by too much.
func validateStep(stored, generation int64) error {
	var c check
	if generation-stored > maxGenerationStep {
		c.fail("generation", "Invalid value: %d: must be at most %d", generation, stored+maxGenerationStep)
	}
	return apierror.InvalidFields(c.violations)
}

// validateChild is validateIdentity for a resource of a cluster.
func validateChild(uid, resourceID, clusterUID string, generation int64) []apierror.Violation {
	c := check{violations: validateIdentity(uid, resourceID, generation)}
	c.uuid("cluster_uid", clusterUID)
	return c.violations
}

func validateClusterSpec(spec *csv1.ClusterSpec) []apierror.Violation {
	var c check
	if spec == nil {
		c.fail("spec", "Required value")
		return c.violations
	}
	c.matches("spec.name", spec.GetName(), clusterName)
	c.required("spec.location", spec.GetLocation())
	c.uuid("spec.tenant_id", spec.GetTenantId())
	c.matches("spec.version.id", spec.GetVersion().GetId(), minorPattern)
	c.oneOf("spec.version.channel_group", channelGroup(spec.GetVersion()), "stable", "fast", "candidate", "nightly")
	if prefix := spec.GetDns().GetBaseDomainPrefix(); prefix != "" {
		c.matches("spec.dns.base_domain_prefix", prefix, prefixPattern)
	}
	n := spec.GetNetwork()
	c.oneOf("spec.network.network_type", n.GetNetworkType(), "OVNKubernetes", "Other")
	c.within("spec.network.host_prefix", n.GetHostPrefix(), 23, 26)
	networks := []struct {
		field  string
		prefix netip.Prefix
	}{
		{"spec.network.pod_cidr", c.cidr("spec.network.pod_cidr", n.GetPodCidr())},
		{"spec.network.service_cidr", c.cidr("spec.network.service_cidr", n.GetServiceCidr())},
		{"spec.network.machine_cidr", c.cidr("spec.network.machine_cidr", n.GetMachineCidr())},
	}
	for i, a := range networks {
		for _, b := range networks[:i] {
			if a.prefix.IsValid() && b.prefix.IsValid() && a.prefix.Overlaps(b.prefix) {
				c.fail(a.field, "Invalid value: %q: must not overlap with %s", a.prefix, b.field)
			}
		}
	}
	if len(spec.GetApi().GetAuthorizedCidrs()) > maxAPICIDRs {
		c.fail("spec.api.authorized_cidrs", "Too many: must have at most %d items", maxAPICIDRs)
	}
	for i, cidr := range spec.GetApi().GetAuthorizedCidrs() {
		c.cidr(fmt.Sprintf("spec.api.authorized_cidrs[%d]", i), cidr)
	}
	if spec.GetApi().GetVisibility() == csv1.Visibility_VISIBILITY_PRIVATE {
		c.fail("spec.api.visibility", "Unsupported value: %q: this region has no private API endpoints", "Private")
	}
	p := spec.GetPlatform()
	c.required("spec.platform.subscription_id", p.GetSubscriptionId())
	c.required("spec.platform.managed_resource_group", p.GetManagedResourceGroup())
	c.matches("spec.platform.subnet_id", p.GetSubnetId(), subnetPattern)
	c.matches("spec.platform.network_security_group_id", p.GetNetworkSecurityGroupId(), nsgPattern)
	if key := spec.GetEtcd().GetKmsKey(); key != nil {
		c.required("spec.etcd.kms_key.vault_name", key.GetVaultName())
		c.required("spec.etcd.kms_key.key_name", key.GetKeyName())
		c.required("spec.etcd.kms_key.key_version", key.GetKeyVersion())
		// RejectInvalidValues rejects undefined values, but UNSPECIFIED is a defined one.
		if v := key.GetVaultVisibility(); v == csv1.Visibility_VISIBILITY_UNSPECIFIED {
			c.fail("spec.etcd.kms_key.vault_visibility", "Required value: supported values: %s", strings.Join(supported(v.Descriptor().Values()), ", "))
		}
	}
	if drain := spec.GetNodeDrainTimeout(); drain != nil && drain.AsDuration() < 0 {
		c.fail("spec.node_drain_timeout", "Invalid value: must not be negative")
	}
	return c.violations
}

// changedClusterFields returns a violation for each create-only field that a request would change.
func changedClusterFields(old *fleet.Cluster, r *csv1.ApplyClusterRequest) []apierror.Violation {
	var c check
	was, is := old.Spec, r.GetSpec()
	c.immutable("resource_id", strings.EqualFold(old.ResourceID, r.GetResourceId()))
	c.immutable("spec.name", strings.EqualFold(was.GetName(), is.GetName()))
	c.immutable("spec.location", strings.EqualFold(was.GetLocation(), is.GetLocation()))
	c.immutable("spec.tenant_id", strings.EqualFold(was.GetTenantId(), is.GetTenantId()))
	// The generated prefix may be repeated or left empty.
	prefix := is.GetDns().GetBaseDomainPrefix()
	c.immutable("spec.dns.base_domain_prefix", prefix == "" || prefix == old.Status.GetBaseDomainPrefix())
	c.immutable("spec.network", proto.Equal(was.GetNetwork(), is.GetNetwork()))
	c.immutable("spec.api.visibility", was.GetApi().GetVisibility() == is.GetApi().GetVisibility())
	c.immutable("spec.ingress", proto.Equal(was.GetIngress(), is.GetIngress()))
	c.immutable("spec.platform", proto.Equal(was.GetPlatform(), is.GetPlatform()))
	c.immutable("spec.image_registry_enabled", was.GetImageRegistryEnabled() == is.GetImageRegistryEnabled())
	c.immutable("spec.fips", was.GetFips() == is.GetFips())
	oldKey, key := was.GetEtcd().GetKmsKey(), is.GetEtcd().GetKmsKey()
	c.immutable("spec.etcd.kms_key", (oldKey == nil) == (key == nil) && oldKey.GetVaultName() == key.GetVaultName() &&
		oldKey.GetKeyName() == key.GetKeyName() && oldKey.GetVaultVisibility() == key.GetVaultVisibility())
	return c.violations
}

func (c *check) immutable(field string, same bool) {
	if !same {
		c.fail(field, "Forbidden: field is immutable")
	}
}

func validateNodePoolSpec(spec *csv1.NodePoolSpec) []apierror.Violation {
	var c check
	if spec == nil {
		c.fail("spec", "Required value")
		return c.violations
	}
	c.matches("spec.name", spec.GetName(), nodePoolName)
	if id := spec.GetVersion().GetId(); id != "" {
		c.matches("spec.version.id", id, fullPattern)
	}
	p := spec.GetPlatform()
	c.required("spec.platform.vm_size", p.GetVmSize())
	if p.GetSubnetId() != "" {
		c.matches("spec.platform.subnet_id", p.GetSubnetId(), subnetPattern)
	}
	c.oneOf("spec.platform.availability_zone", p.GetAvailabilityZone(), "", "1", "2", "3")
	c.within("spec.platform.os_disk.size_gib", p.GetOsDisk().GetSizeGib(), 64, 4095)
	c.oneOf("spec.platform.os_disk.storage_account_type", p.GetOsDisk().GetStorageAccountType(), "Premium_LRS", "StandardSSD_LRS", "Standard_LRS")
	limit := zoneLessMaximum
	if p.GetAvailabilityZone() != "" {
		limit = math.MaxInt32
	}
	switch size := spec.GetSize().(type) {
	case *csv1.NodePoolSpec_Replicas:
		c.within("spec.replicas", size.Replicas, 0, limit)
	case *csv1.NodePoolSpec_Autoscaling:
		c.within("spec.autoscaling.max", size.Autoscaling.GetMax(), 0, limit)
		c.within("spec.autoscaling.min", size.Autoscaling.GetMin(), 0, max(size.Autoscaling.GetMax(), 0))
	default:
		c.fail("spec.replicas", "Required value: either replicas or autoscaling")
	}
	for i, taint := range spec.GetTaints() {
		c.required(fmt.Sprintf("spec.taints[%d].key", i), taint.GetKey())
		c.oneOf(fmt.Sprintf("spec.taints[%d].effect", i), taint.GetEffect(), "NoSchedule", "PreferNoSchedule", "NoExecute")
	}
	return c.violations
}

// changedNodePoolFields returns a violation for each create-only field that a request would change.
func changedNodePoolFields(old *fleet.NodePool, r *csv1.ApplyNodePoolRequest) []apierror.Violation {
	var c check
	c.immutable("resource_id", strings.EqualFold(old.ResourceID, r.GetResourceId()))
	c.immutable("spec.name", strings.EqualFold(old.Spec.GetName(), r.GetSpec().GetName()))
	c.immutable("spec.platform", proto.Equal(old.Spec.GetPlatform(), r.GetSpec().GetPlatform()))
	c.immutable("spec.auto_repair", old.Spec.GetAutoRepair() == r.GetSpec().GetAutoRepair())
	return c.violations
}
