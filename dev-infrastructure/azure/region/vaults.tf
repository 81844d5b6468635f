# The vaults of the region: secrets of the services, certificates of hosted clusters, and credentials of clusters' identities. etcd.tf has
# that of the keys of etcd.

module "vault" {
  for_each   = { for purpose, name in var.config.keyVaults : purpose => name if purpose != "etcd" }
  source     = "../modules/vault"
  name       = each.value
  group      = azapi_resource.group.id
  location   = local.location
  tenant     = var.config.tenantId
  allow_loss = var.allow_loss
}

locals {
  vaults = { for purpose, name in var.config.keyVaults : purpose => "${local.group}/providers/Microsoft.KeyVault/vaults/${name}" }
}

# The provider of the secrets store authenticates as the service whose secrets it mounts.
module "secrets_role" {
  for_each   = local.identities
  source     = "../modules/role"
  scope      = local.vaults.service
  role       = local.roles.vaultSecretsUser
  principal  = local.principals[each.key]
  purpose    = each.key
  depends_on = [module.vault]
}

module "certificates_role" {
  source     = "../modules/role"
  scope      = local.vaults.clusters
  role       = local.roles.certificatesOfficer
  principal  = local.principals["cluster-service"]
  purpose    = "cluster-service"
  depends_on = [module.vault]
}
