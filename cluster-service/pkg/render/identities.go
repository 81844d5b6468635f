package render

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// LocalEnvironment is the name of an environment without Azure. There, an identity without a client ID gets a placeholder.
const LocalEnvironment = "local"

func (r *Renderer) managedIdentities(c *fleet.Cluster) (*hyperv1.AzureResourceManagedIdentities, error) {
	identities := &hyperv1.AzureResourceManagedIdentities{ControlPlane: hyperv1.ControlPlaneManagedIdentities{
		ManagedIdentitiesKeyVault: hyperv1.ManagedAzureKeyVault{Name: r.Config.Azure.IdentitiesVault, TenantID: r.Config.Azure.TenantID}}}
	controlPlane, dataPlane := &identities.ControlPlane, &identities.DataPlane
	// Each operator has a name in the ARM contract and a short name in the name of its credential.
	for _, o := range []struct {
		field           *hyperv1.ManagedIdentity
		operator, short string
	}{
		{&controlPlane.CloudProvider, "cloud-controller-manager", "ccm"},
		{&controlPlane.NodePoolManagement, "cluster-api-azure", "capz"},
		{&controlPlane.ControlPlaneOperator, "control-plane", "cpo"},
		{&controlPlane.ImageRegistry, "image-registry", "registry"},
		{&controlPlane.Ingress, "ingress", "ingress"},
		{&controlPlane.Network, "cloud-network-config", "network"},
		{&controlPlane.Disk, "disk-csi-driver", "disk"},
		{&controlPlane.File, "file-csi-driver", "file"},
	} {
		var err error
		if *o.field, err = r.controlPlaneIdentity(c, o.operator, o.short); err != nil {
			return nil, err
		}
	}
	for _, o := range []struct {
		field    *string
		operator string
	}{
		{&dataPlane.ImageRegistryMSIClientID, "image-registry"},
		{&dataPlane.DiskMSIClientID, "disk-csi-driver"},
		{&dataPlane.FileMSIClientID, "file-csi-driver"},
	} {
		*o.field = r.clientID(c, c.Spec.GetPlatform().GetDataPlaneOperators()[o.operator], "data-plane/"+o.operator)
		if *o.field == "" {
			return nil, fmt.Errorf("the identity of data plane operator %q has no client id", o.operator)
		}
	}
	return identities, nil
}

// controlPlaneIdentity returns an operator's identity with the name of its secret in the vault of credentials.
func (r *Renderer) controlPlaneIdentity(c *fleet.Cluster, operator, short string) (hyperv1.ManagedIdentity, error) {
	clientID := r.clientID(c, c.Spec.GetPlatform().GetControlPlaneOperators()[operator], "control-plane/"+operator)
	if clientID == "" {
		return hyperv1.ManagedIdentity{}, fmt.Errorf("the identity of control plane operator %q has no client id", operator)
	}
	return hyperv1.ManagedIdentity{ClientID: hyperv1.AzureClientID(clientID), CredentialsSecretName: short + "-" + c.ID(), ObjectEncoding: "utf-8"}, nil
}

// clientID returns the client ID that ARM reported for an identity, and "" if it reported none. A local region uses a
// placeholder that is derived from the cluster and the role instead.
func (r *Renderer) clientID(c *fleet.Cluster, armID, role string) string {
	if identity := c.Spec.GetIdentities()[strings.ToLower(armID)]; armID != "" && identity.GetClientId() != "" {
		return identity.GetClientId()
	}
	if r.Environment != LocalEnvironment {
		return ""
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("hcpmesh identity\n"+c.UID+"\n"+role)).String()
}
