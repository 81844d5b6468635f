package values

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// ingressChart is the chart of the gateways.
const ingressChart = "ingress"

// armSource is the service tag from which Resource Manager calls the frontend.
const armSource = "AzureResourceManager"

// Check is a service that checks each request before a gateway passes it on.
type Check struct {
	// Host is the name of a Service: SERVICE.NAMESPACE.svc.
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	Port      int32  `json:"port"`
}

// Token is what a gateway requires of the tokens in requests.
type Token struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
}

// Route is a host of a gateway, with the program to which the gateway sends the requests for it.
type Route struct {
	Name string `json:"name"`
	Host string `json:"host"`
	// Certificate is a certificate in the vault of the gateway, and the name of the Secret into which the secrets store driver copies it.
	Certificate string `json:"certificate"`
	// Service is the name of the program, of its Service and of its namespace. Port is the port of the Service.
	Service string `json:"service"`
	Port    int32  `json:"port"`
	// Streams is true if a response may last longer than the time that other requests have.
	Streams bool `json:"streams"`
	// Prefix is the prefix of the paths that the gateway forwards; empty means all paths.
	Prefix string `json:"prefix,omitempty"`
}

// Gateway is a gateway of the service cluster, with the programs behind it.
type Gateway struct {
	Routes   []Route  `json:"routes"`
	Identity Identity `json:"identity"`
	// Vault has the certificates of the routes.
	Vault string `json:"vault"`
	// Address is the name of the public address, in the resource group ResourceGroup.
	Address       string `json:"address"`
	ResourceGroup string `json:"resourceGroup"`
	// ServiceTags and Ranges are the sources of connections. Without any, the gateway has no address.
	ServiceTags []string `json:"serviceTags"`
	Ranges      []string `json:"ranges"`
	// Token is nil if the programs behind the gateway do not verify tokens themselves, Check if no service checks the requests. TokenRequired is
	// true if the gateway refuses requests without a token.
	Token         *Token `json:"token,omitempty"`
	TokenRequired bool   `json:"tokenRequired"`
	Check         *Check `json:"check,omitempty"`
}

// meshValues returns the configuration of Istio.
func meshValues(c *computation) any {
	v := map[string]any{"trustDomain": c.text("trustDomain"), "meshRevision": c.text("serviceCluster", "meshRevision")}
	if check := c.check(); check != nil {
		v["check"] = check
	}
	return v
}

// ingressValues returns the gateways. MISE checks requests of ARM where the frontend relies on it.
func ingressValues(c *computation) any {
	routes := c.gatewayRoutes()
	gateway := func(name, key string) *Gateway { return c.gateway(name, key, routes[name]) }
	arm, admin, tunnels := gateway(workload.ARMGateway, "frontend"), gateway(workload.AdminGateway, "admin"), gateway(workload.TunnelGateway, "gatewayAccess")
	tunnels.TokenRequired = true
	arm.ServiceTags, arm.Check = []string{armSource}, c.check()
	c.sources(admin, workload.AdminGateway)
	c.sources(tunnels, workload.TunnelGateway)
	return map[string]any{
		"trustDomain": c.text("trustDomain"), "meshRevision": c.text("serviceCluster", "meshRevision"), "metrics": c.metrics(),
		"replicas": c.number("ingress", "gateway", "replicas"), "resources": c.resources("ingress", "gateway", "resources"), "gateways": map[string]*Gateway{workload.ARMGateway: arm, workload.AdminGateway: admin, workload.TunnelGateway: tunnels},
	}
}

// gatewayRoutes returns the routes of each gateway.
func (c *computation) gatewayRoutes() map[string][]Route {
	// Watches and followed logs last as long as their sessions. The portal limits its responses itself, as it sends events to pages.
	access := c.route("access", mesh.GatewayAccess)
	access.Streams = true
	admin := []Route{c.route(workload.AdminGateway, mesh.Admin), access}
	if c.hasPortal() {
		portal := c.route("portal", mesh.Admin)
		w, _ := workload.Find(mesh.Admin)
		portal.Port, portal.Streams = w.Portal.Number, true
		admin = append(admin, portal)
	}
	tunnels := c.route(workload.TunnelGateway, mesh.GatewayAccess)
	tunnels.Streams, tunnels.Prefix = true, mesh.TunnelPath
	return map[string][]Route{workload.ARMGateway: {c.route(workload.ARMGateway, mesh.Frontend)}, workload.AdminGateway: admin, workload.TunnelGateway: {tunnels}}
}

// sources sets the sources of a gateway to those of a part of the key ingress.
func (c *computation) sources(g *Gateway, part string) {
	sources := c.target.Configuration.Get("ingress", part, "sources")
	if sources == nil {
		return
	}
	for _, item := range sources.Items {
		if source, _ := item.Value.(string); strings.Contains(source, "/") {
			g.Ranges = append(g.Ranges, source)
		} else {
			g.ServiceTags = append(g.ServiceTags, source)
		}
	}
}

// gateway returns a gateway without its sources. key is that of the program of its first route.
func (c *computation) gateway(name, key string, routes []Route) *Gateway {
	c.workload = workload.Workload{Key: []string{"ingress", name}}
	g := &Gateway{
		Routes: routes, Identity: c.identity("managedIdentity"), Vault: c.text("keyVaults", "service"),
		Address: c.text("serviceCluster", "name") + "-" + name, ResourceGroup: c.text("resourceGroups", "serviceCluster"),
		ServiceTags: []string{}, Ranges: []string{},
	}
	if c.text(key, "authentication", "mode") == "token" {
		g.Token = &Token{Issuer: c.text(key, "authentication", "issuer"), Audience: c.text(key, "authentication", "audience")}
	}
	return g
}

// route returns the route with a name to a program. The key of the configuration has the same name.
func (c *computation) route(name string, peer mesh.Peer) Route {
	w, _ := workload.Find(peer)
	return Route{
		Name: name, Host: c.text("ingress", name, "host"), Certificate: c.text("ingress", name, "certificate", "name"),
		Service: string(peer), Port: w.Ports[mesh.HTTP].Number,
	}
}

// hasPortal reports whether the region has the SRE portal.
func (c *computation) hasPortal() bool { return c.target.Configuration.Get("admin", "portal") != nil }

// check returns MISE, if the frontend relies on it.
func (c *computation) check() *Check {
	if c.text("frontend", "authentication", "mode") != "sidecar" {
		return nil
	}
	host, port, ok := addressIn(c.text("frontend", "authentication", "checkUrl"))
	namespace, inside := clusterNamespace(host)
	if !ok || !inside {
		c.fail("frontend.authentication.checkUrl: %s is no Service of the cluster", strings.TrimSpace(host))
	}
	return &Check{Host: host, Namespace: namespace, Port: port}
}
