# The recording rules and alerts of the region. alerts.json is generated from the rule files of the repository; docs/operators/alerts.md lists
# the alerts.

locals {
  alert_groups = { for group in jsondecode(file("${path.module}/alerts.json")) : group.name => group }

  # The receivers of alerts, by the severity in the labels of the alerts. The alert Watchdog always fires, so Azure Monitor notifies nobody of it.
  receivers = {
    for severity, receivers in { page = var.config.telemetry.alertReceivers.pages, ticket = var.config.telemetry.alertReceivers.tickets } :
    severity => receivers if length(receivers.emails) + length(receivers.webhooks) > 0
  }
  # A plan knows the IDs, so that it validates the rules.
  action_groups = { for severity in keys(local.receivers) : severity => "${local.group}/providers/Microsoft.Insights/actionGroups/${var.config.telemetry.monitorWorkspace}-${severity}" }
}

# Webhooks get tokens of Entra ID. Their URLs contain no secrets, because they are in the state.
resource "azapi_resource" "action_group" {
  for_each  = local.receivers
  type      = local.types.actionGroup
  parent_id = azapi_resource.group.id
  name      = "${var.config.telemetry.monitorWorkspace}-${each.key}"
  location  = "global"
  body = {
    properties = {
      enabled        = true
      groupShortName = each.key
      emailReceivers = [for address in each.value.emails : { name = address, emailAddress = address, useCommonAlertSchema = true }]
      webhookReceivers = [
        for webhook in each.value.webhooks : {
          name                 = webhook.name
          serviceUri           = webhook.endpoint
          useCommonAlertSchema = true
          useAadAuth           = true
          objectId             = webhook.objectId
          identifierUri        = webhook.identifierUri
          tenantId             = var.config.tenantId
        }
      ]
    }
  }
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
      rules = [
        for rule in each.value.rules :
        merge(rule, { for severity, id in local.action_groups : "actions" => [{ actionGroupId = id }] if try(rule.labels.severity, "") == severity })
      ]
    }
  }
  depends_on = [azapi_resource.action_group]
}
