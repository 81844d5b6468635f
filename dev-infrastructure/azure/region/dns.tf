# The zone of the region, delegated from that of the environment, and the zone of the hosted clusters, delegated from that of the region.

resource "azapi_resource" "zone" {
  type                   = local.types.dnsZone
  parent_id              = azapi_resource.group.id
  name                   = var.config.dns.zone
  location               = "global"
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.nameServers"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "clusters_zone" {
  type                   = local.types.dnsZone
  parent_id              = azapi_resource.group.id
  name                   = var.config.dns.clustersZone
  location               = "global"
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.nameServers"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "delegation" {
  type      = local.types.dnsNs
  parent_id = var.outer.global.zone.id
  name      = trimsuffix(var.config.dns.zone, ".${var.config.dns.parentZone}")
  body = {
    properties = { TTL = 3600, NSRecords = [for server in azapi_resource.zone.output.properties.nameServers : { nsdname = server }] }
  }
}

resource "azapi_resource" "clusters_delegation" {
  type      = local.types.dnsNs
  parent_id = azapi_resource.zone.id
  name      = trimsuffix(var.config.dns.clustersZone, ".${var.config.dns.zone}")
  body = {
    properties = { TTL = 3600, NSRecords = [for server in azapi_resource.clusters_zone.output.properties.nameServers : { nsdname = server }] }
  }
}

# Cluster Service writes the records of hosted clusters.
module "clusters_zone_role" {
  source    = "../modules/role"
  scope     = azapi_resource.clusters_zone.id
  role      = local.roles.dnsZoneContributor
  principal = local.principals["cluster-service"]
  purpose   = "cluster-service"
}
