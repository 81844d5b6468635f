package server

import (
	"fmt"
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
	{place: "name", kind: schemamutation.ReadOnly, reason: "what is said must be the name in the URL"},
	{place: "type", kind: schemamutation.ReadOnly, reason: "what is said must be the type in the URL"},
	{place: "identity.userAssignedIdentities[*].clientId", kind: schemamutation.ReadOnly, reason: "ARM fills it in, and then it is a UUID"},
	{place: "identity.userAssignedIdentities[*].principalId", kind: schemamutation.ReadOnly, reason: "ARM fills it in, and then it is a UUID"},
	{subject: "cluster", place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, how: patched, at: operatorsPlace, reason: "an operator uses it"},
	{subject: "nodePool", place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, how: patched, at: "identity.userAssignedIdentities", reason: "it is the last one"},
	{place: "identity.userAssignedIdentities[*]", kind: schemamutation.Null, allowed: true, reason: "x-nullable: ARM's clients name an identity so"},
	{place: "tags[*]", kind: schemamutation.Null, allowed: true, reason: "null is absent"},
	{place: "tags[*]", kind: schemamutation.ControlCharacters, allowed: true, reason: "which letters a tag has is for ARM to judge"},
	{place: "tags[*]", kind: schemamutation.MapKey, detail: "NUL", allowed: true, reason: "which letters a tag has is for ARM to judge"},
	{place: "tags[*]", kind: schemamutation.MapKey, detail: "line", allowed: true, reason: "which letters a tag has is for ARM to judge"},

	{kind: schemamutation.Absent, place: "properties", reason: "what is required within is missing"},
	{kind: schemamutation.Null, place: "properties", reason: "what is required within is missing"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "None", at: "identity.userAssignedIdentities", reason: "there are identities"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "SystemAssigned", reason: "the service has no identity to assign"},
	{kind: schemamutation.EnumValue, place: "identity.type", detail: "SystemAssigned,UserAssigned", reason: "the service has no identity to assign"},

	{subject: "cluster", kind: schemamutation.Absent, place: "identity", at: operatorsPlace, reason: "the operators' identities must be assigned"},
	{subject: "cluster", kind: schemamutation.Null, place: "identity", at: operatorsPlace, reason: "the operators' identities must be assigned"},
	{subject: "cluster", kind: schemamutation.Null, place: operatorsPlace + ".controlPlaneOperators[*]", at: "identity.userAssignedIdentities", how: created, reason: "null is absent, and its identity is not used then"},
	{subject: "cluster", kind: schemamutation.Null, place: operatorsPlace + ".dataPlaneOperators[*]", allowed: true, how: created, reason: "null is absent"},
	{subject: "cluster", kind: schemamutation.Pattern, place: "properties.dns.baseDomainPrefix", detail: `""`, how: created, allowed: true, reason: "one is made, as when it is absent"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Null, place: "properties.version", how: patched, reason: "a cluster that has a version cannot be without"},
	{subject: "cluster", before: "2025-12-23", kind: schemamutation.Null, place: "properties.version.id", how: patched, reason: "a cluster that has a version cannot be without"},
	{subject: "cluster", kind: schemamutation.EnumValue, place: "properties.ingress.type", detail: "Disabled", reason: "in the vocabulary, and not offered"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.Absent, place: "properties.etcd.dataEncryption.keyManagementMode", at: "properties.etcd.dataEncryption.customerManaged", reason: "the platform keeps the key then"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.Null, place: "properties.etcd.dataEncryption.keyManagementMode", at: "properties.etcd.dataEncryption.customerManaged", how: created, reason: "the platform keeps the key then"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.Null, place: "properties.etcd.dataEncryption.keyManagementMode", at: "properties.etcd.dataEncryption.customerManaged", how: replaced, reason: "the platform keeps the key then"},
	{subject: "cluster", before: "2026-06-30", kind: schemamutation.EnumValue, place: "properties.etcd.dataEncryption.keyManagementMode", detail: "PlatformManaged", at: "properties.etcd.dataEncryption.customerManaged", reason: "there is a key"},
	{subject: "cluster", since: "2026-06-30", kind: schemamutation.Length, place: keyVersionPlace, detail: "255", how: replaced, reason: "the control plane is too old for another key"},
	{subject: "cluster", since: "2026-06-30", kind: schemamutation.Length, place: keyVersionPlace, detail: "255", how: patched, reason: "the control plane is too old for another key"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling", how: patched, reason: "defaults are not applied again"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling.maxPodGracePeriodSeconds", how: patched, reason: "defaults are not applied again"},
	{subject: "cluster", kind: schemamutation.Null, place: "properties.autoscaling.maxNodeProvisionTimeSeconds", how: patched, reason: "defaults are not applied again"},
	{kind: schemamutation.Null, place: "properties.version.channelGroup", how: patched, reason: "defaults are not applied again"},

	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version", how: patched, reason: "defaults are not applied again"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version.id", how: patched, reason: "a pool that has a version cannot be without"},
	{subject: "nodePool", kind: schemamutation.Absent, place: "properties.version.id", allowed: true, reason: "it is the control plane's when it is made, and then what is stored"},
	{subject: "nodePool", kind: schemamutation.Null, place: "properties.version.id", allowed: true, reason: "it is the control plane's when it is made, and then what is stored"},

	{subject: "externalAuth", kind: schemamutation.Length, place: "properties.clients[].component.name", detail: "256", at: "properties.clients[0].type", reason: "it is not the console then"},
	{subject: "externalAuth", kind: schemamutation.Length, place: "properties.clients[].component.authClientNamespace", detail: "63", at: "properties.clients[0].type", reason: "it is not the console then"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: "properties.clients[].type", detail: "Public", reason: "the console is Confidential"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: usernamePlace + ".prefixPolicy", detail: "None", at: usernamePlace + ".prefix", reason: "there is a prefix"},
	{subject: "externalAuth", kind: schemamutation.EnumValue, place: usernamePlace + ".prefixPolicy", detail: "NoPrefix", at: usernamePlace + ".prefix", reason: "there is a prefix"},
	{subject: "externalAuth", kind: schemamutation.Absent, place: usernamePlace + ".prefixPolicy", at: usernamePlace + ".prefix", reason: "there is a prefix"},
	{subject: "externalAuth", kind: schemamutation.Null, place: usernamePlace + ".prefixPolicy", at: usernamePlace + ".prefix", reason: "there is a prefix"},
	{subject: "externalAuth", kind: schemamutation.Absent, place: usernamePlace + ".prefix", reason: "the policy asks for one"},
	{subject: "externalAuth", kind: schemamutation.Null, place: usernamePlace + ".prefix", reason: "the policy asks for one"},
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
	{"cluster", "properties.autoscaling.maxNodesTotal", within(0, 500), "the contract's page"},
	{"cluster", "properties.autoscaling.maxPodGracePeriodSeconds", within(1, 0), "the contract's page"},
	{"cluster", "properties.autoscaling.maxNodeProvisionTimeSeconds", within(1, 0), "the contract's page"},
	{"cluster", "properties.network.hostPrefix", within(23, 26), "the contract's page"},
	{"cluster", "properties.api.authorizedCidrs", updatable, "the contract's page"},
	{"cluster", "properties.api.authorizedCidrs[]", updatable, "the contract's page"},
	{"cluster", "properties.platform.operatorsAuthentication", createOnly, "the contract's page"},
	{"cluster", operatorsPlace, createOnly, "the contract's page"},
	{"cluster", operatorsPlace + ".controlPlaneOperators", createOnly, "the contract's page"},
	{"cluster", operatorsPlace + ".controlPlaneOperators[*]", createOnly, "the contract's page"},
	{"cluster", operatorsPlace + ".dataPlaneOperators", createOnly, "the contract's page"},
	{"cluster", operatorsPlace + ".dataPlaneOperators[*]", createOnly, "the contract's page"},
	{"cluster", operatorsPlace + ".serviceManagedIdentity", createOnly, "the contract's page"},
	{"cluster", "properties.platform.managedResourceGroup", upTo(90), "the contract's page"},
	{"cluster", "tags[*]", upTo(256), "ARM's limit"},
	{"cluster", "properties.etcd.dataEncryption", needs("customerManaged"), "a key of the customer's is said"},
	{"cluster", "properties.etcd.dataEncryption.customerManaged", needs("kms"), "a key of the customer's is said in full"},
	{"cluster", "identity", needs("userAssignedIdentities"), "the type says that there are some"},
	{"nodePool", "tags[*]", upTo(256), "ARM's limit"},
	{"nodePool", "identity", needs("userAssignedIdentities"), "the type says that there are some"},
	{"nodePool", "properties.replicas", within(0, 200), "the contract's page"},
	{"nodePool", "properties.autoScaling.min", within(0, 200), "the contract's page"},
	{"nodePool", "properties.autoScaling.max", within(0, 200), "the contract's page"},
	{"nodePool", "properties.nodeDrainTimeoutMinutes", within(0, 10080), "the contract's page"},
	{"nodePool", "properties.platform.osDisk.sizeGiB", within(64, 4095), "the contract's page"},
	{"nodePool", "properties.labels", atMost(256), "what is accepted must fit into one message"},
	{"nodePool", "properties.taints", atMost(50), "HyperShift takes no more"},
	{"nodePool", "properties.labels[].value", upTo(63), "Kubernetes' limit"},
	{"externalAuth", "properties.issuer.url", upTo(512), "HyperShift takes no more"},
	{"externalAuth", "properties.clients[].extraScopes", atMost(20), "HyperShift takes no more"},
	{"externalAuth", "properties.clients[].extraScopes[]", upTo(256), "what is accepted must fit into one message"},
	{"externalAuth", usernamePlace + ".prefix", upTo(256), "what is accepted must fit into one message"},
	{"externalAuth", "properties.claim.mappings.groups.prefix", upTo(256), "what is accepted must fit into one message"},
	{"externalAuth", "properties.claim.validationRules", atMost(20), "what is accepted must fit into one message"},
	{"externalAuth", "properties.claim.validationRules[]", needs("requiredClaim"), "a rule of this type has one"},
	{"externalAuth", "properties.claim.validationRules[].requiredClaim.claim", upTo(256), "what is accepted must fit into one message"},
	{"externalAuth", "properties.claim.validationRules[].requiredClaim.requiredValue", upTo(256), "what is accepted must fit into one message"},
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

