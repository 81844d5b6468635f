output "result" {
  value = {
    identities = {
      for service, identity in azapi_resource.identity : service => {
        id = identity.id, name = identity.name, clientId = identity.output.properties.clientId, principalId = identity.output.properties.principalId
      }
    }
    migrations = {
      for server, identity in azapi_resource.postgres_owner : server => {
        id = identity.id, name = identity.name, clientId = identity.output.properties.clientId, principalId = identity.output.properties.principalId
      }
    }
    provisions = {
      for server, identity in azapi_resource.postgres_provision : server => {
        id = identity.id, name = identity.name, clientId = identity.output.properties.clientId, principalId = identity.output.properties.principalId
      }
    }
    # By the names of management clusters.
    tunnels = {
      for stamp, identity in azapi_resource.tunnel_identity : stamp => {
        id = identity.id, name = identity.name, clientId = identity.output.properties.clientId, principalId = identity.output.properties.principalId
      }
    }
    cosmos   = { id = azapi_resource.cosmos.id, endpoint = azapi_resource.cosmos.output.properties.documentEndpoint, database = azapi_resource.cosmos_database.name }
    postgres = { for name, server in azapi_resource.postgres : name => { id = server.id, host = server.output.properties.fullyQualifiedDomainName, database = local.postgres[name].database } }
    events   = { id = azapi_resource.events.id, mqttAddress = "${azapi_resource.events.output.properties.topicSpacesConfiguration.hostname}:8883" }
    vaults   = { for purpose, vault in module.vault : purpose => { id = local.vaults[purpose], uri = vault.uri } }
    etcdKeys = { for name, key in azapi_resource.etcd_key : name => { id = key.id, uri = key.output.properties.keyUriWithVersion } }
    zone     = { id = azapi_resource.zone.id, nameServers = azapi_resource.zone.output.properties.nameServers }
    clustersZone = {
      id          = azapi_resource.clusters_zone.id
      nameServers = azapi_resource.clusters_zone.output.properties.nameServers
    }
    documents = { id = azapi_resource.documents.id, url = azapi_resource.documents.output.properties.primaryEndpoints.blob }
    audit     = { for purpose, account in azapi_resource.audit : purpose => { id = account.id, url = account.output.properties.primaryEndpoints.blob } }
    clusterAudit = { id = azapi_resource.cluster_audit.id, url = azapi_resource.cluster_audit.output.properties.primaryEndpoints.blob }
    metrics      = { id = azapi_resource.monitor.id, query = azapi_resource.monitor.output.properties.metrics.prometheusQueryEndpoint }
  }
}
