package clusterservice

import (
	"regexp"
	"strings"
)

// propertyPaths maps the fields of Cluster Service's requests to the properties of the ARM resources that they come from.
// `[]` stands for an index or a key. A field of the request that the customer did not set maps to the empty string.
var propertyPaths = map[string]string{
	"uid": "", "cluster_uid": "", "resource_id": "id", "generation": "", "spec": "", "class": "", "requester": "", "reason": "", "elevation": "",
	"spec.tenant_id": "", "spec.identity_url": "", "spec.platform.subscription_id": "", "spec.platform.resource_group": "",
	"spec.class": "", "spec.lifetime": "", "spec.requester": "", "spec.reason": "", "spec.not_after": "", "spec.level": "", "spec.elevation": "", "spec.emergency": "", "must_exist": "",

	"spec.name":                  "name",
	"spec.location":              "location",
	"spec.version":               "properties.version",
	"spec.version.id":            "properties.version.id",
	"spec.version.channel_group": "properties.version.channelGroup",
	"spec.node_drain_timeout":    "properties.nodeDrainTimeoutMinutes",

	"spec.dns.base_domain_prefix":              "properties.dns.baseDomainPrefix",
	"spec.network":                             "properties.network",
	"spec.network.network_type":                "properties.network.networkType",
	"spec.network.pod_cidr":                    "properties.network.podCidr",
	"spec.network.service_cidr":                "properties.network.serviceCidr",
	"spec.network.machine_cidr":                "properties.network.machineCidr",
	"spec.network.host_prefix":                 "properties.network.hostPrefix",
	"spec.api.visibility":                      "properties.api.visibility",
	"spec.api.authorized_cidrs":                "properties.api.authorizedCidrs",
	"spec.api.authorized_cidrs[]":              "properties.api.authorizedCidrs[]",
	"spec.ingress":                             "properties.ingress",
	"spec.ingress.visibility":                  "properties.ingress.type",
	"spec.platform":                            "properties.platform",
	"spec.platform.managed_resource_group":     "properties.platform.managedResourceGroup",
	"spec.platform.subnet_id":                  "properties.platform.subnetId",
	"spec.platform.vnet_integration_subnet_id": "properties.platform.vnetIntegrationSubnetId",
	"spec.platform.network_security_group_id":  "properties.platform.networkSecurityGroupId",
	"spec.platform.outbound_type":              "properties.platform.outboundType",
	"spec.platform.control_plane_operators":    "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators",
	"spec.platform.control_plane_operators[]":  "properties.platform.operatorsAuthentication.userAssignedIdentities.controlPlaneOperators[]",
	"spec.platform.data_plane_operators":       "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators",
	"spec.platform.data_plane_operators[]":     "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators[]",
	"spec.platform.service_managed_identity":   "properties.platform.operatorsAuthentication.userAssignedIdentities.serviceManagedIdentity",
	"spec.autoscaling.max_nodes_total":         "properties.autoscaling.maxNodesTotal",
	"spec.autoscaling.max_pod_grace_period":    "properties.autoscaling.maxPodGracePeriodSeconds",
	"spec.autoscaling.max_node_provision_time": "properties.autoscaling.maxNodeProvisionTimeSeconds",
	"spec.autoscaling.pod_priority_threshold":  "properties.autoscaling.podPriorityThreshold",
	"spec.etcd.kms_key":                        "properties.etcd.dataEncryption.customerManaged.kms",
	"spec.etcd.kms_key.vault_name":             "properties.etcd.dataEncryption.customerManaged.kms.vaultName",
	"spec.etcd.kms_key.key_name":               "properties.etcd.dataEncryption.customerManaged.kms.activeKey.name",
	"spec.etcd.kms_key.key_version":            "properties.etcd.dataEncryption.customerManaged.kms.activeKey.version",
	"spec.etcd.kms_key.vault_visibility":       "properties.etcd.dataEncryption.customerManaged.kms.visibility",
	"spec.image_digest_mirrors":                "properties.imageDigestMirrors",
	"spec.image_digest_mirrors[].source":       "properties.imageDigestMirrors[].source",
	"spec.image_digest_mirrors[].mirrors":      "properties.imageDigestMirrors[].mirrors",
	"spec.image_digest_mirrors[].mirrors[]":    "properties.imageDigestMirrors[].mirrors[]",
	"spec.image_registry_enabled":              "properties.clusterImageRegistry.state",
	"spec.fips":                                "properties.cryptoRestrictions",
	"spec.experiments":                         "tags",
	"spec.experiments[]":                       "tags[]",
	"spec.identities":                          "identity.userAssignedIdentities",
	"spec.identities[]":                        "identity.userAssignedIdentities[]",
	"spec.identities[].client_id":              "identity.userAssignedIdentities[]",
	"spec.identities[].principal_id":           "identity.userAssignedIdentities[]",

	"spec.platform.vm_size":                      "properties.platform.vmSize",
	"spec.platform.encryption_at_host":           "properties.platform.enableEncryptionAtHost",
	"spec.platform.availability_zone":            "properties.platform.availabilityZone",
	"spec.platform.os_disk":                      "properties.platform.osDisk",
	"spec.platform.os_disk.size_gib":             "properties.platform.osDisk.sizeGiB",
	"spec.platform.os_disk.storage_account_type": "properties.platform.osDisk.diskStorageAccountType",
	"spec.platform.os_disk.encryption_set_id":    "properties.platform.osDisk.encryptionSetId",
	"spec.platform.os_disk.ephemeral":            "properties.platform.osDisk.diskType",
	"spec.replicas":                              "properties.replicas",
	"spec.autoscaling.min":                       "properties.autoScaling.min",
	"spec.autoscaling.max":                       "properties.autoScaling.max",
	"spec.auto_repair":                           "properties.autoRepair",
	"spec.labels":                                "properties.labels",
	"spec.labels[]":                              "properties.labels",
	"spec.taints":                                "properties.taints",
	"spec.taints[].key":                          "properties.taints[].key",
	"spec.taints[].value":                        "properties.taints[].value",
	"spec.taints[].effect":                       "properties.taints[].effect",

	"spec.issuer.url":                            "properties.issuer.url",
	"spec.issuer.audiences":                      "properties.issuer.audiences",
	"spec.issuer.audiences[]":                    "properties.issuer.audiences[]",
	"spec.issuer.certificate_authority":          "properties.issuer.ca",
	"spec.clients":                               "properties.clients",
	"spec.clients[]":                             "properties.clients[]",
	"spec.clients[].component_name":              "properties.clients[].component.name",
	"spec.clients[].component_namespace":         "properties.clients[].component.authClientNamespace",
	"spec.clients[].client_id":                   "properties.clients[].clientId",
	"spec.clients[].extra_scopes":                "properties.clients[].extraScopes",
	"spec.clients[].extra_scopes[]":              "properties.clients[].extraScopes[]",
	"spec.clients[].type":                        "properties.clients[].type",
	"spec.claim_mappings.username.claim":         "properties.claim.mappings.username.claim",
	"spec.claim_mappings.username.prefix":        "properties.claim.mappings.username.prefix",
	"spec.claim_mappings.username.prefix_policy": "properties.claim.mappings.username.prefixPolicy",
	"spec.claim_mappings.groups.claim":           "properties.claim.mappings.groups.claim",
	"spec.claim_mappings.groups.prefix":          "properties.claim.mappings.groups.prefix",
	"spec.required_claims":                       "properties.claim.validationRules",
	"spec.required_claims[].claim":               "properties.claim.validationRules[].requiredClaim.claim",
	"spec.required_claims[].required_value":      "properties.claim.validationRules[].requiredClaim.requiredValue",

	"spec.certificate_signing_request": "certificateSigningRequest",
}

// bracketed matches an index or a key.
var bracketed = regexp.MustCompile(`\[[^\]]*\]`)

// armPath matches the paths of properties in ARM's JSON, as the functions of this package report them.
var armPath = regexp.MustCompile(`^(properties|identity|tags)(\.[a-zA-Z]+|\[[^\]]*\])*$`)

// PropertyPath returns the ARM property that a field of a request to Cluster Service comes from, for example
// properties.dns.baseDomainPrefix for spec.dns.base_domain_prefix. It also accepts a path of an ARM property, which is
// what the functions that build requests report. It returns false if the customer did not set the field, or if the field
// is unknown.
func PropertyPath(field string) (string, bool) {
	if armPath.MatchString(field) {
		return field, true
	}
	indices := bracketed.FindAllString(field, -1)
	path := propertyPaths[bracketed.ReplaceAllString(field, "[]")]
	for _, index := range indices {
		path = strings.Replace(path, "[]", index, 1)
	}
	return path, path != ""
}
