# The container of the recordings of commands. Only the session gateway appends to it, and only admin reads it and has the key.

locals {
  recording_days = 90
}

resource "azapi_resource" "recordings" {
  type      = local.types.storageContainer
  parent_id = "${azapi_resource.audit["sink"].id}/blobServices/default"
  name      = var.config.gatewayAccess.recordings.container
  body      = { properties = { publicAccess = "None" } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "recordings_retention" {
  type      = local.types.immutabilityPolicy
  parent_id = azapi_resource.recordings.id
  name      = "default"
  body = {
    properties = { immutabilityPeriodSinceCreationInDays = local.recording_days, allowProtectedAppendWrites = true }
  }
  lifecycle { prevent_destroy = !var.allow_loss }
}

# A recording is deleted when its retention has ended.
resource "azapi_resource" "recordings_deletion" {
  type      = local.types.storageLifecycle
  parent_id = azapi_resource.audit["sink"].id
  name      = "default"
  body = {
    properties = {
      policy = {
        rules = [{
          name    = "recordings"
          enabled = true
          type    = "Lifecycle"
          definition = {
            filters = { blobTypes = ["appendBlob"], prefixMatch = ["${azapi_resource.recordings.name}/"] }
            actions = { baseBlob = { delete = { daysAfterModificationGreaterThan = local.recording_days + 1 } } }
          }
        }]
      }
    }
  }
}

module "recordings_append_role" {
  source     = "../modules/role"
  scope      = azapi_resource.recordings.id
  role       = local.append_id
  principal  = local.principals["gateway-access"]
  purpose    = "gateway-access"
  depends_on = [azapi_resource.append_role]
}

module "recordings_read_role" {
  source    = "../modules/role"
  scope     = azapi_resource.recordings.id
  role      = local.roles.blobReader
  principal = local.principals["admin"]
  purpose   = "admin"
}
