# The recording rules and alerts of the region. alerts.json is generated from the rule files of the repository; docs/operators/alerts.md lists
# the alerts.

locals {
  alert_groups = { for group in jsondecode(file("${path.module}/alerts.json")) : group.name => group }
}

resource "azapi_resource" "alerts" {
  for_each  = local.alert_groups
  type      = local.types.alertRules
  parent_id = azapi_resource.group.id
  name      = each.key
  location  = local.location
  body = {
    properties = {
      scopes   = [azapi_resource.monitor.id]
      interval = each.value.interval
      rules    = each.value.rules
    }
  }
}
