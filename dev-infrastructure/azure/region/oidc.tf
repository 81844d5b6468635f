# The OpenID documents of clusters' issuers: Cluster Service writes blobs, Front Door serves them to everyone under the name of the region.

locals {
  documents = "${local.group}/providers/Microsoft.Storage/storageAccounts/${var.config.oidc.storageAccount}"
  issuer    = regex("^https://([^/]+)", var.config.oidc.issuerUrl)[0]
}

resource "azapi_resource" "documents" {
  type      = local.types.storageAccount
  parent_id = azapi_resource.group.id
  name      = var.config.oidc.storageAccount
  location  = local.location
  body = {
    kind = "StorageV2"
    sku  = { name = local.zonal ? "Standard_ZRS" : "Standard_LRS" }
    properties = {
      accessTier               = "Hot"
      allowBlobPublicAccess    = true # the documents are public; the network of the account is not
      allowSharedKeyAccess     = false
      minimumTlsVersion        = "TLS1_2"
      publicNetworkAccess      = "Disabled"
      supportsHttpsTrafficOnly = true
    }
  }
  response_export_values = ["properties.primaryEndpoints.blob"]
  lifecycle { prevent_destroy = !var.allow_loss }
}

resource "azapi_resource" "documents_container" {
  type      = local.types.storageContainer
  parent_id = "${azapi_resource.documents.id}/blobServices/default"
  name      = var.config.oidc.container
  body      = { properties = { publicAccess = "Blob" } }
  lifecycle { prevent_destroy = !var.allow_loss }
}

module "documents_role" {
  source    = "../modules/role"
  scope     = azapi_resource.documents.id
  role      = local.roles.blobContributor
  principal = local.principals["cluster-service"]
  purpose   = "cluster-service"
}

resource "azapi_resource" "front_endpoint" {
  type                   = local.types.frontDoorEndpoint
  parent_id              = var.outer.global.frontDoor
  name                   = "oidc-${var.config.environment}-${var.config.regionShort}"
  location               = "global"
  body                   = { properties = { enabledState = "Enabled" } }
  response_export_values = ["properties.hostName"]
}

resource "azapi_resource" "front_origins" {
  type      = local.types.frontDoorOriginGroup
  parent_id = var.outer.global.frontDoor
  name      = "oidc-${var.config.regionShort}"
  body = {
    properties = {
      loadBalancingSettings = { sampleSize = 4, successfulSamplesRequired = 3, additionalLatencyInMilliseconds = 50 }
    }
  }
}

resource "azapi_resource" "front_origin" {
  type      = local.types.frontDoorOrigin
  parent_id = azapi_resource.front_origins.id
  name      = "documents"
  body = {
    properties = {
      hostName                    = "${var.config.oidc.storageAccount}.${var.config.endpoints.blobSuffix}"
      originHostHeader            = "${var.config.oidc.storageAccount}.${var.config.endpoints.blobSuffix}"
      httpsPort                   = 443
      enabledState                = "Enabled"
      enforceCertificateNameCheck = true
      # An administrator of the account approves the connection once.
      sharedPrivateLinkResource = {
        groupId             = "blob"
        privateLink         = { id = local.documents }
        privateLinkLocation = local.location
        requestMessage      = "Front Door serves the OpenID documents"
      }
    }
  }
  depends_on = [azapi_resource.documents]
}

resource "azapi_resource" "front_domain" {
  type                   = local.types.frontDoorDomain
  parent_id              = var.outer.global.frontDoor
  name                   = replace(local.issuer, ".", "-")
  body                   = { properties = { hostName = local.issuer, tlsSettings = { certificateType = "ManagedCertificate", minimumTlsVersion = "TLS12" } } }
  response_export_values = ["properties.validationProperties.validationToken"]
}

resource "azapi_resource" "front_route" {
  type      = local.types.frontDoorRoute
  parent_id = azapi_resource.front_endpoint.id
  name      = "documents"
  body = {
    properties = {
      customDomains       = [{ id = azapi_resource.front_domain.id }]
      originGroup         = { id = azapi_resource.front_origins.id }
      originPath          = "/${var.config.oidc.container}"
      patternsToMatch     = ["/*"]
      supportedProtocols  = ["Https"]
      httpsRedirect       = "Disabled"
      forwardingProtocol  = "HttpsOnly"
      linkToDefaultDomain = "Disabled"
      enabledState        = "Enabled"
    }
  }
  depends_on = [azapi_resource.front_origin]
}

resource "azapi_resource" "issuer_name" {
  type      = local.types.dnsCname
  parent_id = azapi_resource.zone.id
  name      = trimsuffix(local.issuer, ".${var.config.dns.zone}")
  body      = { properties = { TTL = 3600, CNAMERecord = { cname = azapi_resource.front_endpoint.output.properties.hostName } } }
}

# Front Door issues the certificate when it finds this token.
resource "azapi_resource" "issuer_validation" {
  type      = local.types.dnsTxt
  parent_id = azapi_resource.zone.id
  name      = "_dnsauth.${trimsuffix(local.issuer, ".${var.config.dns.zone}")}"
  body = {
    properties = { TTL = 3600, TXTRecords = [{ value = [azapi_resource.front_domain.output.properties.validationProperties.validationToken] }] }
  }
}
