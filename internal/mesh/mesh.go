// Package mesh authenticates and authorizes connections between the processes of a region. Every process has a SPIFFE
// identity: an X.509 certificate with a URI of trust domain, namespace and service account. Both sides of a connection
// verify the identity of the other side. A Transport does so: Identity with certificates of the process, Sidecar with those of a
// sidecar of Istio.
//
// Rules is the only list of what each workload may call: identity, server, method and condition, for gRPC, HTTP and MQTT.
// An Authorizer enforces it in each server and refuses everything that no rule allows. Handlers read the identity of their
// caller with PeerFromContext.
//
// In the local region the services use certificates of an Authority. Certificates are reloaded when their files change, so that a rotation
// needs no restart. A private key never leaves the package.
package mesh

import (
	"fmt"
	"net/url"
	"strings"
)

// Peer is a workload, identified by the name of its service account, for example `frontend`. Its namespace has the same
// name.
type Peer string

// The workloads of a region.
const (
	ARMFrontDoor      Peer = "arm-frontdoor"
	Frontend          Peer = "frontend"
	Backend           Peer = "backend"
	Admin             Peer = "admin"
	Monitor           Peer = "monitor"
	MonitorInside     Peer = "monitor-inside"
	GatewayAccess     Peer = "gateway-access"
	GatewayEgress     Peer = "gateway-egress"
	GatewayGrants     Peer = "gateway-grants"
	GatewayTunnel     Peer = "gateway-tunnel"
	ClusterService    Peer = "cluster-service"
	MaestroServer     Peer = "maestro-server"
	MaestroAgent      Peer = "maestro-agent"
	Hypershift        Peer = "hypershift"
	CosmosEmulator    Peer = "cosmos-emulator"
	EventGridEmulator Peer = "eventgrid-emulator"
	UpdateGraph       Peer = "update-graph"
	AzureEmulator     Peer = "azure-emulator"
	Hcpctl            Peer = "hcpctl"
	PostgreSQL        Peer = "postgresql"
	// The commands that migrate a database as its owner have workloads of their own, because the services must not change tables.
	ClusterServiceMigration Peer = "cluster-service-migration"
	MaestroMigration        Peer = "maestro-migration"
)

// Peers returns all workloads of a region.
func Peers() []Peer {
	return []Peer{ARMFrontDoor, Frontend, Backend, Admin, Monitor, MonitorInside, GatewayAccess, GatewayEgress, GatewayGrants, GatewayTunnel, ClusterService, MaestroServer, MaestroAgent, Hypershift, CosmosEmulator, EventGridEmulator,
		UpdateGraph, AzureEmulator, Hcpctl, PostgreSQL, ClusterServiceMigration, MaestroMigration}
}

// ID is the SPIFFE identity of a workload.
type ID struct {
	// TrustDomain names the region, for example `local`.
	TrustDomain string
	Peer        Peer
}

// URL returns the URI in the certificate: spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
func (id ID) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: fmt.Sprintf("/ns/%s/sa/%s", id.Peer, id.Peer)}
}

// ParseID parses the URI of a SPIFFE identity in the form that ID.URL returns.
func ParseID(u *url.URL) (ID, error) {
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != "spiffe" || u.Host == "" || len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" || parts[1] != parts[3] || parts[1] == "" {
		return ID{}, fmt.Errorf("%q is not a SPIFFE ID of the form spiffe://<region>/ns/<name>/sa/<name>", u)
	}
	return ID{TrustDomain: u.Host, Peer: Peer(parts[3])}, nil
}
