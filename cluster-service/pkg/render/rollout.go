package render

import (
	"encoding/json"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// rollout has the agent read the components of a control plane, and touch nothing. A bundle names its objects, so it names all
// that there may be.
func (r *Renderer) rollout(cluster *fleet.Cluster) (*Bundle, error) {
	bundle := &Bundle{}
	for _, name := range release.ControlPlaneComponents() {
		component := object{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "ControlPlaneComponent",
			"metadata": object{"name": name, "namespace": fleet.ControlPlaneNamespace(r.Environment, cluster)}}
		if err := bundle.read(component, manifestConfig(component)); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

// read adds an object that the agent only reads.
func (b *Bundle) read(o object, config workv1.ManifestConfigOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	config.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}
	b.Manifests, b.Configs = append(b.Manifests, text), append(b.Configs, config)
	return nil
}
