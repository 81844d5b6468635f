# Resources that all regions of an environment share: the parent zone, the registries and Front Door.

locals {
  subscription = "/subscriptions/${var.config.subscriptions.global}"
  group        = "${local.subscription}/resourceGroups/${var.config.resourceGroups.global}"
  location     = var.config.resourceGroups.globalLocation
  registries   = toset([var.config.registry.services, var.config.registry.openshift])

  # Rules of the registry for OpenShift, by name: the part of its path that a mirror has, and the source. A repository with a rule has what was
  # pulled. If the environment names releases, pipelines copy them, and no rule may write into their repositories.
  caches = {
    for source in var.config.clusterService.config.imageContentSources :
    replace(regex("^[^/]+/(.*)$", source.source)[0], "/[^a-zA-Z0-9-]/", "-") => {
      source = source.source
      target = regex("^[^/]+/(.*)$", source.mirrors[0])[0]
    }
    if startswith(source.mirrors[0], "${var.config.registry.openshift}.") && length(var.config.registry.releases) == 0
  }
}

resource "azapi_resource" "group" {
  type      = local.types.resourceGroup
  parent_id = local.subscription
  name      = var.config.resourceGroups.global
  location  = local.location
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "zone" {
  type                   = local.types.dnsZone
  parent_id              = azapi_resource.group.id
  name                   = var.config.dns.parentZone
  location               = "global"
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.nameServers"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "registry" {
  for_each  = local.registries
  type      = local.types.registry
  parent_id = azapi_resource.group.id
  name      = each.key
  location  = local.location
  body = {
    sku = { name = "Premium" }
    properties = {
      adminUserEnabled    = false
      dataEndpointEnabled = false
      # Clusters pull with the identities of their kubelets. Image mirrors push from outside the networks of the regions.
      publicNetworkAccess = "Enabled"
      zoneRedundancy      = var.config.production ? "Enabled" : "Disabled"
    }
  }
  response_export_values = ["properties.loginServer"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "cache" {
  for_each  = local.caches
  type      = local.types.registryCache
  parent_id = azapi_resource.registry[var.config.registry.openshift].id
  name      = each.key
  body      = { properties = { sourceRepository = each.value.source, targetRepository = each.value.target } }
}

resource "azapi_resource" "front_door" {
  type      = local.types.frontDoor
  parent_id = azapi_resource.group.id
  name      = "${var.config.resourceGroups.global}-oidc"
  location  = "global"
  # Only this SKU reaches storage accounts through private links.
  body                   = { sku = { name = "Premium_AzureFrontDoor" }, properties = { originResponseTimeoutSeconds = 30 } }
  response_export_values = ["properties.frontDoorId"]
}

output "result" {
  value = {
    zone = {
      id          = azapi_resource.zone.id
      nameServers = azapi_resource.zone.output.properties.nameServers
    }
    registries = {
      for name, registry in azapi_resource.registry : name => { id = registry.id, loginServer = registry.output.properties.loginServer }
    }
    frontDoor = azapi_resource.front_door.id
  }
}
