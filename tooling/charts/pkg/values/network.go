package values

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Network is what may connect to the pods of a program, and to what they may connect.
type Network struct {
	// Clients are the namespaces of clients, with the names of the ports.
	Clients []Client `json:"clients"`
	// Servers are namespaces of the cluster, with the numbers of the ports.
	Servers []Server `json:"servers"`
	// PrivateEndpoints are the services of Azure with an address in the region's network.
	PrivateEndpoints *PrivateEndpoints `json:"privateEndpoints,omitempty"`
	// External are ports at public addresses.
	External []int32 `json:"external"`
}

// Client is a namespace whose pods may use named ports of the program.
type Client struct {
	Namespace string   `json:"namespace"`
	Ports     []string `json:"ports"`
}

// Server is a namespace whose ports the program may use.
type Server struct {
	Namespace string  `json:"namespace"`
	Ports     []int32 `json:"ports"`
}

// PrivateEndpoints is an address range and the ports that the program uses there.
type PrivateEndpoints struct {
	CIDR  string  `json:"cidr"`
	Ports []int32 `json:"ports"`
}

// httpsPort is the port of Entra ID, which issues the tokens of all workload identities, and of most services of Azure.
const httpsPort = 443

// postgresPort is the port of PostgreSQL in a URL without a port.
const postgresPort = 5432

// network computes the connections of a program: the authorization table gives those to other programs, the addresses in its flags all
// others.
func (c *computation) network(v *Values, rules []mesh.Rule) Network {
	n := Network{Clients: []Client{}, Servers: []Server{}, External: []int32{}}
	if v.Identity.ClientID != "" {
		n.External = append(n.External, httpsPort)
	}
	for _, client := range c.workload.Clients(rules) {
		var names []string
		for _, port := range client.Ports {
			if c.workload.Portal == nil || port != *c.workload.Portal || c.hasPortal() {
				names = append(names, port.Name)
			}
		}
		n.Clients = append(n.Clients, Client{client.Namespace, names})
	}
	for _, server := range c.workload.Servers(rules) {
		var numbers []int32
		for _, port := range server.Ports {
			numbers = append(numbers, port.Number)
		}
		n.Servers = append(n.Servers, Server{server.Namespace, numbers})
	}
	private := []int32{}
	if c.workload.Management || c.workload.KubernetesAPI {
		private = append(private, httpsPort) // the API server of a private cluster
	}
	suffixes := c.privateSuffixes()
	for _, value := range v.Flags {
		host, port, ok := addressIn(value)
		switch namespace, inCluster := clusterNamespace(host); {
		case !ok:
		case inCluster:
			n.Servers = append(n.Servers, Server{namespace, []int32{port}})
		case slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(host, "."+suffix) }):
			private = append(private, port)
		default:
			n.External = append(n.External, port)
		}
	}
	slices.Sort(n.External)
	n.External = slices.Compact(n.External)
	slices.SortFunc(n.Servers, func(a, b Server) int { return strings.Compare(a.Namespace, b.Namespace) })
	if len(private) > 0 {
		slices.Sort(private)
		n.PrivateEndpoints = &PrivateEndpoints{CIDR: c.text(c.cluster(), "network", "privateEndpoints"), Ports: slices.Compact(private)}
	}
	return n
}

// cluster is the key of the cluster on which the program runs.
func (c *computation) cluster() string {
	if c.workload.Management {
		return "managementCluster"
	}
	return "serviceCluster"
}

// privateSuffixes are the DNS suffixes of services with private endpoints.
func (c *computation) privateSuffixes() []string {
	var suffixes []string
	for _, name := range []string{"cosmosSuffix", "eventGridSuffix", "keyVaultSuffix", "blobSuffix", "postgresSuffix"} {
		suffixes = append(suffixes, c.text("endpoints", name))
	}
	return suffixes
}

// addressIn returns the host and the port of a flag's value, if it is a URL or host:port.
func addressIn(value string) (host string, port int32, ok bool) {
	if parsed, err := url.Parse(value); err == nil && parsed.Host != "" {
		text := parsed.Port()
		switch {
		case text != "":
		case parsed.Scheme == "postgres":
			return parsed.Hostname(), postgresPort, true
		case parsed.Scheme == "https":
			return parsed.Hostname(), httpsPort, true
		case parsed.Scheme == "http":
			return parsed.Hostname(), 80, true
		}
		number, err := strconv.ParseUint(text, 10, 16)
		return parsed.Hostname(), int32(number), err == nil
	}
	host, text, err := net.SplitHostPort(value)
	if err != nil || host == "" {
		return "", 0, false
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return host, int32(number), err == nil
}

// clusterNamespace returns the namespace in a name of Kubernetes' DNS, SERVICE.NAMESPACE.svc.
func clusterNamespace(host string) (string, bool) {
	parts := strings.Split(host, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		return "", false
	}
	return parts[1], true
}
