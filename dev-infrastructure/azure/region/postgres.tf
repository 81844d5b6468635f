# The databases of Cluster Service and Maestro. Servers accept only TLS and only tokens of Entra ID.

locals {
  postgres = { "cluster-service" = var.config.postgres.clusterService, "maestro" = var.config.postgres.maestro }
  tiers    = { B = "Burstable", D = "GeneralPurpose", E = "MemoryOptimized" }
  parameters = merge([
    for name, server in local.postgres : {
      for parameter, value in { max_connections = tostring(server.maxConnections), require_secure_transport = "on", ssl_min_protocol_version = "TLSv1.3" } :
      "${name}/${parameter}" => { server = name, parameter = parameter, value = value }
    }
  ]...)
}

resource "azapi_resource" "postgres" {
  for_each  = local.postgres
  type      = local.types.postgresServer
  parent_id = azapi_resource.group.id
  name      = each.value.server
  location  = local.location
  body = {
    sku = { name = each.value.sku, tier = local.tiers[substr(trimprefix(each.value.sku, "Standard_"), 0, 1)] }
    properties = {
      version          = each.value.version
      createMode       = "Default"
      storage          = { storageSizeGB = each.value.storageGiB, autoGrow = "Enabled" }
      backup           = { backupRetentionDays = each.value.backupRetentionDays, geoRedundantBackup = each.value.geoRedundantBackup ? "Enabled" : "Disabled" }
      highAvailability = { mode = each.value.highAvailability ? "ZoneRedundant" : "Disabled" }
      authConfig       = { activeDirectoryAuth = "Enabled", passwordAuth = "Disabled", tenantId = var.config.tenantId }
      network          = { publicNetworkAccess = "Disabled" }
    }
  }
  response_export_values = ["properties.fullyQualifiedDomainName"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

# Parameters exist as long as their server, so they are updated and not created.
resource "azapi_update_resource" "postgres_parameter" {
  for_each   = local.parameters
  type       = local.types.postgresConfiguration
  parent_id  = azapi_resource.postgres[each.value.server].id
  name       = each.value.parameter
  body       = { properties = { value = each.value.value, source = "user-override" } }
}

# The commands `migrate` and `provision` of each service have identities of their own. `provision` is the administrator of the server: it
# creates the database and its roles, because a database that Resource Manager creates may belong to Azure's superuser.
resource "azapi_resource" "postgres_owner" {
  for_each               = { "cluster-service" = var.config.clusterService.migrationIdentity, "maestro" = var.config.maestro.server.migrationIdentity }
  type                   = local.types.identity
  parent_id              = azapi_resource.group.id
  name                   = each.value
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

resource "azapi_resource" "postgres_provision" {
  for_each               = { "cluster-service" = var.config.clusterService.provisionIdentity, "maestro" = var.config.maestro.server.provisionIdentity }
  type                   = local.types.identity
  parent_id              = azapi_resource.group.id
  name                   = each.value
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

resource "azapi_resource" "postgres_administrator" {
  for_each  = local.postgres
  type      = local.types.postgresAdministrator
  parent_id = azapi_resource.postgres[each.key].id
  name      = azapi_resource.postgres_provision[each.key].output.properties.principalId
  body = {
    properties = { principalName = azapi_resource.postgres_provision[each.key].name, principalType = "ServicePrincipal", tenantId = var.config.tenantId }
  }
  depends_on = [azapi_update_resource.postgres_parameter]
}
