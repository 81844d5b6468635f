package installation

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// AddManagementCluster serves Entra ID and the session gateway in a management cluster, under the names that they have in Azure. The agent of its tunnels
// gets the tokens of the identity that the region has for it, in exchange for those of the management cluster's service accounts. It must follow
// AddWorkloads.
func (e *Entra) AddManagementCluster(ctx context.Context, management *Outside) error {
	r, stamp := e.services.settings(), management.settings()
	w, _ := workload.Find(mesh.GatewayTunnel)
	own := func(key string) string { return stamp.text(append(slices.Clone(w.Key), key)...) }
	authority, host := stamp.host("endpoints", "authority"), stamp.text("ingress", "tunnels", "host")
	agent := r.workload(w, own("managedIdentity"))
	agent.Audiences = []string{own("audience")}
	if err := errors.Join(r.err, stamp.err); err != nil {
		return err
	}
	keyFile, err := e.services.writeTokenKey("workload-issuer-"+filepath.Base(management.Target.Name), management.cluster())
	if err != nil {
		return err
	}
	if agent.Federation, err = token.OpenFederation(kubernetes.TokenIssuer, keyFile); err != nil {
		return err
	}
	e.issuer.AddClients(agent)
	gateway, err := e.services.startRoute("tunnels", mesh.GatewayAccess)
	if err != nil {
		return err
	}
	return errors.Join(management.Forward(ctx, authority, "443", e.Address), management.Forward(ctx, host, "443", gateway))
}
