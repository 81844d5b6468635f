package workload

import (
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// GatewayNamespace has the ingress gateways. That of ARM takes the place of the ARM front door of a local region.
const GatewayNamespace = "ingress"

// The service accounts of the gateways: one sends the requests of ARM to the frontend, one those of engineers to admin and to the session
// gateway, and one those of management clusters to the session gateway.
const (
	ARMGateway    = "arm"
	AdminGateway  = "admin"
	TunnelGateway = "tunnels"
)

// MonitoringNamespace has the collector of traces, and Prometheus on a cluster without AKS' add-on. Others provide it.
const MonitoringNamespace = "monitoring"

// AddOnNamespace has the pods of AKS' add-ons. The metrics add-on reads /metrics from there.
const AddOnNamespace = "kube-system"

// Gateways returns the service accounts of the ingress gateways that may call a workload.
func (w Workload) Gateways() []string {
	switch w.Peer {
	case mesh.Frontend:
		return []string{ARMGateway}
	case mesh.Admin:
		return []string{AdminGateway}
	case mesh.GatewayAccess:
		return []string{AdminGateway, TunnelGateway}
	}
	return nil
}

// intentVerifiers are the workloads that read the public keys of engineers' intents, which admin serves to everybody.
func intentVerifiers() []mesh.Peer {
	return []mesh.Peer{mesh.Backend, mesh.ClusterService, mesh.GatewayGrants}
}

// Connection is a right to connect: a namespace and its ports at the server.
type Connection struct {
	Namespace string
	Ports     []Port
}

// Clients returns who may connect to a workload, in alphabetical order: the clients of the authorization table.
func (w Workload) Clients(rules []mesh.Rule) []Connection {
	var found connections
	for _, rule := range rules {
		port, ok := w.Ports[rule.Protocol]
		ok = ok && rule.Server == w.Peer
		if rule.Server == mesh.Portal && w.Portal != nil {
			port, ok = *w.Portal, true
		}
		if !ok {
			continue
		}
		for _, grant := range rule.Clients {
			for _, namespace := range namespacesOf(grant.Client) {
				found.add(namespace, port)
			}
		}
	}
	return found.sorted()
}

// Servers returns the workloads to which a workload may connect, in alphabetical order. It is Clients, seen from the other side.
func (w Workload) Servers(rules []mesh.Rule) []Connection {
	var found connections
	for _, server := range All() {
		for _, client := range server.Clients(rules) {
			if client.Namespace == string(w.Peer) {
				for _, port := range client.Ports {
					found.add(string(server.Peer), port)
				}
			}
		}
	}
	return found.sorted()
}

// namespacesOf returns the namespaces in the service cluster from which a client of the table connects. Some have none: hcpctl runs on
// engineers' machines.
func namespacesOf(client mesh.Peer) []string {
	switch client {
	case mesh.ARMFrontDoor, mesh.Engineers, mesh.ManagementClusters:
		return []string{GatewayNamespace}
	case mesh.Anybody:
		namespaces := []string{GatewayNamespace}
		for _, verifier := range intentVerifiers() {
			namespaces = append(namespaces, string(verifier))
		}
		return namespaces
	}
	if _, ok := Find(client); ok {
		return []string{string(client)}
	}
	return nil
}

type connections []Connection

func (c *connections) add(namespace string, port Port) {
	i := slices.IndexFunc(*c, func(have Connection) bool { return have.Namespace == namespace })
	if i < 0 {
		*c = append(*c, Connection{Namespace: namespace})
		i = len(*c) - 1
	}
	if have := &(*c)[i]; !slices.Contains(have.Ports, port) {
		have.Ports = append(have.Ports, port)
	}
}

func (c connections) sorted() []Connection {
	slices.SortFunc(c, func(a, b Connection) int { return strings.Compare(a.Namespace, b.Namespace) })
	for _, connection := range c {
		slices.SortFunc(connection.Ports, func(a, b Port) int { return int(a.Number - b.Number) })
	}
	return c
}
