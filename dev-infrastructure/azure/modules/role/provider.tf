terraform {
  required_providers {
    azapi = { source = "azure/azapi" }
  }
}

locals {
  types = jsondecode(file("${path.module}/../../types.json"))
}
