terraform {
  required_version = "~> 1.12.0"
  required_providers {
    azapi = {
      source  = "azure/azapi"
      version = "1.15.0"
    }
  }
}

provider "azapi" {
  tenant_id       = var.config.tenantId
  subscription_id = var.config.subscriptions.management
  environment     = local.cloud.provider
}

locals {
  types = jsondecode(file("${path.module}/../types.json"))
  cloud = jsondecode(file("${path.module}/../clouds.json"))[var.config.endpoints.azureCloud]
}
