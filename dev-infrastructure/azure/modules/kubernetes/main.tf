# An AKS cluster with its network: the service cluster or a management cluster. Nodes and pods have addresses of the network. The API server
# accepts only identities of Entra ID.

variable "name" { type = string }
variable "group" {
  description = "The ID of the resource group."
  type        = string
}
variable "location" { type = string }
variable "tenant" { type = string }
variable "zones" { type = list(string) }
variable "settings" {
  description = "The configuration of the cluster: kubernetesVersion, systemPool, userPool, network, and etcdKey if a key of a vault encrypts its etcd."
  type        = any
}
variable "mesh_revision" {
  description = "The revision of Istio, or empty for a cluster without Istio."
  type        = string
  default     = ""
}
variable "rules" {
  description = "The security rules of the nodes, by name."
  type        = any
}
variable "administrators" {
  description = "The groups of Entra ID that administer the cluster."
  type        = list(string)
}
variable "registries" {
  description = "The IDs of the registries from which the kubelets pull, by name."
  type        = map(string)
}
variable "egress" {
  description = "The IDs of the prefixes of public addresses for connections to the internet, by name. Without any, AKS reserves an address."
  type        = map(string)
  default     = {}
}
variable "addresses" {
  description = "The IDs of the public addresses of Services of the cluster, by name."
  type        = map(string)
  default     = {}
}
variable "etcd_keys" {
  description = "The keys for etcd in the vault of the region: id, and uri with the version, by name."
  type        = any
  default     = {}
  validation {
    condition     = alltrue([for name in local.etcd_keys : contains(keys(var.etcd_keys), name)])
    error_message = "The scope region has no key ${join(" or ", local.etcd_keys)} for etcd. Apply the scope region first."
  }
}
variable "audit" {
  description = "The storage account that gets the audit logs of the API server (account), and whether they include reads (reads)."
  type        = object({ account = string, reads = bool })
}
variable "workspace" {
  description = "The ID of the Azure Monitor workspace that gets the metrics of the cluster. It is in the location of the cluster."
  type        = string
}
variable "allow_loss" { type = bool }

locals {
  network = "${var.group}/providers/Microsoft.Network/virtualNetworks/${var.name}"
  roles = {
    acrPull                 = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
    networkContributor      = "4d97b98b-1d4f-4787-a291-c67834d212e7"
    managedIdentityOperator = "f1a07417-d97a-45cb-824c-7a7467783830"
    vaultCryptoUser         = "12338af0-0e69-4776-bea7-57ae8d297424"
  }
  # The names of the key in use and of the one before it.
  etcd_number = try(var.settings.etcdKey, 0)
  etcd_in_use = local.etcd_number > 0 && try(var.settings.etcdKeyInUse, true)
  etcd_keys   = [for n in range(max(1, local.etcd_number - 1), local.etcd_number + 1) : "${var.name}-${n}"]
  pools = {
    system = merge(var.settings.systemPool, { mode = "System", taints = ["CriticalAddonsOnly=true:NoSchedule"] })
    user   = merge(var.settings.userPool, { mode = "User", taints = [] })
  }
}

resource "azapi_resource" "security" {
  type      = local.types.securityGroup
  parent_id = var.group
  name      = var.name
  location  = var.location
  body = {
    properties = {
      securityRules = [
        for name, rule in var.rules : {
          name = name
          properties = merge({
            access          = "Allow"
            direction       = "Inbound"
            protocol        = "Tcp"
            priority        = rule.priority
            sourcePortRange = "*"
            # One service tag is a prefix; several ranges are a list.
            destinationAddressPrefix = rule.destination
            destinationPortRange     = rule.port
            }, { for key, value in { sourceAddressPrefix = rule.sources[0] } : key => value if length(rule.sources) == 1 },
          { for key, value in { sourceAddressPrefixes = rule.sources } : key => value if length(rule.sources) > 1 })
        }
      ]
    }
  }
}

resource "azapi_resource" "network" {
  type      = local.types.network
  parent_id = var.group
  name      = var.name
  location  = var.location
  body = {
    properties = {
      addressSpace = { addressPrefixes = [var.settings.network.vnet] }
      subnets = concat([
        {
          name       = "nodes"
          properties = { addressPrefix = var.settings.network.nodes, networkSecurityGroup = { id = azapi_resource.security.id } }
        },
        {
          name = "pods"
          properties = {
            addressPrefix        = var.settings.network.pods
            networkSecurityGroup = { id = azapi_resource.security.id }
            delegations          = [{ name = "aks", properties = { serviceName = "Microsoft.ContainerService/managedClusters" } }]
          }
        },
        {
          name       = "privateEndpoints"
          properties = { addressPrefix = var.settings.network.privateEndpoints, privateEndpointNetworkPolicies = "Disabled" }
        },
        # Azure refuses a private link service in a subnet with network policies for it.
        ], [for prefix in [try(var.settings.network.privateLink, null)] : {
          name       = "privateLink"
          properties = { addressPrefix = prefix, privateLinkServiceNetworkPolicies = "Disabled" }
      } if prefix != null])
    }
  }
}

