// Package mesh is who may talk to whom: every process has a SPIFFE identity, an X.509 certificate whose URI names the
// trust domain, namespace and service account, and both sides of every connection check the other's.
//
// In AKS Istio does this with sidecars and AuthorizationPolicies; in the local region the services do it themselves with
// this package and certificates from an Authority. Allowed is the one list of who may call whom, for both. Certificates
// are read again when their files change, so that rotation needs no restart. A private key never leaves the package.
package mesh

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Peer is a workload by its service account's name, as in `frontend`. Its namespace has the same name.
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

// allowed maps each server to the workloads that may call it.
var allowed = map[Peer][]Peer{
	Frontend:       {ARMFrontDoor},
	ClusterService: {Frontend, Backend, Admin},
	MaestroServer:  {ClusterService, Admin, Hcpctl},
}

// Allowed lists the workloads that may call server, in a stable order. A server that is not listed may be called by none.
func Allowed(server Peer) []Peer {
	return slices.Clone(allowed[server])
}

// ID is a SPIFFE identity.
type ID struct {
	// TrustDomain is the region, as in `local`.
	TrustDomain string
	Peer        Peer
}

// URL is the identity as it stands in a certificate: spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
func (id ID) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: fmt.Sprintf("/ns/%s/sa/%s", id.Peer, id.Peer)}
}

// ParseID reads a SPIFFE identity of the form that ID.URL makes.
func ParseID(u *url.URL) (ID, error) {
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	if u.Scheme != "spiffe" || u.Host == "" || len(parts) != 4 || parts[0] != "ns" || parts[2] != "sa" || parts[1] != parts[3] || parts[1] == "" {
		return ID{}, fmt.Errorf("%q is not a SPIFFE id of the form spiffe://<region>/ns/<name>/sa/<name>", u)
	}
	return ID{TrustDomain: u.Host, Peer: Peer(parts[3])}, nil
}
