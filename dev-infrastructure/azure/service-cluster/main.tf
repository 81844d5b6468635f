# The service cluster: the services of a region run in it. It can be deleted and created again; nothing that must survive is here.

locals {
  location     = var.config.region
  subscription = "/subscriptions/${var.config.subscriptions.region}"
  region       = var.outer.region
}

resource "azapi_resource" "group" {
  type      = local.types.resourceGroup
  parent_id = local.subscription
  name      = var.config.resourceGroups.serviceCluster
  location  = local.location
  lifecycle { prevent_destroy = !var.allow_loss }
}

# The addresses of the ingress gateways: one for ARM, one for engineers, one for management clusters. The chart of the gateways knows them by their names.
resource "azapi_resource" "address" {
  for_each  = toset(["arm", "admin", "tunnels"])
  type      = local.types.publicAddress
  parent_id = azapi_resource.group.id
  name      = "${var.config.serviceCluster.name}-${each.key}"
  location  = local.location
  body = {
    sku        = { name = "Standard", tier = "Regional" }
    zones      = var.config.availabilityZones
    properties = { publicIPAllocationMethod = "Static", publicIPAddressVersion = "IPv4" }
  }
  response_export_values = ["properties.ipAddress"]
}

# The addresses from which servers of the internet see the connections of the cluster. Customers and monitor depend on them, so they are
# reserved, and the load balancer uses no others.
resource "azapi_resource" "egress" {
  type      = local.types.publicPrefix
  parent_id = azapi_resource.group.id
  name      = "${var.config.serviceCluster.name}-egress"
  location  = local.location
  body = {
    sku        = { name = "Standard", tier = "Regional" }
    zones      = var.config.availabilityZones
    properties = { prefixLength = 31, publicIPAddressVersion = "IPv4" }
  }
  response_export_values = ["properties.ipPrefix"]
}

locals {
  egress = azapi_resource.egress.output.properties.ipPrefix
  # The addresses of the prefix: two of a /31.
  egress_addresses = [for n in range(pow(2, 32 - tonumber(split("/", local.egress)[1]))) : cidrhost(local.egress, n)]
}

module "cluster" {
  source         = "../modules/kubernetes"
  name           = var.config.serviceCluster.name
  group          = azapi_resource.group.id
  location       = local.location
  tenant         = var.config.tenantId
  zones          = var.config.availabilityZones
  settings       = var.config.serviceCluster
  mesh_revision  = var.config.serviceCluster.identity == "mesh" ? var.config.serviceCluster.meshRevision : ""
  administrators = var.config.admin.groups["break-glass"]
  egress         = { services = azapi_resource.egress.id }
  addresses      = { for purpose, address in azapi_resource.address : purpose => address.id }
  workspace      = local.region.metrics.id
  registries     = { services = var.outer.global.registries[var.config.registry.services].id }
  etcd_keys      = try(local.region.etcdKeys, {})
  audit          = { account = local.region.clusterAudit.id, reads = var.config.audit.clusterReads }
  allow_loss     = var.allow_loss
  # Only Resource Manager calls the frontend. Engineers and management clusters connect from the sources of the configuration; without any,
  # nobody does.
  rules = merge(
    { arm = { priority = 100, sources = ["AzureResourceManager"], destination = azapi_resource.address["arm"].output.properties.ipAddress, port = "443" } },
    length(var.config.ingress.admin.sources) == 0 ? {} : {
      admin = { priority = 110, sources = var.config.ingress.admin.sources, destination = azapi_resource.address["admin"].output.properties.ipAddress, port = "443" }
    },
    length(var.config.ingress.tunnels.sources) == 0 ? {} : {
      tunnels = { priority = 120, sources = var.config.ingress.tunnels.sources, destination = azapi_resource.address["tunnels"].output.properties.ipAddress, port = "443" }
    },
  )
}

# The session gateway and the portal have names of their own at the gateway of admin.
resource "azapi_resource" "name" {
  for_each  = { for purpose in ["arm", "admin", "access", "portal", "tunnels"] : purpose => var.config.ingress[purpose].host if can(var.config.ingress[purpose].host) }
  type      = local.types.dnsA
  parent_id = local.region.zone.id
  name      = trimsuffix(each.value, ".${var.config.dns.zone}")
  body      = { properties = { TTL = 300, ARecords = [{ ipv4Address = azapi_resource.address[contains(["arm", "tunnels"], each.key) ? each.key : "admin"].output.properties.ipAddress }] } }
}

# The service accounts of the services, and those that provision and migrate the databases, may use their identities.
resource "azapi_resource" "federated" {
  for_each = merge(
    { for service, identity in local.region.identities : service => { identity = identity.id, account = var.tables.serviceAccounts[service] } },
    { for server, identity in local.region.migrations : "${server}-migration" => { identity = identity.id, account = var.tables.migrationAccounts[server] } },
    { for server, identity in local.region.provisions : "${server}-provision" => { identity = identity.id, account = var.tables.provisionAccounts[server] } },
  )
  type      = local.types.federatedCredential
  parent_id = each.value.identity
  name      = var.config.serviceCluster.name
  body = {
    properties = {
      issuer    = module.cluster.issuer
      subject   = "system:serviceaccount:${each.value.account.namespace}:${each.value.account.name}"
      audiences = ["api://AzureADTokenExchange"]
    }
  }
}
