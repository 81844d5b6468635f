package render

import (
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// rollout renders the work that reads the components of a control plane and applies nothing. A bundle names each object, so
// rollout names every component that a control plane may have.
func (r *Renderer) rollout(c *fleet.Cluster) (*Bundle, error) {
	bundle := &Bundle{}
	for _, name := range release.ControlPlaneComponents() {
		component, err := manifest(&hyperv1.ControlPlaneComponent{
			TypeMeta:   typeMeta(hyperv1.GroupVersion, "ControlPlaneComponent"),
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fleet.ControlPlaneNamespace(r.Environment, c)},
		})
		if err != nil {
			return nil, err
		}
		if err := bundle.addReadOnly(component, manifestConfig(component)); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}
