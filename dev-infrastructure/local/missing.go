package local

import "github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"

func (r *Region) eventGridEmulator() supervisor.Spec {
	identity := r.identityDir("eventgrid-emulator")
	spec := r.ours("eventgrid-emulator", "eventgrid-emulator", mqttOps,
		"--listen="+r.address(mqttPort), "--identity-dir="+identity)
	spec.Ports["mqtt"] = r.port(mqttPort)
	return spec
}
func (r *Region) maestroAgent(m *managementCluster) supervisor.Spec {
	return r.ours(m.name+"-maestro-agent", "maestro-agent", management(m.index, maestroAgentOps))
}
func (r *Region) maestroServer() supervisor.Spec {
	return r.ours("maestro-server", "maestro-server", maestroServerOps)
}
func (r *Region) clusterService() supervisor.Spec {
	return r.ours("cluster-service", "cluster-service", clusterServiceOps)
}
func (r *Region) backend() supervisor.Spec  { return r.ours("backend", "backend", backendOps) }
func (r *Region) frontend() supervisor.Spec { return r.ours("frontend", "frontend", frontendOps) }
