# Assigns a role. The name of the assignment is known before the principal exists, so that the same assignment always has it.

variable "scope" { type = string }
variable "role" {
  description = "The ID of the role definition, a UUID."
  type        = string
}
variable "principal" { type = string }
variable "purpose" {
  description = "The name of the principal. With the scope and the role, it identifies the assignment."
  type        = string
}
variable "condition" {
  description = "The condition of the assignment (version 2.0). Without it, the role permits its actions on everything in the scope."
  type        = string
  default     = null
}

resource "azapi_resource" "this" {
  type      = local.types.roleAssignment
  parent_id = var.scope
  name      = uuidv5("url", lower("${var.scope}/${var.role}/${var.purpose}"))
  body = {
    properties = merge({
      principalId      = var.principal
      principalType    = "ServicePrincipal"
      roleDefinitionId = "/subscriptions/${split("/", var.scope)[2]}/providers/Microsoft.Authorization/roleDefinitions/${var.role}"
    }, { for name, value in { condition = var.condition, conditionVersion = "2.0" } : name => value if var.condition != null })
  }
}
