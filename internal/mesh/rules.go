package mesh

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Protocol is the protocol of a rule.
type Protocol string

// The protocols. Each one has its own form of Rule.Method.
const (
	// GRPC methods are full method names: /package.Service/Method.
	GRPC Protocol = "grpc"
	// HTTP methods are patterns of http.ServeMux: GET /path/{id}. A GET allows HEAD. See Unrouted for the pattern /.
	HTTP Protocol = "http"
	// MQTT methods are an action and the channel of Maestro's topics: publish agentevents.
	MQTT Protocol = "mqtt"
)

// The actions of MQTT methods. Subscribe includes receiving.
const (
	Publish   = "publish"
	Subscribe = "subscribe"
)

// Rule lists the callers that may use one method of a server. A rule without clients documents that no workload may.
type Rule struct {
	Server   Peer
	Protocol Protocol
	Method   string
	Clients  []Grant
}

// Grant allows one client to use the method of its rule, if the condition holds.
type Grant struct {
	Client    Peer
	Condition Condition
}

// Condition limits a grant. All of its parts must hold. The zero value allows every call.
type Condition struct {
	// Intent requires that the call carries an engineer's signed intent for exactly this request; see IntentVerifier. With Field,
	// requests that have one of Values do not need an intent.
	Intent bool
	// Absent is a field of a gRPC request that must not be set.
	Absent string
	// Field is the path of a field of a gRPC message, for example spec.class, and Values are its permitted values: strings,
	// or names of enumeration values. An unset field has the value "" or the name of the zero value.
	Field  string
	Values []string
	// InResponse selects the response instead of the request. The caller does not get a response that does not comply.
	InResponse bool
	// OwnConsumer limits MQTT topics to those of the consumer with the client's name. Without it, all consumers are allowed.
	OwnConsumer bool
	// Role is the role that a group of an Engineer must give. With Elevated, the engineer also needs an active elevation to it.
	Role     string
	Elevated bool
}

// The gRPC services of the region.
const (
	ClusterServiceAPI = "hcpmesh.clusterservice.v1.ClusterService"
	CloudEventsAPI    = "io.cloudevents.v1.CloudEventService"
	HealthAPI         = "grpc.health.v1.Health"
)

// MaestroSource is the only source under which Cluster Service may publish to Maestro and receive statuses.
const MaestroSource = "cluster-service"

// customerClass is the class of the credentials that the frontend may read, and that need no intent of an engineer.
const customerClass = "BREAK_GLASS_CLASS_CUSTOMER"

// Rules returns the authorization table of a region. A change of it changes who can do what: the tests of the servers record
// the outcome of each method for each workload in their golden files.
func Rules() []Rule {
	return slices.Concat(clusterServiceRules(), engineerRules(), maestroRules(), frontendRules(), adminRules(), gatewayRules(), brokerRules())
}

// clusterServiceRules allows the frontend to send customers' desired states and to list versions, admin to read and watch, monitor and the session gateway to watch,
// and the backend to do everything that operations need.
func clusterServiceRules() []Rule {
	// The backend restores lost clusters; what they are restored to is not the frontend's decision.
	apply := append(grants(Backend), Grant{Client: Frontend, Condition: Condition{Absent: "recovery"}})
	rules := grpcRules(ClusterService, ClusterServiceAPI, apply, "ApplyCluster")
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Frontend, Backend),
		"DeleteCluster", "ApplyNodePool", "DeleteNodePool", "ApplyExternalAuth", "DeleteExternalAuth")...)
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Backend),
		"GetNodePool", "GetExternalAuth", "GetClusterRecovery", "GetBreakGlassRevocation")...)
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Backend, Admin, Monitor, GatewayAccess), "Watch")...)
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Backend, Admin),
		"GetCluster", "ListClusters", "ListNodePools", "ListExternalAuths", "ListInventory",
		"ListBreakGlassCredentials", "ListBreakGlassRevocations")...)
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Admin),
		"ListClusterActions", "ListClusterChanges", "ListWorks", "ListDeletionLeftovers", "ListAzureOrphans",
		"PlanUpgrade", "GetUpgrade", "ListUpgrades", "GetUpgradePolicy", "ListUpgradePolicies",
		"ListClusterConcerns", "SummarizeClusterConcerns",
		"ListProvisionShards", "GetProvisionShard", "PlanDrain", "ExplainPlacement")...)
	rules = append(rules, grpcRules(ClusterService, ClusterServiceAPI, grants(Frontend), "ListOpenShiftVersions")...)
	rules = append(rules, healthRules(ClusterService, Frontend, Backend, Admin)...)
	return append(rules, grpcRules(ClusterService, ClusterServiceAPI, append(grants(Backend, Admin), Grant{
		// The frontend returns issued credentials to customers.
		Client: Frontend, Condition: Condition{Field: "spec.class", Values: []string{customerClass}, InResponse: true},
	}), "GetBreakGlassCredential")...)
}

