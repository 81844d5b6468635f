package local

import (
	"context"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"sigs.k8s.io/yaml"
)

// component is an entry of admin's --components-file.
type component struct {
	Name           string `json:"name"`
	Layer          string `json:"layer"`
	ProvisionShard string `json:"provisionShard,omitempty"`
	Ready          string `json:"ready,omitempty"`
	Alive          string `json:"alive,omitempty"`
	CAFile         string `json:"caFile,omitempty"`
	PostgreSQL     string `json:"postgresql,omitempty"`
}

// componentsFile returns the file that lists the components of the region for admin.
func (r *Region) componentsFile() string { return r.state.path("components.yaml") }

func (r *Region) writeComponents(context.Context) error {
	data, err := yaml.Marshal(map[string]any{"components": r.components()})
	if err != nil {
		return err
	}
	return replaceFile(r.componentsFile(), data, 0o644)
}

// components returns the components of the region that it starts.
func (r *Region) components() []component {
	ours := func(name, layer, shard string) component {
		base := "http://" + r.ops(name)
		return component{Name: name, Layer: layer, ProvisionShard: shard, Ready: base + "/readyz", Alive: base + "/healthz"}
	}
	all := []component{
		{Name: "postgres", Layer: "postgresql", PostgreSQL: r.address(postgresPort)},
		{Name: "etcd", Layer: "etcd", Ready: "http://" + r.address(etcdOps) + "/health"},
		ours("cosmos-emulator", "cosmos-db", ""),
		ours("eventgrid-emulator", "mqtt-broker", ""),
		ours("maestro-server", "maestro-server", ""),
		ours("cluster-service", "cluster-service", ""),
		ours("backend", "backend", ""),
		ours("frontend", "frontend", ""),
	}
	for _, m := range r.clusters {
		api := "https://" + r.address(management(m.index, managementAPI))
		controllers := "https://" + r.address(management(m.index, managementController))
		all = append(all,
			component{Name: m.apiServerName(), Layer: "management-api-server", ProvisionShard: m.name, Ready: api + "/readyz", Alive: api + "/livez", CAFile: m.pki.Path("ca.crt")},
			component{Name: m.controllersName(), Layer: "management-controllers", ProvisionShard: m.name, Ready: controllers + "/healthz", CAFile: m.pki.Path("ca.crt")},
			ours(m.agentName(), "maestro-agent", m.name),
			ours(m.hypershiftName(), "hypershift", m.name),
		)
	}
	var started []component
	for _, c := range all {
		if !r.config.without(c.Name) {
			started = append(started, c)
		}
	}
	return started
}

// withComponents makes a spec of admin write the file of the components before it starts.
func (r *Region) withComponents(spec supervisor.Spec) supervisor.Spec {
	spec.Args = append(spec.Args, "--components-file="+r.componentsFile())
	spec.Prepare = r.writeComponents
	return spec
}
