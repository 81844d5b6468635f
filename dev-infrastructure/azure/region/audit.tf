# The storage of the audit records. The witness has a resource group of its own in the subscription of the environment, so that other
# people own it. An administrator locks the policies of both once; see docs/deploy/azure.md.

locals {
  witness_group = "/subscriptions/${var.config.subscriptions.global}/resourceGroups/${var.config.resourceGroups.region}-witness"
  # Writers of audit records. The containers permit them to read, and to append to blobs WRITER/OFFSET.jsonl, where WRITER is the service, a dash and 16 digits.
  auditors    = toset(["admin", "backend", "cluster-service", "frontend", "gateway-access", "maestro-server"])
  append_id   = uuidv5("url", "${local.group}/append")
  witness_id  = uuidv5("url", "${local.witness_group}/append")
  containers  = "Microsoft.Storage/storageAccounts/blobServices/containers"
  append_only = [{ actions = ["${local.containers}/read"], notActions = [], dataActions = ["${local.containers}/blobs/read", "${local.containers}/blobs/add/action"], notDataActions = [] }]
  own_blobs   = { for service in local.auditors : service => "((!(ActionMatches{'${local.containers}/blobs/add/action'})) OR (@Resource[${local.containers}/blobs:path] StringLike '${service}-????????????????/*'))" }
}

resource "azapi_resource" "witness_group" {
  type      = local.types.resourceGroup
  parent_id = "/subscriptions/${var.config.subscriptions.global}"
  name      = "${var.config.resourceGroups.region}-witness"
  location  = local.location
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "audit" {
  for_each = {
    sink    = { name = var.config.audit.sinkAccount, group = azapi_resource.group.id }
    witness = { name = var.config.audit.witnessAccount, group = azapi_resource.witness_group.id }
  }
  type      = local.types.storageAccount
  parent_id = each.value.group
  name      = each.value.name
  location  = local.location
  body = {
    kind = "StorageV2"
    sku  = { name = local.zonal ? "Standard_ZRS" : "Standard_LRS" }
    properties = {
      accessTier               = "Cool"
      allowBlobPublicAccess    = false
      allowSharedKeyAccess     = false
      minimumTlsVersion        = "TLS1_2"
      publicNetworkAccess      = "Disabled"
      supportsHttpsTrafficOnly = true
    }
  }
  response_export_values = ["properties.primaryEndpoints.blob"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "audit_records" {
  type      = local.types.storageContainer
  parent_id = "${azapi_resource.audit["sink"].id}/blobServices/default"
  name      = var.config.audit.sinkContainer
  body      = { properties = { publicAccess = "None" } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "audit_retention" {
  type      = local.types.immutabilityPolicy
  parent_id = azapi_resource.audit_records.id
  name      = "default"
  body = {
    properties = { immutabilityPeriodSinceCreationInDays = var.config.audit.retentionDays, allowProtectedAppendWrites = true }
  }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "audit_checkpoints" {
  type      = local.types.storageContainer
  parent_id = "${azapi_resource.audit["witness"].id}/blobServices/default"
  name      = var.config.audit.witnessContainer
  body      = { properties = { publicAccess = "None" } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "checkpoint_retention" {
  type      = local.types.immutabilityPolicy
  parent_id = azapi_resource.audit_checkpoints.id
  name      = "default"
  body = {
    properties = { immutabilityPeriodSinceCreationInDays = var.config.audit.retentionDays, allowProtectedAppendWrites = true }
  }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "append_role" {
  type      = local.types.role
  parent_id = azapi_resource.group.id
  name      = local.append_id
  body = {
    properties = {
      roleName         = "hcpmesh ${var.config.environment} ${var.config.region} append audit records and recordings"
      description      = "Read and append blobs. Neither replace nor delete them."
      type             = "CustomRole"
      assignableScopes = [local.group]
      permissions      = local.append_only
    }
  }
}

# The witness may be in another subscription than the region, whose role is not valid there.
resource "azapi_resource" "witness_append_role" {
  type      = local.types.role
  parent_id = azapi_resource.witness_group.id
  name      = local.witness_id
  body = {
    properties = {
      roleName         = "hcpmesh ${var.config.environment} ${var.config.region} append audit checkpoints"
      description      = "Read and append blobs. Neither replace nor delete them."
      type             = "CustomRole"
      assignableScopes = [local.witness_group]
      permissions      = local.append_only
    }
  }
}

module "audit_append_role" {
  for_each   = local.auditors
  source     = "../modules/role"
  scope      = azapi_resource.audit_records.id
  role       = local.append_id
  condition  = local.own_blobs[each.key]
  principal  = local.principals[each.key]
  purpose    = each.key
  depends_on = [azapi_resource.append_role]
}

module "audit_witness_role" {
  for_each   = local.auditors
  source     = "../modules/role"
  scope      = azapi_resource.audit_checkpoints.id
  role       = local.witness_id
  condition  = local.own_blobs[each.key]
  principal  = local.principals[each.key]
  purpose    = each.key
  depends_on = [azapi_resource.witness_append_role]
}
