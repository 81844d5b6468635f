package local

import (
	"net"
	"slices"
	"strconv"
)

// portsPerRegion is the size of a region's block of ports. processes has its layout.
const portsPerRegion = 120

// service is the offset of a listener's port from the base port. Offsets stay the same from release to release, because
// people use them in scripts and notes.
type service int

// The ports that flags of other processes name.
const (
	frontDoorPort        service = 0
	frontendPort         service = 1
	clusterServicePort   service = 2
	maestroRESTPort      service = 3
	maestroGRPCPort      service = 4
	cosmosPort           service = 5
	mqttPort             service = 6
	postgresPort         service = 7
	etcdPort             service = 8
	etcdPeerPort         service = 9
	mqttFaults           service = 17
	updateGraphPort      service = 18
	adminPort            service = 28
	azurePort            service = 38
	etcdOps              service = 48
	prometheusPort       service = 58
	alertmanagerPort     service = 59
	tracesPort           service = 68
	portalPort           service = 78
	gatewayAccessPort    service = 88
	gatewayEgressPort    service = 98
	gatewayEgressConnect service = 108

	// Management clusters do not use the last two of their ports.
	firstManagement      service = 20
	portsPerManagement           = 10
	managementAPI        service = 0
	managementController service = 1
	egressPort           service = 5
)

// regionProcess is a process of a region: the processes that it needs, and its ports by their names in its status. The port ops serves /readyz and /metrics;
// only that of etcd does not.
type regionProcess struct {
	name  string
	needs []string
	ports ports
}

type ports map[string]service

// processes returns all processes that a region with these management clusters can have. Everything that depends on the list of processes, their
// dependencies or ports comes from this table.
func (c *Config) processes(clusters []string) []regionProcess {
	mqtt := ports{"mqtt": mqttPort, "ops": 16}
	if c.Faults {
		mqtt["faults"] = mqttFaults
	}
	cosmos := []string{"cosmos-emulator"}
	all := []regionProcess{
		{"postgres", nil, ports{"sql": postgresPort}},
		{"etcd", nil, ports{"client": etcdPort, "peer": etcdPeerPort, "ops": etcdOps}},
		{"cosmos-emulator", nil, ports{"https": cosmosPort, "ops": 15}},
		{"eventgrid-emulator", nil, mqtt},
		{"azure-emulator", nil, ports{"https": azurePort, "ops": 39}},
		{"update-graph", nil, ports{"https": updateGraphPort, "ops": 19}},
		{"maestro-server", []string{"postgres", "eventgrid-emulator"}, ports{"grpc": maestroGRPCPort, "rest": maestroRESTPort, "ops": 13}},
		{"cluster-service", []string{"postgres", "maestro-server"}, ports{"grpc": clusterServicePort, "ops": 12}},
		{"backend", cosmos, ports{"ops": 14}},
		{"frontend", cosmos, ports{"https": frontendPort, "ops": 11}},
		{"arm-frontdoor", nil, ports{"https": frontDoorPort, "ops": 10}},
		{"admin", cosmos, ports{"https": adminPort, "portal": portalPort, "ops": 29}},
		{"monitor", cosmos, ports{"ops": 49}},
		{"gateway-access", cosmos, ports{"https": gatewayAccessPort, "ops": 89}},
		{"gateway-egress", cosmos, ports{"tls": gatewayEgressPort, "connect": gatewayEgressConnect, "ops": 99}},
	}
	if c.with(WithObservability) {
		all = append(all, regionProcess{prometheusName, nil, ports{"http": prometheusPort}}, regionProcess{alertmanagerName, nil, ports{"http": alertmanagerPort}})
	}
	if c.with(WithTraces) {
		all = append(all, regionProcess{traceStoreName, nil, ports{"http": tracesPort, "ops": 69}})
	}
	for i, cluster := range clusters {
		m := &managementCluster{name: cluster}
		api := m.apiServerName()
		all = append(all,
			regionProcess{api, []string{"etcd"}, ports{"https": management(i, managementAPI)}},
			regionProcess{m.controllersName(), []string{api}, ports{"https": management(i, managementController)}},
			regionProcess{m.egressProxyName(), nil, ports{"https": management(i, egressPort), "ops": management(i, 6)}},
			regionProcess{m.hypershiftName(), []string{api, "etcd"}, ports{"ops": management(i, 3)}},
			regionProcess{m.agentName(), []string{api, "eventgrid-emulator"}, ports{"ops": management(i, 2)}},
			regionProcess{m.auditName(), nil, ports{"ops": management(i, 4)}},
			regionProcess{m.insideName(), []string{api}, ports{"ops": management(i, 7)}},
			// The block of ports of the management cluster is full.
			regionProcess{m.logForwarderName(), []string{api}, ports{"ops": service(100 + i)}},
			regionProcess{tunnelName(cluster), []string{api}, ports{"ops": service(110 + i)}},
		)
	}
	return all
}

// process returns a process of the region.
func (r *Region) process(name string) regionProcess {
	all := r.config.processes(r.state.record.ManagementClusters)
	return all[slices.IndexFunc(all, func(p regionProcess) bool { return p.name == name })]
}

// ports returns the ports of a process by their names.
func (r *Region) ports(process string) map[string]int {
	numbers := map[string]int{}
	for name, port := range r.process(process).ports {
		numbers[name] = r.port(port)
	}
	return numbers
}

// ops returns the address of a process for /readyz and /metrics.
func (r *Region) ops(name string) string { return r.address(r.process(name).ports["ops"]) }

// wantedPorts returns the ports on which a region at base listens, by process and name.
func (r *Region) wantedPorts(base int) map[string]int {
	wanted := map[string]int{}
	for _, p := range r.config.processes(r.config.managementClusters()) {
		for name, port := range p.ports {
			if !r.config.without(p.name) {
				wanted[p.name+" ("+name+")"] = base + int(port)
			}
		}
	}
	return wanted
}

// Hosted API servers use ranges outside of the region's block, one range for each management cluster.
const (
	firstHostedPort       = 21000
	hostedPortsPerCluster = 600
)

func (r *Region) port(s service) int { return r.state.record.BasePort + int(s) }

func (r *Region) address(s service) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port(s)))
}

// management returns the offset of service s of the management cluster with an index from 0.
func management(index int, s service) service {
	return firstManagement + service(index)*portsPerManagement + s
}