// engineerRules allows the backend to execute the actions of SREs, each with the intent of the engineer who asked for it. The
// credentials of customers need none.
func engineerRules() []Rule {
	asked := []Grant{{Client: Backend, Condition: Condition{Intent: true}}}
	rules := grpcRules(ClusterService, ClusterServiceAPI, asked, "RevokeBreakGlassCredential")
	for _, action := range adminv1.Actions() {
		if action.RPC != nil {
			rules = append(rules, Rule{ClusterService, GRPC, action.RPC.Method(), asked})
		}
	}
	customers := func(field string) []Grant {
		return []Grant{{Client: Backend, Condition: Condition{Intent: true, Field: field, Values: []string{customerClass}}}}
	}
	return append(rules,
		Rule{ClusterService, GRPC, "/" + ClusterServiceAPI + "/ApplyBreakGlassCredential", customers("spec.class")},
		Rule{ClusterService, GRPC, "/" + ClusterServiceAPI + "/RevokeBreakGlassCredentials", customers("class")})
}

// maestroRules allows Cluster Service to publish under its own source, admin to list bundles and hcpctl to register
// consumers. The other methods of the published REST API have no caller in a region.
func maestroRules() []Rule {
	source := func(field string) []Grant {
		return []Grant{{Client: ClusterService, Condition: Condition{Field: field, Values: []string{MaestroSource}}}}
	}
	rules := append(grpcRules(MaestroServer, CloudEventsAPI, source("event.source"), "Publish"),
		grpcRules(MaestroServer, CloudEventsAPI, source("source"), "Subscribe")...)
	rules = append(rules, healthRules(MaestroServer, ClusterService)...)
	const consumers, bundles = maestroapi.RESTPath + "/consumers", maestroapi.RESTPath + "/resource-bundles"
	return append(rules,
		Rule{MaestroServer, HTTP, "POST " + consumers, grants(Hcpctl)},
		Rule{MaestroServer, HTTP, "GET " + bundles, grants(Admin)},
		Rule{MaestroServer, HTTP, "GET " + consumers, nil},
		Rule{MaestroServer, HTTP, "GET " + consumers + "/{id}", nil},
		Rule{MaestroServer, HTTP, "PATCH " + consumers + "/{id}", nil},
		Rule{MaestroServer, HTTP, "DELETE " + consumers + "/{id}", nil},
		Rule{MaestroServer, HTTP, "GET " + bundles + "/{id}", nil},
		Rule{MaestroServer, HTTP, "DELETE " + bundles + "/{id}", nil},
	)
}

// brokerRules allows the Maestro server the topics of all consumers, and each agent those of its own consumer.
func brokerRules() []Rule {
	agent := []Grant{{Client: MaestroAgent, Condition: Condition{OwnConsumer: true}}}
	return []Rule{
		{EventGridEmulator, MQTT, Publish + " " + maestroapi.ChannelSourceEvents, grants(MaestroServer)},
		{EventGridEmulator, MQTT, Subscribe + " " + maestroapi.ChannelAgentEvents, grants(MaestroServer)},
		{EventGridEmulator, MQTT, Publish + " " + maestroapi.ChannelAgentEvents, agent},
		{EventGridEmulator, MQTT, Subscribe + " " + maestroapi.ChannelSourceEvents, agent},
	}
}

// healthRules allows clients to check whether a gRPC server responds.
func healthRules(server Peer, clients ...Peer) []Rule {
	return append(grpcRules(server, HealthAPI, grants(clients...), "Check"), grpcRules(server, HealthAPI, nil, "List", "Watch")...)
}

func grants(clients ...Peer) []Grant {
	var all []Grant
	for _, client := range clients {
		all = append(all, Grant{Client: client})
	}
	return all
}

func grpcRules(server Peer, service string, clients []Grant, methods ...string) []Rule {
	var rules []Rule
	for _, method := range methods {
		rules = append(rules, Rule{server, GRPC, "/" + service + "/" + method, clients})
	}
	return rules
}