// sampleItem returns a valid i-th element of a list; all elements differ.
func sampleItem(place string, i int) any {
	switch place {
	case "properties.api.authorizedCidrs":
		return fmt.Sprintf("203.%d.%d.0/24", i/250, i%250)
	case "properties.imageDigestMirrors":
		return map[string]any{"source": fmt.Sprintf("quay.io/a-%d", i), "mirrors": []any{"mirror.example/a"}}
	case "properties.imageDigestMirrors[].mirrors":
		return fmt.Sprintf("mirror.example/a-%d", i)
	case "properties.labels":
		return map[string]any{"key": fmt.Sprintf("key-%d", i)}
	case "properties.taints":
		return map[string]any{"key": fmt.Sprintf("key-%d", i), "effect": "NoSchedule"}
	case "properties.clients":
		return map[string]any{"component": map[string]any{"name": fmt.Sprintf("cli-%d", i), "authClientNamespace": "a"}, "clientId": "client-2", "type": "Public"}
	case "properties.claim.validationRules":
		return map[string]any{"type": "RequiredClaim", "requiredClaim": map[string]any{"claim": fmt.Sprintf("claim-%d", i), "requiredValue": "a"}}
	case "properties.issuer.audiences":
		return fmt.Sprintf("client-%d", i)
	}
	return fmt.Sprintf("item-%d", i)
}
