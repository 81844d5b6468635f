package adminv1

import "time"

// The layers of a region: what a component of the region does. Components of one layer may run several times.
const (
	ComponentEtcd             = "etcd"
	ComponentPostgreSQL       = "postgresql"
	ComponentCosmosDB         = "cosmos-db"
	ComponentMQTTBroker       = "mqtt-broker"
	ComponentManagementAPI    = "management-api-server"
	ComponentMaestroServer    = "maestro-server"
	ComponentAgent            = "maestro-agent"
	ComponentHyperShift       = "hypershift"
	ComponentHostedAPI        = "hosted-api-server"
	ComponentClusterService   = "cluster-service"
	ComponentBackend          = "backend"
	ComponentFrontend         = "frontend"
	ComponentManagementWorker = "management-controllers"
)

// ComponentState states how a component answered.
type ComponentState string

// The states of a component.
const (
	// ComponentReady means that it answered that it is ready.
	ComponentReady ComponentState = "Ready"
	// ComponentUnresponsive means that it accepted a connection or a request and did not answer before the deadline.
	ComponentUnresponsive ComponentState = "Unresponsive"
	// ComponentUnreachable means that no connection was possible: it does not run, or the network does not reach it.
	ComponentUnreachable ComponentState = "Unreachable"
	// ComponentNotReady means that it answered that it is not ready, or with an error, or that it was away until a few seconds ago.
	ComponentNotReady ComponentState = "NotReady"
	// ComponentDiskFull means that it reported that its disk is full.
	ComponentDiskFull ComponentState = "DiskFull"
)

// Component is the state of one component of the region, as this replica of admin observed it.
type Component struct {
	// Name is unique in the region, for example mgmt-1-maestro-agent. Layer is one of the constants that begin with Component.
	Name  string `json:"name"`
	Layer string `json:"layer"`
	// ProvisionShard is the management cluster of the component; empty if it serves the whole region.
	ProvisionShard string         `json:"provisionShard,omitempty"`
	State          ComponentState `json:"state"`
	// Message is the reason why it is not ready.
	Message string `json:"message,omitempty"`
	// ReportedBy is the component that reported the state; empty if admin asked the component itself.
	ReportedBy string `json:"reportedBy,omitempty"`
	// Time is when admin asked. Since is when a replica of admin first asked without the answer Ready; zero if it is ready, or if no
	// replica has observed it as ready before. LastReady is the time of the last answer Ready; zero if there was none.
	Time      time.Time `json:"time"`
	Since     time.Time `json:"since,omitzero"`
	LastReady time.Time `json:"lastReady,omitzero"`
}

// Away reports whether the component is not ready.
func (c Component) Away() bool { return c.State != ComponentReady }
