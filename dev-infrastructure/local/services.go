package local

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
)

// without reports whether the region leaves a process out.
func (c *Config) without(name string) bool { return slices.Contains(c.Without, name) }

// specs are all processes of the region, in the order in which they are shown.
func (r *Region) specs() ([]supervisor.Spec, error) {
	specs := []supervisor.Spec{r.postgres(), r.etcd()}
	for _, m := range r.clusters {
		api, err := r.kubeAPIServer(m)
		if err != nil {
			return nil, err
		}
		controllers, err := r.kubeControllerManager(m)
		if err != nil {
			return nil, err
		}
		specs = append(specs, api, controllers)
	}
	return r.leaveOut(specs), nil
}

// leaveOut removes the processes that somebody else runs, and the waits for them.
func (r *Region) leaveOut(specs []supervisor.Spec) []supervisor.Spec {
	var kept []supervisor.Spec
	for _, spec := range specs {
		if r.config.without(spec.Name) {
			continue
		}
		spec.Needs = slices.DeleteFunc(slices.Clone(spec.Needs), r.config.without)
		kept = append(kept, spec)
	}
	return kept
}

// wantedPorts are the ports that a region at base listens on, by what they serve.
func (r *Region) wantedPorts(base int) map[string]int {
	wanted := map[string]int{}
	add := func(process, name string, s service) {
		if !r.config.without(process) {
			wanted[name] = base + int(s)
		}
	}
	add("arm-frontdoor", "the ARM front door", frontDoorPort)
	add("arm-frontdoor", "the ARM front door's metrics", frontDoorOps)
	add("frontend", "the frontend", frontendPort)
	add("frontend", "the frontend's metrics", frontendOps)
	add("backend", "the backend's metrics", backendOps)
	add("cluster-service", "cluster-service", clusterServicePort)
	add("cluster-service", "cluster-service's metrics", clusterServiceOps)
	add("maestro-server", "maestro-server's REST API", maestroRESTPort)
	add("maestro-server", "maestro-server's gRPC API", maestroGRPCPort)
	add("maestro-server", "maestro-server's metrics", maestroServerOps)
	add("cosmos-emulator", "the Cosmos DB emulator", cosmosPort)
	add("cosmos-emulator", "the Cosmos DB emulator's metrics", cosmosOps)
	add("eventgrid-emulator", "the Event Grid emulator", mqttPort)
	add("eventgrid-emulator", "the Event Grid emulator's metrics", mqttOps)
	add("postgres", "PostgreSQL", postgresPort)
	add("etcd", "etcd's clients", etcdPort)
	add("etcd", "etcd's peers", etcdPeerPort)
	for i, name := range r.config.managementClusters() {
		add(name+"-kube-apiserver", name+"'s kube-apiserver", management(i, managementAPI))
		add(name+"-kube-controller-manager", name+"'s kube-controller-manager", management(i, managementController))
		add(name+"-maestro-agent", name+"'s maestro-agent's metrics", management(i, maestroAgentOps))
		add(name+"-hypershift-runtime", name+"'s hypershift-runtime's metrics", management(i, hypershiftOps))
	}
	return wanted
}
