package render

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// managedIdentities returns the identities of the operators. If Azure has not reported all of them, the error is
// fleet.ErrIdentityUnread.
func (r *Renderer) managedIdentities(t *fleet.ClusterAggregate) (*hyperv1.AzureResourceManagedIdentities, error) {
	identities := &hyperv1.AzureResourceManagedIdentities{ControlPlane: hyperv1.ControlPlaneManagedIdentities{
		ManagedIdentitiesKeyVault: hyperv1.ManagedAzureKeyVault{Name: r.Config.Azure.IdentitiesVault, TenantID: r.Config.Azure.TenantID}}}
	controlPlane, dataPlane := &identities.ControlPlane, &identities.DataPlane
	var unread error
	for _, o := range []struct {
		field    *hyperv1.ManagedIdentity
		operator string
	}{
		{&controlPlane.CloudProvider, "cloud-controller-manager"},
		{&controlPlane.NodePoolManagement, "cluster-api-azure"},
		{&controlPlane.ControlPlaneOperator, "control-plane"},
		{&controlPlane.ImageRegistry, "image-registry"},
		{&controlPlane.Ingress, "ingress"},
		{&controlPlane.Network, "cloud-network-config"},
		{&controlPlane.Disk, "disk-csi-driver"},
		{&controlPlane.File, "file-csi-driver"},
	} {
		identity, err := r.controlPlaneIdentity(t, o.operator)
		if unread = errors.Join(unread, err); err != nil && !errors.Is(err, fleet.ErrIdentityUnread) {
			return nil, err
		}
		*o.field = identity
	}
	for _, o := range []struct {
		field    *string
		operator string
	}{
		{&dataPlane.ImageRegistryMSIClientID, "image-registry"},
		{&dataPlane.DiskMSIClientID, "disk-csi-driver"},
		{&dataPlane.FileMSIClientID, "file-csi-driver"},
	} {
		clientID, err := r.clientID(t, t.Cluster.Spec.GetPlatform().GetDataPlaneOperators()[o.operator], "data-plane/"+o.operator)
		if unread = errors.Join(unread, err); err != nil && !errors.Is(err, fleet.ErrIdentityUnread) {
			return nil, fmt.Errorf("the identity of data plane operator %q: %w", o.operator, err)
		}
		*o.field = clientID
	}
	if unread != nil {
		return nil, fleet.ErrIdentityUnread
	}
	return identities, nil
}

// controlPlaneIdentity returns an operator's identity with the name of its secret in the vault of credentials.
func (r *Renderer) controlPlaneIdentity(t *fleet.ClusterAggregate, operator string) (hyperv1.ManagedIdentity, error) {
	clientID, err := r.clientID(t, t.Cluster.Spec.GetPlatform().GetControlPlaneOperators()[operator], "control-plane/"+operator)
	if err != nil {
		return hyperv1.ManagedIdentity{}, fmt.Errorf("the identity of control plane operator %q: %w", operator, err)
	}
	return hyperv1.ManagedIdentity{ClientID: hyperv1.AzureClientID(clientID), CredentialsSecretName: t.Cluster.CredentialName(operator), ObjectEncoding: "utf-8"}, nil
}

// clientID returns the client ID of an operator's identity. It is the one that Azure reported, or in a region without Azure
// the one in the cluster's spec. On a developer's machine, an operator has a placeholder that is derived from the cluster and
// the role if it has no identity, or if the region is without Azure.
func (r *Renderer) clientID(t *fleet.ClusterAggregate, armID, role string) (string, error) {
	switch {
	case armID != "" && r.Region.ReadsIdentities():
		if id := t.Azure.ClientID(armID); id != "" {
			return id, nil
		}
		return "", fleet.ErrIdentityUnread
	case armID != "" && t.Cluster.Spec.GetIdentities()[strings.ToLower(armID)].GetClientId() != "":
		return t.Cluster.Spec.GetIdentities()[strings.ToLower(armID)].GetClientId(), nil
	case r.Developer:
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte("hcpmesh identity\n"+t.Cluster.UID+"\n"+role)).String(), nil
	case armID == "":
		return "", errors.New("the cluster names none")
	}
	return "", errors.New("it has no client ID, and the region does not read client IDs from Azure")
}
