# The keys that encrypt the Secrets in the etcd of the AKS clusters, in a vault of their own. They survive the loss of a cluster. The API server
# of AKS decrypts with the key in use and with the one before it, so that both exist until the Secrets were written again.

locals {
  etcd_vault = try(var.config.keyVaults.etcd, null)
  # The numbers of the keys in use, by cluster.
  etcd_numbers = {
    for cluster in concat([var.config.serviceCluster], try(var.config.managementClusters, [])) : cluster.name => cluster.etcdKey if can(cluster.etcdKey)
  }
  etcd_keys = toset(flatten([for cluster, number in local.etcd_numbers : [for n in range(max(1, number - 1), number + 1) : "${cluster}-${n}"]]))
}

# AKS calls the vault from addresses that nobody knows. Each call needs a token of an identity with a role for the key.
module "etcd_vault" {
  for_each   = toset(local.etcd_vault == null ? [] : [local.etcd_vault])
  source     = "../modules/vault"
  name       = each.key
  group      = azapi_resource.group.id
  location   = local.location
  tenant     = var.config.tenantId
  public     = true
  allow_loss = var.allow_loss
}

# Resource Manager creates the first version of a key. It neither creates a second one nor deletes a key, so that a key that is not used
# any more stays in the vault.
resource "azapi_resource" "etcd_key" {
  for_each  = local.etcd_keys
  type      = local.types.vaultKey
  parent_id = "${local.group}/providers/Microsoft.KeyVault/vaults/${local.etcd_vault}"
  name      = each.key
  body = {
    properties = { kty = "RSA", keySize = 3072, keyOps = ["encrypt", "decrypt"], attributes = { enabled = true, exportable = false } }
  }
  response_export_values = ["properties.keyUriWithVersion"]
  depends_on             = [module.etcd_vault]
  lifecycle { destroy = false }
}
