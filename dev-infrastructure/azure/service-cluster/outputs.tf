output "result" {
  value = {
    cluster         = { id = module.cluster.id, fqdn = module.cluster.fqdn, issuer = module.cluster.issuer }
    addresses       = { for purpose, address in azapi_resource.address : purpose => { name = address.name, address = address.output.properties.ipAddress } }
    egressAddresses = local.egress_addresses
  }
}