# The identities of the control plane and of the kubelets.
resource "azapi_resource" "identity" {
  for_each               = toset(["control-plane", "kubelet"])
  type                   = local.types.identity
  parent_id              = var.group
  name                   = "${var.name}-${each.key}"
  location               = var.location
  body                   = {} # without a body, the provider returns its output as text
  response_export_values = ["properties.principalId", "properties.clientId"]
}

module "network_role" {
  source    = "../role"
  scope     = azapi_resource.network.id
  role      = local.roles.networkContributor
  principal = azapi_resource.identity["control-plane"].output.properties.principalId
  purpose   = "control-plane"
}

module "egress_role" {
  for_each  = var.egress
  source    = "../role"
  scope     = each.value
  role      = local.roles.networkContributor
  principal = azapi_resource.identity["control-plane"].output.properties.principalId
  purpose   = "control-plane"
}

# The control plane attaches the addresses to its load balancer.
module "address_role" {
  for_each  = var.addresses
  source    = "../role"
  scope     = each.value
  role      = local.roles.networkContributor
  principal = azapi_resource.identity["control-plane"].output.properties.principalId
  purpose   = "control-plane"
}

module "kubelet_role" {
  source    = "../role"
  scope     = azapi_resource.identity["kubelet"].id
  role      = local.roles.managedIdentityOperator
  principal = azapi_resource.identity["control-plane"].output.properties.principalId
  purpose   = "control-plane"
}

# The API server encrypts with the key in use. It decrypts with both until all Secrets were written again, also after the key is not in use
# any more.
module "etcd_role" {
  for_each  = toset(local.etcd_keys)
  source    = "../role"
  scope     = var.etcd_keys[each.key].id
  role      = local.roles.vaultCryptoUser
  principal = azapi_resource.identity["control-plane"].output.properties.principalId
  purpose   = "${var.name}-control-plane"
}

module "pull_role" {
  for_each  = var.registries
  source    = "../role"
  scope     = each.value
  role      = local.roles.acrPull
  principal = azapi_resource.identity["kubelet"].output.properties.principalId
  purpose   = "${var.name}-kubelet"
}

resource "azapi_resource" "cluster" {
  type      = local.types.aksCluster
  parent_id = var.group
  name      = var.name
  location  = var.location
  identity {
    type         = "UserAssigned"
    identity_ids = [azapi_resource.identity["control-plane"].id]
  }
  body = {
    sku = { name = "Base", tier = "Standard" }
    properties = {
      kubernetesVersion    = var.settings.kubernetesVersion
      dnsPrefix            = var.name
      enableRBAC           = true
      disableLocalAccounts = true
      aadProfile           = { managed = true, enableAzureRBAC = true, tenantID = var.tenant, adminGroupObjectIDs = var.administrators }
      agentPoolProfiles = [
        for name in ["system", "user"] : {
          name                = name
          mode                = local.pools[name].mode
          vmSize              = local.pools[name].vmSize
          count               = local.pools[name].minCount
          minCount            = local.pools[name].minCount
          maxCount            = local.pools[name].maxCount
          enableAutoScaling   = true
          availabilityZones   = var.zones
          osType              = "Linux"
          osSKU               = "AzureLinux"
          type                = "VirtualMachineScaleSets"
          enableNodePublicIP  = false
          maxPods             = 225
          vnetSubnetID        = "${local.network}/subnets/nodes"
          podSubnetID         = "${local.network}/subnets/pods"
          nodeTaints          = local.pools[name].taints
          upgradeSettings     = { maxSurge = "10%", drainTimeoutInMinutes = 60 }
          kubeletDiskType     = "OS"
          orchestratorVersion = var.settings.kubernetesVersion
        }
      ]
      networkProfile = merge({
        networkPlugin    = "azure"
        networkPolicy    = "cilium"
        networkDataplane = "cilium"
        serviceCidr      = var.settings.network.services
        dnsServiceIP     = cidrhost(var.settings.network.services, 10)
        loadBalancerSku  = "standard"
        outboundType     = "loadBalancer"
        }, {
        for key, value in { loadBalancerProfile = { outboundIPPrefixes = { publicIPPrefixes = [for id in values(var.egress) : { id = id }] } } } : key => value if length(var.egress) > 0
      })
      identityProfile = {
        kubeletidentity = {
          resourceId = azapi_resource.identity["kubelet"].id
          clientId   = azapi_resource.identity["kubelet"].output.properties.clientId
          objectId   = azapi_resource.identity["kubelet"].output.properties.principalId
        }
      }
      oidcIssuerProfile = { enabled = true }
      securityProfile = {
        workloadIdentity = { enabled = true }
        imageCleaner     = { enabled = true, intervalHours = 48 }
        # Private access needs API servers in our network, which the api-version does not have.
        azureKeyVaultKms = merge({ enabled = local.etcd_in_use }, {
          for property, value in { keyId = try(var.etcd_keys["${var.name}-${local.etcd_number}"].uri, null), keyVaultNetworkAccess = "Public" } : property => value if local.etcd_in_use
        })
      }
      serviceMeshProfile  = merge({ mode = var.mesh_revision == "" ? "Disabled" : "Istio" }, { for key, value in { istio = { revisions = [var.mesh_revision] } } : key => value if var.mesh_revision != "" })
      addonProfiles       = { azureKeyvaultSecretsProvider = { enabled = true, config = { enableSecretRotation = "true" } } }
      azureMonitorProfile = { metrics = { enabled = true } }
      storageProfile      = { diskCSIDriver = { enabled = true }, fileCSIDriver = { enabled = false }, snapshotController = { enabled = true } }
      # A rollout decides when a cluster is upgraded.
      autoUpgradeProfile = { upgradeChannel = "none", nodeOSUpgradeChannel = "NodeImage" }
    }
  }
  response_export_values = ["properties.fqdn", "properties.oidcIssuerProfile.issuerURL", "properties.addonProfiles.azureKeyvaultSecretsProvider.identity"]
  # The control plane needs its roles before it creates nodes.
  depends_on = [module.network_role, module.egress_role, module.address_role, module.kubelet_role, module.etcd_role]
  lifecycle { prevent_destroy = !var.allow_loss }
}

