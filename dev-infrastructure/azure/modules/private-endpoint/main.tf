# A private endpoint of a service in a network, and its name in the private zone.

variable "name" { type = string }
variable "group" { type = string }
variable "location" { type = string }
variable "subnet" { type = string }
variable "target" { type = string }
variable "kind" {
  description = "The part of the target, for example blob."
  type        = string
}
variable "zone" { type = string }

resource "azapi_resource" "this" {
  type      = local.types.privateEndpoint
  parent_id = var.group
  name      = var.name
  location  = var.location
  body = {
    properties = {
      subnet = { id = var.subnet }
      privateLinkServiceConnections = [{
        name       = var.name
        properties = { privateLinkServiceId = var.target, groupIds = [var.kind] }
      }]
    }
  }
}

resource "azapi_resource" "zone_group" {
  type      = local.types.privateZoneGroup
  parent_id = azapi_resource.this.id
  name      = "default"
  body = {
    properties = { privateDnsZoneConfigs = [{ name = "zone", properties = { privateDnsZoneId = var.zone } }] }
  }
}
