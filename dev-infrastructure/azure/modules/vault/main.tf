# A vault that is reachable only through private endpoints, unless it is public. Its data survives a deletion for 90 days.

variable "name" { type = string }
variable "group" { type = string }
variable "location" { type = string }
variable "tenant" { type = string }
variable "public" {
  description = "Accept connections from all addresses. Only for keys that AKS uses, which has no addresses that a firewall could name."
  type        = bool
  default     = false
}
variable "allow_loss" { type = bool }

resource "azapi_resource" "this" {
  type      = local.types.vault
  parent_id = var.group
  name      = var.name
  location  = var.location
  body = {
    properties = {
      tenantId                     = var.tenant
      sku                          = { family = "A", name = "standard" }
      enableRbacAuthorization      = true
      enableSoftDelete             = true
      softDeleteRetentionInDays    = 90
      enablePurgeProtection        = true
      enabledForDeployment         = false
      enabledForDiskEncryption     = false
      enabledForTemplateDeployment = false
      publicNetworkAccess          = var.public ? "Enabled" : "Disabled"
      networkAcls                  = { defaultAction = var.public ? "Allow" : "Deny", bypass = "None" }
    }
  }
  response_export_values = ["properties.vaultUri"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

output "uri" { value = azapi_resource.this.output.properties.vaultUri }
