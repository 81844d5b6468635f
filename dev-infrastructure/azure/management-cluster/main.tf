# One management cluster (a stamp): hosted control planes run in it. Its configuration is the rendered document of the stamp.

locals {
  location     = var.config.region
  stamp        = var.config.managementCluster
  subscription = "/subscriptions/${var.config.subscriptions.management}"
  group        = "${local.subscription}/resourceGroups/${local.stamp.resourceGroup}"
  vault        = "${local.group}/providers/Microsoft.KeyVault/vaults/${local.stamp.keyVault}"
  secretsUser  = "4633458b-17de-408a-b874-0445c86b69e6"
}

resource "azapi_resource" "group" {
  type      = local.types.resourceGroup
  parent_id = local.subscription
  name      = local.stamp.resourceGroup
  location  = local.location
  lifecycle { prevent_destroy = !var.allow_loss }
}

module "cluster" {
  source         = "../modules/kubernetes"
  name           = local.stamp.name
  group          = azapi_resource.group.id
  location       = local.location
  tenant         = var.config.tenantId
  zones          = local.stamp.shard.zones
  settings       = local.stamp
  administrators = var.config.admin.groups["break-glass"]
  registries     = { for name, registry in var.outer.global.registries : name => registry.id }
  workspace      = var.outer.region.metrics.id
  etcd_keys      = try(var.outer.region.etcdKeys, {})
  audit          = { account = var.outer.region.clusterAudit.id, reads = var.config.audit.clusterReads }
  allow_loss     = var.allow_loss
  # Clients reach hosted API servers; each of them authenticates its clients.
  rules = { api-servers = { priority = 100, sources = ["Internet"], destination = "*", port = "443" } }
}

module "vault" {
  source     = "../modules/vault"
  name       = local.stamp.keyVault
  group      = azapi_resource.group.id
  location   = local.location
  tenant     = var.config.tenantId
  allow_loss = var.allow_loss
}

resource "azapi_resource" "agent" {
  type                   = local.types.identity
  parent_id              = azapi_resource.group.id
  name                   = local.stamp.agent.managedIdentity
  location               = local.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

# The Maestro agent may use its identity, and the agent of tunnels that which the region has for it.
resource "azapi_resource" "federated" {
  for_each  = { "maestro-agent" = azapi_resource.agent.id, "gateway-tunnel" = var.outer.region.tunnels[local.stamp.name].id }
  type      = local.types.federatedCredential
  parent_id = each.value
  name      = local.stamp.name
  body = {
    properties = {
      issuer    = module.cluster.issuer
      subject   = "system:serviceaccount:${var.tables.serviceAccounts[each.key].namespace}:${var.tables.serviceAccounts[each.key].name}"
      audiences = ["api://AzureADTokenExchange"]
    }
  }
}

# Earlier releases had no tunnels.
moved {
  from = azapi_resource.federated
  to   = azapi_resource.federated["maestro-agent"]
}

locals {
  # The principals of the agents, by name of the identity.
  readers = {
    (local.stamp.agent.managedIdentity)  = azapi_resource.agent.output.properties.principalId
    (local.stamp.tunnel.managedIdentity) = var.outer.region.tunnels[local.stamp.name].principalId
  }
}

# The Maestro agent and the agent of tunnels read the secrets that their charts mount, and not those of each other.
module "secrets_role" {
  for_each   = { for read in var.tables.secretReads : "${read.identity}/${read.secret}" => read }
  source     = "../modules/role"
  scope      = "${local.group}/providers/Microsoft.KeyVault/vaults/${each.value.vault}/secrets/${each.value.secret}"
  role       = local.secretsUser
  principal  = local.readers[each.value.identity]
  purpose    = each.value.identity
  depends_on = [module.vault]
}

# Control planes read the credentials of clusters' identities from the vault of the region, as the identity of the secrets store driver.
module "identities_role" {
  source    = "../modules/role"
  scope     = var.outer.region.vaults.identities.id
  role      = local.secretsUser
  principal = module.cluster.secrets_provider.objectId
  purpose   = "${local.stamp.name}-control-planes"
}

# The agent at the broker. Event Grid gives it the topics of the consumer in its attributes. Its name there is that of its certificate, which an
# authority issues only for names in the zone of the region; a consumer has the name of the cluster.
resource "azapi_resource" "event_client" {
  type      = local.types.eventClient
  parent_id = var.outer.region.events.id
  name      = replace(local.stamp.agent.mqttCertificate.dnsName, ".", "-")
  body = {
    properties = {
      authenticationName              = local.stamp.agent.mqttCertificate.dnsName
      state                           = "Enabled"
      clientCertificateAuthentication = { validationScheme = "DnsMatchesAuthenticationName" }
      attributes                      = { workload = "maestro-agent", consumer = local.stamp.name }
    }
  }
}

locals {
  targets = {
    events = { id = var.outer.region.events.id, kind = "topicspace", zone = "eventGrid" }
    vault  = { id = local.vault, kind = "vault", zone = "vault" }
  }
}

resource "azapi_resource" "private_zone" {
  for_each  = local.targets
  type      = local.types.privateZone
  parent_id = azapi_resource.group.id
  name      = local.cloud.privateZones[each.value.zone]
  location  = "global"
}

resource "azapi_resource" "private_zone_link" {
  for_each  = local.targets
  type      = local.types.privateZoneLink
  parent_id = azapi_resource.private_zone[each.key].id
  name      = "network"
  location  = "global"
  body      = { properties = { virtualNetwork = { id = module.cluster.network }, registrationEnabled = false } }
}

module "endpoint" {
  for_each   = local.targets
  source     = "../modules/private-endpoint"
  name       = "${local.stamp.name}-${each.key}"
  group      = azapi_resource.group.id
  location   = local.location
  subnet     = module.cluster.endpoints_subnet
  target     = each.value.id
  kind       = each.value.kind
  zone       = azapi_resource.private_zone[each.key].id
  depends_on = [module.vault]
}

module "identities_endpoint" {
  source   = "../modules/private-endpoint"
  name     = "${local.stamp.name}-identities"
  group    = azapi_resource.group.id
  location = local.location
  subnet   = module.cluster.endpoints_subnet
  target   = var.outer.region.vaults.identities.id
  kind     = local.targets.vault.kind
  zone     = azapi_resource.private_zone["vault"].id
}

output "result" {
  value = {
    cluster = { id = module.cluster.id, fqdn = module.cluster.fqdn, issuer = module.cluster.issuer }
    vault   = { id = local.vault, uri = module.vault.uri }
    agent   = { id = azapi_resource.agent.id, name = azapi_resource.agent.name, clientId = azapi_resource.agent.output.properties.clientId }
    # AKS gives the identity a name that follows from that of the cluster.
    controlPlanes = { name = local.stamp.hypershiftOperator.managedIdentity, clientId = module.cluster.secrets_provider.clientId }
  }
}
