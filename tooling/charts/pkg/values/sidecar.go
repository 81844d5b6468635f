package values

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// withSidecars is the value of the key serviceCluster.identity with which sidecars of Istio authenticate connections.
const withSidecars = "mesh"

// The namespace of istiod in AKS, and its port for sidecars.
const (
	istiodNamespace = "aks-istio-system"
	istiodPort      = 15012
)

// Sidecar is the sidecar of Istio of a program.
type Sidecar struct {
	// Revision is the revision of Istio that injects the sidecar.
	Revision string `json:"revision"`
	// ID is the SPIFFE ID of the program, and Gateways are the SPIFFE IDs of the ingress gateways that may call it.
	ID       string   `json:"id"`
	Gateways []string `json:"gateways,omitempty"`
	// DirectPorts are the ports, separated by commas, to which the program connects without the sidecar: those of Azure, where it uses TLS of
	// its own.
	DirectPorts string `json:"directPorts"`
}

// sidecars reports whether the programs of the service cluster have sidecars.
func (c *computation) sidecars() bool { return c.text("serviceCluster", "identity") == withSidecars }

// sidecars reports whether the target has a service cluster whose programs have sidecars.
func (t Target) sidecars() bool {
	mode := t.Configuration.Get("serviceCluster", "identity")
	return mode != nil && mode.Value == withSidecars
}

// sidecar returns the sidecar of the program, and lets it connect to istiod.
func (c *computation) sidecar(network *Network) *Sidecar {
	direct := slices.Clone(network.External)
	if network.PrivateEndpoints != nil {
		direct = append(direct, network.PrivateEndpoints.Ports...)
	}
	slices.Sort(direct)
	var ports []string
	for _, port := range slices.Compact(direct) {
		for _, server := range network.Servers {
			if slices.Contains(server.Ports, port) {
				c.fail("the program connects to port %d of the namespace %s and of services outside of the cluster: the sidecar cannot tell them apart", port, server.Namespace)
			}
		}
		ports = append(ports, strconv.Itoa(int(port)))
	}
	network.Servers = append(network.Servers, Server{istiodNamespace, []int32{istiodPort}})
	slices.SortFunc(network.Servers, func(a, b Server) int { return strings.Compare(a.Namespace, b.Namespace) })
	domain := c.text("trustDomain")
	sidecar := &Sidecar{
		Revision: c.text("serviceCluster", "meshRevision"), ID: mesh.ID{TrustDomain: domain, Peer: c.workload.Peer}.URL().String(), DirectPorts: strings.Join(ports, ","),
	}
	for _, account := range c.workload.Gateways() {
		sidecar.Gateways = append(sidecar.Gateways, "spiffe://"+domain+"/ns/"+workload.GatewayNamespace+"/sa/"+account)
	}
	return sidecar
}
