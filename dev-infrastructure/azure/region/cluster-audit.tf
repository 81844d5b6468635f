# The storage of the audit logs of the API servers of AKS. Azure Monitor appends them to blobs, one for each cluster, category and hour. They are
# apart from the records of the programs, because Azure Monitor reaches only an account with an exception in its firewall.

locals {
  # Azure Monitor gives the containers these names.
  cluster_logs = toset(["insights-logs-guard", "insights-logs-kube-audit", "insights-logs-kube-audit-admin"])
  # Engineers reach the account from the addresses from which they reach admin. A firewall of storage has no service tags, and a single
  # address without its length.
  cluster_audit_sources = [for source in var.config.ingress.admin.sources : trimsuffix(source, "/32") if can(cidrhost(source, 0))]
}

resource "azapi_resource" "cluster_audit" {
  type      = local.types.storageAccount
  parent_id = azapi_resource.group.id
  name      = var.config.audit.clusterAccount
  location  = local.location
  body = {
    kind = "StorageV2"
    sku  = { name = local.zonal ? "Standard_ZRS" : "Standard_LRS" }
    properties = {
      accessTier               = "Cool"
      allowBlobPublicAccess    = false
      allowSharedKeyAccess     = false
      minimumTlsVersion        = "TLS1_2"
      publicNetworkAccess      = "Enabled"
      supportsHttpsTrafficOnly = true
      networkAcls = {
        defaultAction       = "Deny"
        bypass              = "AzureServices" # Azure Monitor
        ipRules             = [for source in local.cluster_audit_sources : { value = source, action = "Allow" }]
        virtualNetworkRules = []
      }
    }
  }
  response_export_values = ["properties.primaryEndpoints.blob"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cluster_logs" {
  for_each  = local.cluster_logs
  type      = local.types.storageContainer
  parent_id = "${azapi_resource.cluster_audit.id}/blobServices/default"
  name      = each.key
  body      = { properties = { publicAccess = "None" } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cluster_logs_retention" {
  for_each  = local.cluster_logs
  type      = local.types.immutabilityPolicy
  parent_id = azapi_resource.cluster_logs[each.key].id
  name      = "default"
  body = {
    properties = { immutabilityPeriodSinceCreationInDays = var.config.audit.clusterRetentionDays, allowProtectedAppendWrites = true }
  }
  lifecycle { prevent_destroy = !var.allow_loss }
}

# A blob is deleted when its retention has ended.
resource "azapi_resource" "cluster_logs_deletion" {
  type      = local.types.storageLifecycle
  parent_id = azapi_resource.cluster_audit.id
  name      = "default"
  body = {
    properties = {
      policy = {
        rules = [{
          name    = "retention"
          enabled = true
          type    = "Lifecycle"
          definition = {
            filters = { blobTypes = ["appendBlob"], prefixMatch = ["insights-logs-"] }
            actions = { baseBlob = { delete = { daysAfterModificationGreaterThan = var.config.audit.clusterRetentionDays + 1 } } }
          }
        }]
      }
    }
  }
}
