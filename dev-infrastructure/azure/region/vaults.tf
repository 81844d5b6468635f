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
  # The principals of the services, by name of the identity.
  readers = { for service, identity in local.identities : identity => local.principals[service] }
}

# The provider of the secrets store authenticates as the service whose secrets it mounts. Each identity reads the secrets that its chart mounts, and
# none of other services. The part of a certificate with its key is a secret with the name of the certificate.
module "secrets_role" {
  for_each   = { for read in var.tables.secretReads : "${read.identity}/${read.secret}" => read }
  source     = "../modules/role"
  scope      = "${local.group}/providers/Microsoft.KeyVault/vaults/${each.value.vault}/secrets/${each.value.secret}"
  role       = local.roles.vaultSecretsUser
  principal  = local.readers[each.value.identity]
  purpose    = each.value.identity
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
