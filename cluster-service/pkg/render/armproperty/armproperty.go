// Package armproperty maps the fields of rendered HostedClusters and NodePools to the ARM properties that the renderer made them from. If
// the API server of a management cluster refuses a field, the customer's error names the property. The table is the inverse of the functions
// of package render: its test fails if a rendered field is missing.
package armproperty

import (
	"regexp"
	"strings"
)

// Resource is the ARM resource that has a property.
type Resource string

// The resources. Service is the owner of fields that no customer chooses.
const (
	Service      Resource = ""
	Cluster      Resource = "cluster"
	NodePool     Resource = "nodePool"
	ExternalAuth Resource = "externalAuth"
)

type property struct {
	resource Resource
	path     string
}

const (
	authentication = "spec.configuration.authentication.oidcProviders[]"
	identities     = "properties.platform.operatorsAuthentication.userAssignedIdentities"
)

// properties holds the fields by kind. "[]" is an index of a list; if the property has one too, the items of both lists have the same order.
// A field without a row belongs to the nearest field above it that has one. The release image is the service's: it follows from the version
// that the region offers.
var properties = map[string]map[string]property{
	"HostedCluster": {
		"metadata":                                    {},
		"spec":                                        {},
		"spec.autoscaling":                            {Cluster, "properties.autoscaling"},
		"spec.autoscaling.maxNodeProvisionTime":       {Cluster, "properties.autoscaling.maxNodeProvisionTimeSeconds"},
		"spec.autoscaling.maxNodesTotal":              {Cluster, "properties.autoscaling.maxNodesTotal"},
		"spec.autoscaling.maxPodGracePeriod":          {Cluster, "properties.autoscaling.maxPodGracePeriodSeconds"},
		"spec.autoscaling.podPriorityThreshold":       {Cluster, "properties.autoscaling.podPriorityThreshold"},
		"spec.autoscaling.scaling":                    {},
		"spec.capabilities":                           {Cluster, "properties.clusterImageRegistry.state"},
		"spec.configuration.authentication":           {ExternalAuth, "properties"},
		"spec.fips":                                   {Cluster, "properties.cryptoRestrictions"},
		"spec.imageContentSources":                    {Cluster, "properties.imageDigestMirrors"},
		"spec.networking":                             {Cluster, "properties.network"},
		"spec.networking.apiServer":                   {Cluster, "properties.api.authorizedCidrs"},
		"spec.networking.clusterNetwork[].cidr":       {Cluster, "properties.network.podCidr"},
		"spec.networking.clusterNetwork[].hostPrefix": {Cluster, "properties.network.hostPrefix"},
		"spec.networking.machineNetwork":              {Cluster, "properties.network.machineCidr"},
		"spec.networking.networkType":                 {Cluster, "properties.network.networkType"},
		"spec.networking.serviceNetwork":              {Cluster, "properties.network.serviceCidr"},
		"spec.platform.azure.location":                {Cluster, "location"},
		"spec.platform.azure.resourceGroup":           {Cluster, "properties.platform.managedResourceGroup"},
		"spec.platform.azure.securityGroupID":         {Cluster, "properties.platform.networkSecurityGroupId"},
		"spec.platform.azure.subnetID":                {Cluster, "properties.platform.subnetId"},
		"spec.platform.azure.vnetID":                  {Cluster, "properties.platform.subnetId"},
		"spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane":                           {Cluster, identities + ".controlPlaneOperators"},
		"spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.managedIdentitiesKeyVault": {},
		"spec.platform.azure.azureAuthenticationConfig.managedIdentities.dataPlane":                              {Cluster, identities + ".dataPlaneOperators"},
		"spec.secretEncryption":                                                {Cluster, "properties.etcd.dataEncryption.customerManaged.kms"},
		"spec.secretEncryption.kms.azure.activeKey.keyName":                    {Cluster, "properties.etcd.dataEncryption.customerManaged.kms.activeKey.name"},
		"spec.secretEncryption.kms.azure.activeKey.keyVaultName":               {Cluster, "properties.etcd.dataEncryption.customerManaged.kms.vaultName"},
		"spec.secretEncryption.kms.azure.activeKey.keyVersion":                 {Cluster, "properties.etcd.dataEncryption.customerManaged.kms.activeKey.version"},
		"spec.secretEncryption.kms.azure.keyVaultAccess":                       {Cluster, "properties.etcd.dataEncryption.customerManaged.kms.visibility"},
		"spec.secretEncryption.kms.azure.kms":                                  {Cluster, identities + ".controlPlaneOperators[kms]"},
		authentication + ".claimMappings.groups.claim":                         {ExternalAuth, "properties.claim.mappings.groups.claim"},
		authentication + ".claimMappings.groups.prefix":                        {ExternalAuth, "properties.claim.mappings.groups.prefix"},
		authentication + ".claimMappings.username.claim":                       {ExternalAuth, "properties.claim.mappings.username.claim"},
		authentication + ".claimMappings.username.prefix":                      {ExternalAuth, "properties.claim.mappings.username.prefix"},
		authentication + ".claimMappings.username.prefixPolicy":                {ExternalAuth, "properties.claim.mappings.username.prefixPolicy"},
		authentication + ".claimValidationRules":                               {ExternalAuth, "properties.claim.validationRules"},
		authentication + ".claimValidationRules[].requiredClaim.claim":         {ExternalAuth, "properties.claim.validationRules[].requiredClaim.claim"},
		authentication + ".claimValidationRules[].requiredClaim.requiredValue": {ExternalAuth, "properties.claim.validationRules[].requiredClaim.requiredValue"},
		authentication + ".issuer.audiences":                                   {ExternalAuth, "properties.issuer.audiences"},
		authentication + ".issuer.audiences[]":                                 {ExternalAuth, "properties.issuer.audiences[]"},
		authentication + ".issuer.issuerCertificateAuthority":                  {ExternalAuth, "properties.issuer.ca"},
		authentication + ".issuer.issuerURL":                                   {ExternalAuth, "properties.issuer.url"},
		authentication + ".name":                                               {ExternalAuth, "name"},
		authentication + ".oidcClients":                                        {ExternalAuth, "properties.clients"},
		authentication + ".oidcClients[]":                                      {ExternalAuth, "properties.clients[]"},
		authentication + ".oidcClients[].clientID":                             {ExternalAuth, "properties.clients[].clientId"},
		authentication + ".oidcClients[].componentName":                        {ExternalAuth, "properties.clients[].component.name"},
		authentication + ".oidcClients[].componentNamespace":                   {ExternalAuth, "properties.clients[].component.authClientNamespace"},
		authentication + ".oidcClients[].extraScopes":                          {ExternalAuth, "properties.clients[].extraScopes"},
	},
	"NodePool": {
		"metadata":                             {},
		"spec":                                 {},
		"spec.arch":                            {NodePool, "properties.platform.vmSize"},
		"spec.autoScaling":                     {NodePool, "properties.autoScaling"},
		"spec.autoScaling.max":                 {NodePool, "properties.autoScaling.max"},
		"spec.autoScaling.min":                 {NodePool, "properties.autoScaling.min"},
		"spec.management.autoRepair":           {NodePool, "properties.autoRepair"},
		"spec.nodeDrainTimeout":                {NodePool, "properties.nodeDrainTimeoutMinutes"},
		"spec.nodeLabels":                      {NodePool, "properties.labels"},
		"spec.platform.azure.availabilityZone": {NodePool, "properties.platform.availabilityZone"},
		"spec.platform.azure.encryptionAtHost": {NodePool, "properties.platform.enableEncryptionAtHost"},
		"spec.platform.azure.osDisk":           {NodePool, "properties.platform.osDisk"},
		"spec.platform.azure.osDisk.diskStorageAccountType": {NodePool, "properties.platform.osDisk.diskStorageAccountType"},
		"spec.platform.azure.osDisk.encryptionSetID":        {NodePool, "properties.platform.osDisk.encryptionSetId"},
		"spec.platform.azure.osDisk.persistence":            {NodePool, "properties.platform.osDisk.diskType"},
		"spec.platform.azure.osDisk.sizeGiB":                {NodePool, "properties.platform.osDisk.sizeGiB"},
		"spec.platform.azure.subnetID":                      {NodePool, "properties.platform.subnetId"},
		"spec.platform.azure.vmSize":                        {NodePool, "properties.platform.vmSize"},
		"spec.replicas":                                     {NodePool, "properties.replicas"},
		"spec.taints":                                       {NodePool, "properties.taints"},
		"spec.taints[].effect":                              {NodePool, "properties.taints[].effect"},
		"spec.taints[].key":                                 {NodePool, "properties.taints[].key"},
		"spec.taints[].value":                               {NodePool, "properties.taints[].value"},
	},
}

// index matches an index or a key in brackets.
var index = regexp.MustCompile(`\[[^\]]*\]`)

// Of returns the resource and the ARM property of a field of a kind, for example properties.platform.vmSize for
// spec.platform.azure.vmSize of a NodePool. It returns Service and an empty property if no customer chooses the field.
func Of(kind, field string) (Resource, string) {
	indices := index.FindAllString(field, -1)
	for name := index.ReplaceAllString(field, "[]"); name != ""; name = parent(name) {
		found, ok := properties[kind][name]
		if !ok {
			continue
		}
		path := found.path
		// The indices of the innermost lists are those of the property's lists.
		inField, inPath := strings.Count(name, "[]"), strings.Count(path, "[]")
		for _, i := range indices[inField-inPath : inField] {
			path = strings.Replace(path, "[]", i, 1)
		}
		return found.resource, path
	}
	return Service, ""
}

// parent returns the field above a field; empty if there is none.
func parent(name string) string {
	if list, isItem := strings.CutSuffix(name, "[]"); isItem {
		return list
	}
	return name[:max(strings.LastIndexByte(name, '.'), 0)]
}
