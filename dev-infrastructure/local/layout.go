package local

import (
	"net"
	"strconv"
)

// portsPerRegion is the size of a region's block of ports. The constants of type service are its layout.
const portsPerRegion = 120

// service is the offset of a listener's port from the base port. Offsets stay the same from release to release, because
// people use them in scripts and notes.
type service int

const (
	frontDoorPort      service = 0
	frontendPort       service = 1
	clusterServicePort service = 2
	maestroRESTPort    service = 3
	maestroGRPCPort    service = 4
	cosmosPort         service = 5
	mqttPort           service = 6
	postgresPort       service = 7
	etcdPort           service = 8
	etcdPeerPort       service = 9
	frontDoorOps       service = 10
	frontendOps        service = 11
	clusterServiceOps  service = 12
	maestroServerOps   service = 13
	backendOps         service = 14
	cosmosOps          service = 15
	mqttOps            service = 16
	mqttFaults         service = 17
	updateGraphPort    service = 18
	updateGraphOps     service = 19
	// Management clusters do not use the last two of their ports.
	adminPort            service = 28
	adminOps             service = 29
	azurePort            service = 38
	azureOps             service = 39
	etcdOps              service = 48
	monitorOps           service = 49
	prometheusPort       service = 58
	alertmanagerPort     service = 59
	tracesPort           service = 68
	tracesOps            service = 69
	portalPort           service = 78
	gatewayAccessPort    service = 88
	gatewayAccessOps     service = 89
	gatewayEgressPort    service = 98
	gatewayEgressOps     service = 99
	gatewayEgressConnect service = 108
	firstManagement      service = 20
	portsPerManagement           = 10
	managementAPI        service = 0
	managementController service = 1
	maestroAgentOps      service = 2
	hypershiftOps        service = 3
	managementAuditOps   service = 4
	egressPort           service = 5
	egressOps            service = 6
	monitorInsideOps     service = 7
	firstLogForwarderOps service = 100
	firstTunnelOps       service = 110
)

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

// logForwarderOpsOf and gatewayTunnelOpsOf return the offsets of ports for operations of the management cluster with an index from 0. Its block of
// ports is full.
func logForwarderOpsOf(index int) service  { return firstLogForwarderOps + service(index) }
func gatewayTunnelOpsOf(index int) service { return firstTunnelOps + service(index) }
