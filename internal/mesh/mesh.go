// Package mesh authenticates and authorizes connections between the processes of a region. Every process has a SPIFFE
// identity: an X.509 certificate with a URI of trust domain, namespace and service account. Both sides of a connection
// verify the identity of the other side.
//
// In AKS, Istio does this with sidecars and AuthorizationPolicies. In the local region the services use this package and
// certificates of an Authority. AllowedClients is the list of permitted callers for both. Certificates are reloaded when
// their files change, so that a rotation needs no restart. A private key never leaves the package.
package mesh

import (
	"fmt"
	"net/url"
	"slices"
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
	ClusterService    Peer = "cluster-service"
	MaestroServer     Peer = "maestro-server"
	MaestroAgent      Peer = "maestro-agent"
	Hypershift        Peer = "hypershift"
	CosmosEmulator    Peer = "cosmos-emulator"
	EventGridEmulator Peer = "eventgrid-emulator"
	UpdateGraph       Peer = "update-graph"
	AzureEmulator     Peer = "azure-emulator"
	Hcpctl            Peer = "hcpctl"
)

// allowedClients maps each server to the workloads that may call it.
var allowedClients = map[Peer][]Peer{
	Frontend:       {ARMFrontDoor},
	ClusterService: {Frontend, Backend, Admin},
	MaestroServer:  {ClusterService, Admin, Hcpctl},
}

// AllowedClients returns the workloads that may call server, in a stable order. It is empty for a server that is not
// listed.
func AllowedClients(server Peer) []Peer {
	return slices.Clone(allowedClients[server])
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
