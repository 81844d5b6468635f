package arm

import "regexp"

// The api-versions of the catalogue, by provider. The templates of a region's infrastructure use them.
const (
	aksVersion      = "2024-05-01"
	aksMeshVersion  = "2026-02-01"
	actionsVersion  = "2023-01-01"
	alertsVersion   = "2023-03-01"
	cdnVersion      = "2024-02-01"
	collectVersion  = "2022-06-01"
	cosmosVersion   = "2024-05-15"
	eventsVersion   = "2024-06-01-preview"
	monitorVersion  = "2023-04-03"
	networkVersion  = "2023-11-01"
	postgresVersion = "2023-12-01-preview"
	privateVersion  = "2020-06-01"
	registryVersion = "2023-07-01"
	storageVersion  = "2023-05-01"
	vaultVersion    = "2023-07-01"
)

// associationType is the type of the extension resources that connect a resource with a data collection rule.
const associationType = "Microsoft.Insights/dataCollectionRuleAssociations"

// entry is a line of the catalogue. Without a location, a type belongs to its parent. long types take OperationDelay.
type entry struct {
	name, version string
	tracked, long bool
	storedType
}

// storedTypes returns the types of the catalogue: the infrastructure of a region.
func storedTypes() []*resourceType {
	dns := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,48}[a-z0-9]$`)
	account := regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	vault := regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9]|-[A-Za-z0-9]){1,22}[A-Za-z0-9]?$`)
	registry := regexp.MustCompile(`^[A-Za-z0-9]{5,50}$`)
	onlyDefault := regexp.MustCompile(`^default$`)
	var all []*resourceType
	for _, e := range []entry{
		{"Microsoft.Network/publicIPAddresses", networkVersion, true, true, storedType{computed: publicAddress}},
		{"Microsoft.Network/publicIPPrefixes", networkVersion, true, true, storedType{immutable: []string{"prefixLength"}, computed: publicPrefix}},
		{"Microsoft.Network/privateEndpoints", networkVersion, true, true, storedType{}},
		{"Microsoft.Network/privateEndpoints/privateDnsZoneGroups", networkVersion, false, true, storedType{}},
		{"Microsoft.Network/privateDnsZones", privateVersion, true, true, storedType{global: true}},
		{"Microsoft.Network/privateDnsZones/virtualNetworkLinks", privateVersion, true, true, storedType{global: true}},

		{aksType, aksVersion, true, true, storedType{further: []string{aksMeshVersion}, immutable: []string{"dnsPrefix", "networkProfile.podCidr", "networkProfile.serviceCidr"}, computed: managedCluster, check: checkEtcdKey, principal: secretsProvider + ".identity.objectId"}},
		{"Microsoft.ContainerService/managedClusters/agentPools", aksVersion, false, true, storedType{}},
		{"Microsoft.ContainerService/managedClusters/maintenanceConfigurations", aksVersion, false, false, storedType{}},

		{"Microsoft.DocumentDB/databaseAccounts", cosmosVersion, true, true, storedType{name: dns, taken: "BadRequest", computed: cosmosAccount}},
		{"Microsoft.DocumentDB/databaseAccounts/sqlDatabases", cosmosVersion, false, true, storedType{}},
		{"Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers", cosmosVersion, false, true, storedType{immutable: []string{"resource.id", "resource.partitionKey"}}},
		{"Microsoft.DocumentDB/databaseAccounts/sqlRoleDefinitions", cosmosVersion, false, true, storedType{}},
		{"Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments", cosmosVersion, false, true, storedType{}},

		{"Microsoft.DBforPostgreSQL/flexibleServers", postgresVersion, true, true, storedType{name: dns, taken: "ServerNameAlreadyExists", immutable: []string{"administratorLogin", "backup.geoRedundantBackup"}, computed: postgresServer,
			implicit: []string{"configurations/max_connections", "configurations/require_secure_transport", "configurations/ssl_min_protocol_version"}}},
		{"Microsoft.DBforPostgreSQL/flexibleServers/databases", postgresVersion, false, true, storedType{immutable: []string{"charset", "collation"}}},
		{"Microsoft.DBforPostgreSQL/flexibleServers/configurations", postgresVersion, false, true, storedType{}},
		{"Microsoft.DBforPostgreSQL/flexibleServers/administrators", postgresVersion, false, true, storedType{}},

		{"Microsoft.EventGrid/namespaces", eventsVersion, true, true, storedType{name: dns, computed: eventNamespace}},
		{"Microsoft.EventGrid/namespaces/topicSpaces", eventsVersion, false, true, storedType{}},
		{"Microsoft.EventGrid/namespaces/clientGroups", eventsVersion, false, true, storedType{}},
		{"Microsoft.EventGrid/namespaces/clients", eventsVersion, false, true, storedType{}},
		{"Microsoft.EventGrid/namespaces/permissionBindings", eventsVersion, false, true, storedType{}},
		{"Microsoft.EventGrid/namespaces/caCertificates", eventsVersion, false, true, storedType{}},

		{"Microsoft.KeyVault/vaults", vaultVersion, true, false, storedType{name: vault, taken: "VaultAlreadyExists", computed: keyVault}},
		{keyType, vaultVersion, false, false, storedType{name: regexp.MustCompile(`^[A-Za-z0-9-]{1,127}$`), permanent: true, computed: vaultKey}},

		{"Microsoft.Storage/storageAccounts", storageVersion, true, true, storedType{name: account, taken: "StorageAccountAlreadyTaken", implicit: []string{"blobServices/default"}, computed: storageAccount}},
		{"Microsoft.Storage/storageAccounts/blobServices", storageVersion, false, false, storedType{name: onlyDefault}},
		{containerType, storageVersion, false, false, storedType{name: regexp.MustCompile(`^[a-z0-9](-?[a-z0-9]){2,62}$`)}},
		{immutabilityType, storageVersion, false, false, storedType{name: onlyDefault, computed: immutabilityPolicy}},
		{"Microsoft.Storage/storageAccounts/managementPolicies", storageVersion, false, false, storedType{name: onlyDefault}},

		{"Microsoft.Cdn/profiles", cdnVersion, true, true, storedType{global: true, computed: frontDoor}},
		{"Microsoft.Cdn/profiles/afdEndpoints", cdnVersion, true, true, storedType{global: true, computed: frontDoorEndpoint}},
		{"Microsoft.Cdn/profiles/originGroups", cdnVersion, false, true, storedType{}},
		{"Microsoft.Cdn/profiles/originGroups/origins", cdnVersion, false, true, storedType{}},
		{"Microsoft.Cdn/profiles/afdEndpoints/routes", cdnVersion, false, true, storedType{}},
		{"Microsoft.Cdn/profiles/customDomains", cdnVersion, false, true, storedType{computed: customDomain}},

		{"Microsoft.ContainerRegistry/registries", registryVersion, true, true, storedType{name: registry, taken: "AlreadyInUse", computed: containerRegistry}},
		{"Microsoft.ContainerRegistry/registries/replications", registryVersion, true, true, storedType{}},
		{"Microsoft.ContainerRegistry/registries/cacheRules", registryVersion, false, true, storedType{immutable: []string{"sourceRepository", "targetRepository"}}},

		{"Microsoft.Monitor/accounts", monitorVersion, true, false, storedType{computed: monitorWorkspace}},
		{"Microsoft.Insights/actionGroups", actionsVersion, true, false, storedType{global: true}},
		{"Microsoft.Insights/dataCollectionEndpoints", collectVersion, true, false, storedType{computed: collectionEndpoint}},
		{"Microsoft.Insights/dataCollectionRules", collectVersion, true, false, storedType{}},
		{associationType, collectVersion, false, false, storedType{}},
		{"Microsoft.AlertsManagement/prometheusRuleGroups", alertsVersion, true, false, storedType{}},
	} {
		stored := e.storedType
		all = append(all, &resourceType{name: e.name, versions: append([]string{e.version}, stored.further...), tracked: e.tracked, longPut: e.long, longDelete: e.long,
			put: putStored, canDelete: canDeleteStored, stored: &stored})
	}
	return all
}
