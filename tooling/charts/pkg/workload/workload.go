// Package workload lists the programs of a region that have a chart: where the chart is, which keys of the configuration it gets, and
// the ports on which it serves. It is the only list of them; the values, the network policies and the tests use it.
package workload

import (
	"cmp"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Workload is a program with a chart. Its chart, its namespace and its service account have the name of the peer.
type Workload struct {
	Peer mesh.Peer
	// Folder is the folder of the chart, relative to the root of the repository.
	Folder string
	// Key is the path of the program's part of the configuration.
	Key []string
	// Management is true for a program on management clusters, with values of a stamp. Others are on the service cluster.
	Management bool
	// Rehearsal is true for a program that takes the place of another one where no Azure exists. It runs only where the configuration has its
	// part.
	Rehearsal bool
	// Optional is true for another program that runs only where the configuration has its part.
	Optional bool
	// PrivateLink is true for a program whose clients are in networks of customers, behind a private link service. It calls no program of the
	// region and none calls it, so that it has neither a certificate nor a sidecar.
	PrivateLink bool
	// WithoutAzure is true for a program that has neither a managed identity nor secrets, because it calls no service of Azure.
	WithoutAzure bool
	// KubernetesAPI is true for a program of the service cluster that connects to its API server. All programs of management clusters do.
	KubernetesAPI bool
	// Audit is true for a program that writes audit records, Migration for one with a database and the command `migrate`.
	Audit, Migration bool
	// Ports are the ports of the authorization table's protocols, named as in the chart.
	Ports map[mesh.Protocol]Port
	// Portal is the port of the SRE portal, the server mesh.Portal of the table. Only admin has it, and only where the configuration has its part.
	Portal *Port
	// program is the name of the program if it is not that of the peer.
	program string
}

// Port is a port of a workload.
type Port struct {
	Name   string
	Number int32
}

// Program is the name of the program in the annotation x-configures of the configuration's schema.
func (w Workload) Program() string { return cmp.Or(w.program, string(w.Peer)) }

// All returns the workloads of a region.
func All() []Workload {
	return []Workload{
		{Peer: mesh.Frontend, Folder: "frontend/deploy", Key: []string{"frontend"}, Audit: true, Ports: map[mesh.Protocol]Port{mesh.HTTP: {"https", 8443}}},
		{Peer: mesh.Backend, Folder: "backend/deploy", Key: []string{"backend"}, Audit: true},
		{Peer: mesh.Admin, Folder: "admin/deploy", Key: []string{"admin"}, Audit: true, Ports: map[mesh.Protocol]Port{mesh.HTTP: {"https", 8444}}, Portal: &Port{"portal", 8447}},
		{Peer: mesh.GatewayAccess, Folder: "gateway/deploy", Key: []string{"gatewayAccess"}, KubernetesAPI: true, Audit: true, Ports: map[mesh.Protocol]Port{mesh.HTTP: {"https", 8446}}},
		{Peer: mesh.GatewayGrants, Folder: "gateway/grants/deploy", Key: []string{"gatewayGrants"}, WithoutAzure: true, KubernetesAPI: true, Ports: map[mesh.Protocol]Port{mesh.HTTP: {"https", 8448}}},
		{Peer: mesh.GatewayEgress, Folder: "gateway/egress/deploy", Key: []string{"gatewayEgress"}, Optional: true, PrivateLink: true},
		{Peer: mesh.Monitor, Folder: "monitor/deploy", Key: []string{"monitor"}},
		{Peer: mesh.ClusterService, Folder: "cluster-service/deploy", Key: []string{"clusterService"}, Audit: true, Migration: true,
			Ports: map[mesh.Protocol]Port{mesh.GRPC: {"grpc", 8443}}},
		{Peer: mesh.MaestroServer, Folder: "maestro/server/deploy", Key: []string{"maestro", "server"}, Audit: true, Migration: true,
			Ports: map[mesh.Protocol]Port{mesh.GRPC: {"grpc", 8090}, mesh.HTTP: {"rest", 8000}}},
		{Peer: mesh.MaestroAgent, Folder: "maestro/agent/deploy", Key: []string{"managementCluster", "agent"}, Management: true},
		{Peer: mesh.MonitorInside, Folder: "monitor/inside/deploy", Key: []string{"managementCluster", "prober"}, Management: true, WithoutAzure: true},
		{Peer: mesh.GatewayTunnel, Folder: "gateway/tunnel/deploy", Key: []string{"managementCluster", "tunnel"}, Management: true},
		{Peer: mesh.Hypershift, Folder: "hypershift/deploy", Key: []string{"managementCluster", "hypershiftRuntime"}, Management: true, Rehearsal: true, WithoutAzure: true, program: "hypershift-runtime"},
	}
}

// Find returns the workload of a peer.
func Find(peer mesh.Peer) (Workload, bool) {
	all := All()
	i := slices.IndexFunc(all, func(w Workload) bool { return w.Peer == peer })
	if i < 0 {
		return Workload{}, false
	}
	return all[i], true
}
