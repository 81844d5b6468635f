// Command mesh-policies prints the authorization table of a region as Istio objects, in YAML.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiopolicy"
)

func main() {
	flags := flag.NewFlagSet("mesh-policies", flag.ExitOnError)
	options := istiopolicy.Options{
		Workloads: []mesh.Peer{mesh.Frontend, mesh.Backend, mesh.Admin, mesh.GatewayAccess, mesh.Monitor, mesh.ClusterService, mesh.MaestroServer},
	}
	flags.StringVar(&options.TrustDomain, "trust-domain", "", "trust `domain` of the workloads' certificates")
	flags.StringVar(&options.ARMGateway.Namespace, "gateway-namespace", "ingress", "`namespace` of the ingress gateways")
	flags.StringVar(&options.ARMGateway.Name, "arm-gateway", "arm", "service `account` of the ingress gateway of ARM")
	flags.StringVar(&options.AdminGateway.Name, "admin-gateway", "admin", "service `account` of the ingress gateway of engineers")
	flags.StringVar(&options.TunnelGateway.Name, "tunnel-gateway", "tunnels", "service `account` of the ingress gateway of management clusters")
	flags.StringVar(&options.MonitoringNamespace, "monitoring-namespace", "monitoring", "`namespace` of the Prometheus that reads /metrics")
	operations := flags.Int("operations-port", 9090, "`port` of the workloads with /metrics")
	portal := flags.Int("portal-port", 8447, "`port` of the SRE portal, a listener of admin")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if err := run(flags.Args(), *operations, *portal, options); err != nil {
		fmt.Fprintln(os.Stderr, "mesh-policies: "+err.Error())
		os.Exit(1)
	}
}

func run(arguments []string, operations, portal int, options istiopolicy.Options) error {
	if len(arguments) > 0 {
		return fmt.Errorf("unexpected argument %q", arguments[0])
	}
	if options.TrustDomain == "" {
		return fmt.Errorf("--trust-domain is required")
	}
	if operations < 1 || operations > math.MaxUint16 {
		return fmt.Errorf("--operations-port %d is not a port: it must be 1 to %d", operations, math.MaxUint16)
	}
	if portal < 1 || portal > math.MaxUint16 || portal == operations {
		return fmt.Errorf("--portal-port %d is not a port besides --operations-port: it must be 1 to %d", portal, math.MaxUint16)
	}
	options.OperationsPort, options.PortalPort = uint16(operations), uint16(portal)
	options.AdminGateway.Namespace, options.TunnelGateway.Namespace = options.ARMGateway.Namespace, options.ARMGateway.Namespace
	objects, err := istiopolicy.Render(mesh.Rules(), options)
	if err != nil {
		return err
	}
	text, err := istiopolicy.YAML(objects)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}
