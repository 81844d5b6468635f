# The network of the service cluster reaches the data stores only through private endpoints.

locals {
  targets = merge(
    { cosmos = { id = local.region.cosmos.id, kind = "Sql", zone = "cosmos" } },
    { events = { id = local.region.events.id, kind = "topicspace", zone = "eventGrid" } },
    { documents = { id = local.region.documents.id, kind = "blob", zone = "blob" } },
    { for name, server in local.region.postgres : "postgres-${name}" => { id = server.id, kind = "postgresqlServer", zone = "postgres" } },
    { for purpose, vault in local.region.vaults : "vault-${purpose}" => { id = vault.id, kind = "vault", zone = "vault" } },
    { for purpose, account in local.region.audit : "audit-${purpose}" => { id = account.id, kind = "blob", zone = "blob" } },
  )
}

resource "azapi_resource" "private_zone" {
  for_each  = local.cloud.privateZones
  type      = local.types.privateZone
  parent_id = azapi_resource.group.id
  name      = each.value
  location  = "global"
}

resource "azapi_resource" "private_zone_link" {
  for_each  = local.cloud.privateZones
  type      = local.types.privateZoneLink
  parent_id = azapi_resource.private_zone[each.key].id
  name      = "network"
  location  = "global"
  body      = { properties = { virtualNetwork = { id = module.cluster.network }, registrationEnabled = false } }
}

module "endpoint" {
  for_each = local.targets
  source   = "../modules/private-endpoint"
  name     = "${var.config.serviceCluster.name}-${each.key}"
  group    = azapi_resource.group.id
  location = local.location
  subnet   = module.cluster.endpoints_subnet
  target   = each.value.id
  kind     = each.value.kind
  zone     = azapi_resource.private_zone[each.value.zone].id
}