# Istio's CNI plugin redirects the connections of pods to their sidecars. Without it, AKS injects a container with the capability NET_ADMIN,
# which the namespaces of the programs refuse. The api-version of the cluster does not have the property.
resource "azapi_update_resource" "redirection" {
  count       = var.mesh_revision == "" ? 0 : 1
  type        = local.types.aksMesh
  resource_id = azapi_resource.cluster.id
  body        = { properties = { serviceMeshProfile = { istio = { components = { proxyRedirectionMechanism = "CNIChaining" } } } } }
  # A change of the cluster sends a body without the property, so the property is sent again.
  lifecycle { replace_triggered_by = [azapi_resource.cluster] }
}

# The metrics add-on of AKS collects what PodMonitors name. The rule sends it to the workspace. Without the association, the add-on collects nothing.
resource "azapi_resource" "collection_endpoint" {
  type      = local.types.dataCollectionEndpoint
  parent_id = var.group
  name      = "${var.name}-metrics"
  location  = var.location
  body      = { kind = "Linux", properties = { networkAcls = { publicNetworkAccess = "Enabled" } } }
}

resource "azapi_resource" "collection_rule" {
  type      = local.types.dataCollectionRule
  parent_id = var.group
  name      = "${var.name}-metrics"
  location  = var.location
  body = {
    kind = "Linux"
    properties = {
      dataCollectionEndpointId = azapi_resource.collection_endpoint.id
      dataSources              = { prometheusForwarder = [{ name = "prometheus", streams = ["Microsoft-PrometheusMetrics"], labelIncludeFilter = {} }] }
      destinations             = { monitoringAccounts = [{ name = "workspace", accountResourceId = var.workspace }] }
      dataFlows                = [{ streams = ["Microsoft-PrometheusMetrics"], destinations = ["workspace"] }]
    }
  }
}

resource "azapi_resource" "collection" {
  type      = local.types.dataCollectionAssociation
  parent_id = azapi_resource.cluster.id
  name      = "metrics"
  body      = { properties = { dataCollectionRuleId = azapi_resource.collection_rule.id } }
}

# The audit log of the API server, and what Entra ID and Azure RBAC decided about its callers. kube-audit has all requests, kube-audit-admin
# those that are neither get nor list.
resource "azapi_resource" "audit" {
  type      = local.types.diagnosticSetting
  parent_id = azapi_resource.cluster.id
  name      = "audit"
  body = {
    properties = {
      storageAccountId = var.audit.account
      # Azure Monitor returns the policy, although it has no effect any more.
      logs = [for category in ["guard", var.audit.reads ? "kube-audit" : "kube-audit-admin"] : { category = category, enabled = true, retentionPolicy = { enabled = false, days = 0 } }]
    }
  }
}

output "id" { value = azapi_resource.cluster.id }
output "issuer" { value = azapi_resource.cluster.output.properties.oidcIssuerProfile.issuerURL }
output "fqdn" { value = azapi_resource.cluster.output.properties.fqdn }
# The identity that AKS creates for the secrets store driver: clientId and objectId.
output "secrets_provider" { value = azapi_resource.cluster.output.properties.addonProfiles.azureKeyvaultSecretsProvider.identity }
output "network" { value = azapi_resource.network.id }
output "endpoints_subnet" {
  value      = "${local.network}/subnets/privateEndpoints"
  depends_on = [azapi_resource.network]
}
output "kubelet" { value = azapi_resource.identity["kubelet"].output.properties.principalId }
