# Cosmos DB. No client has a key. Each service has the data actions that internal/database lists, per container.

locals {
  cosmos       = "${local.group}/providers/Microsoft.DocumentDB/databaseAccounts/${var.config.cosmos.account}"
  cosmos_roles = { for grant in var.tables.cosmosRoles : "${grant.service}-${grant.container == "" ? "account" : grant.container}" => grant if contains(keys(local.identities), grant.service) }
}

resource "azapi_resource" "cosmos" {
  type      = local.types.cosmosAccount
  parent_id = azapi_resource.group.id
  name      = var.config.cosmos.account
  location  = local.location
  body = {
    kind = "GlobalDocumentDB"
    properties = {
      databaseAccountOfferType           = "Standard"
      consistencyPolicy                  = { defaultConsistencyLevel = var.tables.cosmosConsistency }
      locations                          = [{ locationName = local.location, failoverPriority = 0, isZoneRedundant = var.config.cosmos.zoneRedundant }]
      enableAutomaticFailover            = false
      enableMultipleWriteLocations       = false
      disableLocalAuth                   = true
      disableKeyBasedMetadataWriteAccess = true
      publicNetworkAccess                = "Disabled"
      minimalTlsVersion                  = "Tls12"
      backupPolicy                       = { type = "Continuous", continuousModeProperties = { tier = var.config.cosmos.backupTier } }
    }
  }
  response_export_values = ["properties.documentEndpoint"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cosmos_database" {
  type      = local.types.cosmosDatabase
  parent_id = azapi_resource.cosmos.id
  name      = var.tables.cosmosDatabase
  body      = { properties = { resource = { id = var.tables.cosmosDatabase } } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cosmos_container" {
  for_each  = var.tables.cosmosContainers
  type      = local.types.cosmosContainer
  parent_id = azapi_resource.cosmos_database.id
  name      = each.key
  body = {
    properties = {
      resource = {
        id           = each.key
        partitionKey = { paths = [each.value.partitionKey], kind = "Hash", version = 2 }
        defaultTtl   = each.value.defaultTtl
      }
      options = { autoscaleSettings = { maxThroughput = var.config.cosmos.maxThroughput } }
    }
  }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cosmos_role" {
  for_each  = local.cosmos_roles
  type      = local.types.cosmosRole
  parent_id = azapi_resource.cosmos.id
  name      = uuidv5("url", "${local.cosmos}/${each.key}")
  body = {
    properties = {
      roleName         = "hcpmesh ${each.key}"
      type             = "CustomRole"
      assignableScopes = [local.cosmos]
      permissions      = [{ dataActions = each.value.dataActions }]
    }
  }
}

resource "azapi_resource" "cosmos_role_assignment" {
  for_each  = local.cosmos_roles
  type      = local.types.cosmosRoleAssignment
  parent_id = azapi_resource.cosmos.id
  name      = uuidv5("url", "${local.cosmos}/${each.key}/assignment")
  body = {
    properties = {
      principalId      = local.principals[each.value.service]
      roleDefinitionId = azapi_resource.cosmos_role[each.key].id
      scope            = each.value.container == "" ? local.cosmos : "${local.cosmos}${each.value.scope}"
    }
  }
  # A role in a container that does not exist cannot be assigned.
  depends_on = [azapi_resource.cosmos_container]
}
