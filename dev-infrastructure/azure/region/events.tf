# The MQTT broker. Topic spaces, client groups and permissions are those of the authorization table (internal/mesh).

resource "azapi_resource" "events" {
  type      = local.types.eventNamespace
  parent_id = azapi_resource.group.id
  name      = var.config.eventGrid.namespace
  location  = local.location
  body = {
    sku = { name = "Standard", capacity = var.config.eventGrid.throughputUnits }
    properties = {
      isZoneRedundant     = local.zonal
      publicNetworkAccess = "Disabled"
      topicSpacesConfiguration = {
        state                                      = "Enabled"
        maximumSessionExpiryInHours                = 1
        maximumClientSessionsPerAuthenticationName = var.config.eventGrid.sessionsPerClient
        clientAuthentication                       = { alternativeAuthenticationNameSources = ["ClientCertificateDns"] }
      }
    }
  }
  response_export_values = ["properties.topicSpacesConfiguration.hostname"]
}

resource "azapi_resource" "event_authority" {
  for_each  = var.mqtt_authorities
  type      = local.types.eventAuthority
  parent_id = azapi_resource.events.id
  name      = each.key
  body      = { properties = { encodedCertificate = each.value } }
}

resource "azapi_resource" "event_topic_space" {
  for_each  = var.tables.topicSpaces
  type      = local.types.eventTopicSpace
  parent_id = azapi_resource.events.id
  name      = each.key
  body      = { properties = { topicTemplates = each.value } }
}

resource "azapi_resource" "event_client_group" {
  for_each  = toset([for binding in var.tables.topicPermissions : binding.client])
  type      = local.types.eventClientGroup
  parent_id = azapi_resource.events.id
  name      = each.key
  body      = { properties = { query = "attributes.workload IN ['${each.key}']" } }
}

resource "azapi_resource" "event_permission" {
  for_each  = var.tables.topicPermissions
  type      = local.types.eventPermission
  parent_id = azapi_resource.events.id
  name      = each.key
  body = {
    properties = {
      clientGroupName = azapi_resource.event_client_group[each.value.client].name
      topicSpaceName  = azapi_resource.event_topic_space[each.value.topicSpace].name
      permission      = each.value.permission
    }
  }
}

resource "azapi_resource" "event_server" {
  type      = local.types.eventClient
  parent_id = azapi_resource.events.id
  name      = "maestro-server"
  body = {
    properties = {
      authenticationName              = var.config.maestro.server.mqttCertificate.dnsName
      state                           = "Enabled"
      clientCertificateAuthentication = { validationScheme = "DnsMatchesAuthenticationName" }
      attributes                      = { workload = "maestro-server" }
    }
  }
}
