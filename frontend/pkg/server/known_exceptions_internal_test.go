package server

import (
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

// knownException is a mutation for which the service deliberately differs from the document. Empty fields match
// everything. The first matching exception applies.
type knownException struct {
	subject string
	// since and before bound the api-versions.
	since, before string
	how           string
	place         string
	kind          schemamutation.Kind
	detail        string
	// allowed reports whether the service accepts the mutation.
	allowed bool
	// at is the field of the violation, if that is not the mutated one.
	at     string
	reason string
}

func (d knownException) matches(subject, version, how string, change schemamutation.Mutation) bool {
	return (d.subject == "" || d.subject == subject) && version >= d.since && (d.before == "" || version < d.before) &&
		(d.how == "" || d.how == how) && (d.place == "" || d.place == change.Place) && (d.kind == "" || d.kind == change.Kind) &&
		(d.detail == "" || d.detail == change.Detail)
}

// knownExceptions lists all differences from the documents.
var knownExceptions = []knownException{
	{kind: schemamutation.UnknownProperty, reason: "as in the published service, unknown fields are rejected"},
	{place: "name", kind: schemamutation.ReadOnly, reason: "a name in the body must equal the name in the URL"},
	{place: "type", kind: schemamutation.ReadOnly, reason: "a type in the body must equal the type in the URL"},
	{place: "identity.userAssignedIdentities[*].clientId", kind: schemamutation.ReadOnly, detail: "text", allowed: true, how: created, reason: "a creation ignores it"},
	{place: "identity.userAssignedIdentities[*].clientId", kind: schemamutation.ReadOnly, reason: "the service sets it"},
	{place: "identity.userAssignedIdentities[*].principalId", kind: schemamutation.ReadOnly, detail: "text", allowed: true, how: created, reason: "a creation ignores it"},
	{place: "identity.userAssignedIdentities[*].principalId", kind: schemamutation.ReadOnly, reason: "the service sets it"},
	{subject: "cluster", place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, how: patched, at: operatorsPlace, reason: "an operator uses the identity"},
	{subject: "nodePool", place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, how: patched, at: "identity.userAssignedIdentities", reason: "it is the last identity"},
	{place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, allowed: true, reason: "x-nullable: ARM's clients assign an identity with null"},
	{place: "tags[*]", kind: schemamutation.Null, allowed: true, reason: "null is the same as absent"},
	{place: "tags[*]", kind: schemamutation.MapKey, detail: "NUL", at: "tags", reason: "the path quotes control characters"},
	{place: "tags[*]", kind: schemamutation.MapKey, detail: "line", at: "tags", reason: "the path quotes control characters"},

	{kind: schemamutation.Absent, place: "properties", reason: "required fields in it are missing"},
	{kind: schemamutation.Null, place: "properties", reason: "required fields in it are missing"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "None", at: "identity.userAssignedIdentities", reason: "identities are assigned"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "SystemAssigned", reason: "the service does not support system-assigned identities"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "SystemAssigned,UserAssigned", reason: "the service does not support system-assigned identities"},

	{subject: "cluster", kind: schemamutation.Absent, place: "identity", at: operatorsPlace, reason: "the operators' identities must be assigned"},
	{subject: "cluster", kind: schemamutation.Null, place: "identity", at: operatorsPlace, reason: "the operators' identities must be assigned"},
	{subject: "cluster", kind: schemamutation.Null, place: operatorsPlace + ".controlPlaneOperators[*]", at: "identity.userAssignedIdentities", how: created, reason: "null is the same as absent, and the identity is then unused"},
	{subject: "cluster", kind: schemamutation.Null, place: operatorsPlace + ".dataPlaneOperators[*]", how: created, reason: "null is the same as absent, and the role set requires the operator"},
	{subject: "cluster", kind: schemamutation.Pattern, place: "properties.dns.baseDomainPrefix", detail: `""`, how: created, allowed: true, reason: "the service generates a prefix, as for an absent one"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Absent, place: "properties.version", reason: "as in the published service, the version is required"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Null, place: "properties.version", reason: "as in the published service, the version is required"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Absent, place: "properties.version.id", reason: "as in the published service, the version is required"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Null, place: "properties.version.id", reason: "as in the published service, the version is required"},
	{subject: "cluster", kind: schemamutation.EnumValue, place: "properties.ingress.type", detail: "Disabled", reason: "the service does not support this value"},
	{subject: "cluster", kind: schemamutation.Absent, place: "properties.etcd", at: "properties.etcd.dataEncryption.keyManagementMode", reason: "a customer-managed key is required"},
	{subject: "cluster", kind: schemamutation.Absent, place: "properties.etcd.dataEncryption", at: "properties.etcd.dataEncryption.keyManagementMode", reason: "a customer-managed key is required"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.Absent, place: "properties.etcd.dataEncryption.keyManagementMode", reason: "the default is not supported"},
	{subject: "cluster", kind: schemamutation.Absent, place: "properties.etcd.dataEncryption.customerManaged.encryptionType", reason: "the published service does not apply the default"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.etcd", at: "properties.etcd.dataEncryption.keyManagementMode", reason: "a customer-managed key is required"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.etcd.dataEncryption", at: "properties.etcd.dataEncryption.keyManagementMode", reason: "a customer-managed key is required"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.Null, place: "properties.etcd.dataEncryption.keyManagementMode", reason: "the default is not supported"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.etcd.dataEncryption.customerManaged.encryptionType", reason: "the published service does not apply the default"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.EnumValue, place: "properties.etcd.dataEncryption.keyManagementMode", detail: "PlatformManaged", reason: "a customer-managed key is required"},
	{subject: "cluster", kind: schemamutation.EnumValue, place: "properties.api.visibility", detail: "Private", reason: "the service provides no private APIs"},
	{subject: "cluster", kind: schemamutation.EnumValue, place: "properties.ingress.type", detail: "Private", reason: "the service provides no private ingress"},
	{subject: "cluster", since: "2026-06-30", kind: schemamutation.Length, place: keyVersionPlace, detail: "255", how: replaced, reason: "the control plane's version does not support key rotation"},
	{subject: "cluster", since: "2026-06-30", kind: schemamutation.Length, place: keyVersionPlace, detail: "255", how: patched, reason: "the control plane's version does not support key rotation"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling.maxPodGracePeriodSeconds", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling.maxNodeProvisionTimeSeconds", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling.podPriorityThreshold", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.network", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.network.hostPrefix", how: patched, reason: "a PATCH applies no defaults"},
	{kind: schemamutation.Null, place: "properties.version.channelGroup", how: patched, reason: "a PATCH applies no defaults"},

	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version.id", how: patched, reason: "the version of a node pool cannot be removed"},
	{subject: "nodePool", kind: schemamutation.Absent, place: "properties.version", how: created, at: "properties.version.id", reason: "the version of a new node pool is required"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version", how: created, at: "properties.version.id", reason: "the version of a new node pool is required"},
	{subject: "nodePool", kind: schemamutation.Absent, place: "properties.version.id", how: created, reason: "the version of a new node pool is required"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version.id", how: created, reason: "the version of a new node pool is required"},
	{subject: "nodePool", kind: schemamutation.Absent, place: "properties.version.id", allowed: true, reason: "a PUT keeps the stored version"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version.id", allowed: true, reason: "a PUT keeps the stored version"},
	{subject: "nodePool", kind: schemamutation.Range, place: "properties.autoScaling.min", detail: "2147483647", at: "properties.autoScaling.max", reason: "the maximum is below it"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.autoRepair", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.platform.osDisk", how: patched, reason: "a PATCH applies no defaults"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.platform.osDisk.sizeGiB", how: patched, reason: "a PATCH applies no defaults"},

	{subject: "externalAuth", kind: schemamutation.Length, place: "properties.clients[].component.name", detail: "256", at: "properties.clients[0].type", reason: "the component is then not the console"},
	{subject: "externalAuth", kind: schemamutation.Length, place: "properties.clients[].component.authClientNamespace", detail: "63", at: "properties.clients[0].type", reason: "the component is then not the console"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: "properties.clients[].type", detail: "Public", reason: "the console must be Confidential"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: usernamePlace + ".prefixPolicy", detail: "None", at: usernamePlace + ".prefix", reason: "a prefix is present"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: usernamePlace + ".prefixPolicy", detail: "NoPrefix", at: usernamePlace + ".prefix", reason: "a prefix is present"},
	{subject: "externalAuth", kind: schemamutation.Absent, place: "properties.claim.validationRules[].type", reason: "the published service does not apply the default"},
	{subject: "externalAuth", kind: schemamutation.Null, place: "properties.claim.validationRules[].type", reason: "the published service does not apply the default"},
	{subject: "externalAuth", kind: schemamutation.Absent, place: usernamePlace + ".prefixPolicy", at: usernamePlace + ".prefix", reason: "a prefix is present"},
	{subject: "externalAuth", kind: schemamutation.Null, place: usernamePlace + ".prefixPolicy", at: usernamePlace + ".prefix", reason: "a prefix is present"},
	{subject: "externalAuth", kind: schemamutation.Absent, place: usernamePlace + ".prefix", reason: "the policy Prefix requires a prefix"},
	{subject: "externalAuth", kind: schemamutation.Null, place: usernamePlace + ".prefix", reason: "the policy Prefix requires a prefix"},
}

const (
	keyVersionPlace = "properties.etcd.dataEncryption.customerManaged.kms.activeKey.version"
	operatorsPlace  = "properties.platform.operatorsAuthentication.userAssignedIdentities"
	usernamePlace   = "properties.claim.mappings.username"
)

// stricterLimit is a limit that is stricter than in the documents of some versions.
type stricterLimit struct {
	subject, place string
	// tighten changes the schema, and reports whether that made it stricter.
	tighten func(*schemamutation.Schema) bool
	reason  string
}

// within limits an integer.
func within(least, most int64) func(*schemamutation.Schema) bool {
	return func(s *schemamutation.Schema) bool {
		more := s.Minimum == nil || *s.Minimum < least || most != 0 && (s.Maximum == nil || *s.Maximum > most)
		if s.Minimum = &least; most != 0 {
			s.Maximum = &most
		}
		return more
	}
}

// upTo limits the length of a string.
func upTo(longest int) func(*schemamutation.Schema) bool {
	return func(s *schemamutation.Schema) bool {
		more := s.MaxLength == nil || *s.MaxLength > longest
		s.MaxLength = &longest
		return more
	}
}

// atMost limits the items of an array.
func atMost(count int) func(*schemamutation.Schema) bool {
	return func(s *schemamutation.Schema) bool {
		more := s.MaxItems == nil || *s.MaxItems > count
		s.MaxItems = &count
		return more
	}
}

// needs requires a property of an object.
func needs(name string) func(*schemamutation.Schema) bool {
	return func(s *schemamutation.Schema) bool {
		if slices.Contains(s.Required, name) {
			return false
		}
		s.Required = append(s.Required, name)
		return true
	}
}

// updatable allows changes; createOnly, below, forbids them.
func updatable(s *schemamutation.Schema) bool {
	more := s.CreateOnly
	s.CreateOnly = false
	return more
}

func createOnly(s *schemamutation.Schema) bool {
	more := !s.CreateOnly
	s.CreateOnly = true
	return more
}

// stricterLimits lists the limits of the service.
var stricterLimits = []stricterLimit{
	{"cluster", "properties.autoscaling.maxNodesTotal", within(0, 500), "limit of the published service"},
	{"cluster", "properties.autoscaling.maxPodGracePeriodSeconds", within(1, 0), "limit of the published service"},
	{"cluster", "properties.autoscaling.maxNodeProvisionTimeSeconds", within(1, 0), "limit of the published service"},
	{"cluster", "properties.network.hostPrefix", within(23, 26), "limit of the published service"},
	{"cluster", "properties.api.authorizedCidrs", updatable, "limit of the published service"},
	{"cluster", "properties.api.authorizedCidrs[]", updatable, "limit of the published service"},
	{"cluster", "properties.platform.operatorsAuthentication", createOnly, "limit of the published service"},
	{"cluster", operatorsPlace, createOnly, "limit of the published service"},
	{"cluster", operatorsPlace + ".controlPlaneOperators", createOnly, "limit of the published service"},
	{"cluster", operatorsPlace + ".controlPlaneOperators[*]", createOnly, "limit of the published service"},
	{"cluster", operatorsPlace + ".dataPlaneOperators", createOnly, "limit of the published service"},
	{"cluster", operatorsPlace + ".dataPlaneOperators[*]", createOnly, "limit of the published service"},
	{"cluster", operatorsPlace + ".serviceManagedIdentity", createOnly, "limit of the published service"},
	{"cluster", "properties.platform.managedResourceGroup", upTo(90), "limit of the published service"},
	{"cluster", "tags[*]", upTo(256), "ARM's limit"},
	{"cluster", "properties.etcd.dataEncryption", needs("customerManaged"), "the customer-managed mode requires a key"},
	{"cluster", "properties.etcd.dataEncryption.customerManaged", needs("kms"), "a customer-managed key requires a vault"},
	{"cluster", "identity", needs("userAssignedIdentities"), "the type UserAssigned requires identities"},
	{"nodePool", "tags[*]", upTo(256), "ARM's limit"},
	{"nodePool", "identity", needs("userAssignedIdentities"), "the type UserAssigned requires identities"},
	{"nodePool", "properties.replicas", within(0, 200), "limit of the published service"},
	{"nodePool", "properties.nodeDrainTimeoutMinutes", within(0, 10080), "limit of the published service"},
	{"nodePool", "properties.platform.osDisk.sizeGiB", within(64, 4095), "limit of the published service"},
	{"nodePool", "properties.labels", atMost(256), "the resource must fit into one message"},
	{"nodePool", "properties.taints", atMost(50), "HyperShift's limit"},
	{"nodePool", "properties.labels[].value", upTo(63), "Kubernetes' limit"},
	{"nodePool", "properties.taints[].key", upTo(253), "HyperShift's limit"},
	{"externalAuth", "properties.issuer.url", upTo(512), "HyperShift's limit"},
	{"externalAuth", "properties.clients[].extraScopes", atMost(20), "HyperShift's limit"},
	{"externalAuth", "properties.clients[].extraScopes[]", upTo(256), "the resource must fit into one message"},
	{"externalAuth", usernamePlace + ".prefix", upTo(256), "the resource must fit into one message"},
	{"externalAuth", "properties.claim.mappings.groups.prefix", upTo(256), "the resource must fit into one message"},
	{"externalAuth", "properties.claim.validationRules", atMost(20), "the resource must fit into one message"},
	{"externalAuth", "properties.claim.validationRules[]", needs("requiredClaim"), "the type requires a claim"},
	{"externalAuth", "properties.claim.validationRules[].requiredClaim.claim", upTo(256), "the resource must fit into one message"},
	{"externalAuth", "properties.claim.validationRules[].requiredClaim.requiredValue", upTo(256), "the resource must fit into one message"},
}

// sampleText returns a valid string of a length.
func sampleText(place string, length int) (string, bool) {
	switch place {
	case "properties.imageDigestMirrors[].source", "properties.imageDigestMirrors[].mirrors[]":
		return "mirror.example/" + strings.Repeat("a", length-len("mirror.example/")), true
	case "properties.taints[].key":
		// A prefix has at most 253 characters, and a name at most 63.
		if length > 253+1+63 {
			return "", false
		}
		prefix := strings.Repeat(strings.Repeat("a", 62)+".", 5)[:length-65] + "a"
		return prefix + "/" + strings.Repeat("a", 63), true
	case "properties.issuer.url":
		return "https://issuer.example/" + strings.Repeat("a", length-len("https://issuer.example/")), true
	}
	return strings.Repeat("a", length), true
}
