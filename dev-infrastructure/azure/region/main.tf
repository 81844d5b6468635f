# Resources of a region that survive the loss of its clusters: data stores, vaults, zones, identities and the audit storage.

locals {
  location     = var.config.region
  subscription = "/subscriptions/${var.config.subscriptions.region}"
  group        = "${local.subscription}/resourceGroups/${var.config.resourceGroups.region}"
  zonal        = length(var.config.availabilityZones) > 1

  # A region without an egress gateway has no identity for it.
  identities = merge({
    "frontend"        = var.config.frontend.managedIdentity
    "backend"         = var.config.backend.managedIdentity
    "admin"           = var.config.admin.managedIdentity
    "gateway-access"  = var.config.gatewayAccess.managedIdentity
    "monitor"         = var.config.monitor.managedIdentity
    "cluster-service" = var.config.clusterService.managedIdentity
    "maestro-server"  = var.config.maestro.server.managedIdentity
    "ingress-arm"     = var.config.ingress.arm.managedIdentity
    "ingress-admin"   = var.config.ingress.admin.managedIdentity
    "ingress-tunnels" = var.config.ingress.tunnels.managedIdentity
  }, { for identity in [try(var.config.gatewayEgress.managedIdentity, null)] : "gateway-egress" => identity if identity != null })
  principals = { for service, identity in azapi_resource.identity : service => identity.output.properties.principalId }

  # Azure's built-in roles.
  roles = {
    vaultSecretsUser    = "4633458b-17de-408a-b874-0445c86b69e6"
    certificatesOfficer = "a4417e6f-fecd-4de8-b567-7b0420556985"
    dnsZoneContributor  = "befefa01-2a29-4197-83a8-272ff33ce314"
    blobContributor     = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    blobReader          = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
  }
}

resource "azapi_resource" "group" {
  type      = local.types.resourceGroup
  parent_id = local.subscription
  name      = var.config.resourceGroups.region
  location  = local.location
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "identity" {
  for_each               = local.identities
  type                   = local.types.identity
  parent_id              = azapi_resource.group.id
  name                   = each.value
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

# The agents of tunnels. The session gateway has the IDs of those that it accepts, so that they exist before their management clusters.
resource "azapi_resource" "tunnel_identity" {
  for_each               = { for stamp in try(var.config.managementClusters, []) : stamp.name => stamp.tunnel.managedIdentity }
  type                   = local.types.identity
  parent_id              = azapi_resource.group.id
  name                   = each.value
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

resource "azapi_resource" "monitor" {
  type                   = local.types.monitorWorkspace
  parent_id              = azapi_resource.group.id
  name                   = var.config.telemetry.monitorWorkspace
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.metrics.prometheusQueryEndpoint"]
}

# The registries have a replica in each region but that of the registries themselves.
resource "azapi_resource" "registry_replica" {
  for_each  = local.location == var.config.resourceGroups.globalLocation ? {} : var.outer.global.registries
  type      = local.types.registryReplica
  parent_id = each.value.id
  name      = local.location
  location  = local.location
  body      = { properties = { regionEndpointEnabled = true, zoneRedundancy = var.config.production ? "Enabled" : "Disabled" } }
}
