package render

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// LocalEnvironment is the environment in which there is no Azure: identities without a client id get a placeholder.
const LocalEnvironment = "local"

// operators maps HyperShift's fields for control plane identities to the operator names of the ARM contract and to the
// short names of their credentials.
var operators = []struct{ field, operator, short string }{
	{"cloudProvider", "cloud-controller-manager", "ccm"},
	{"nodePoolManagement", "cluster-api-azure", "capz"},
	{"controlPlaneOperator", "control-plane", "cpo"},
	{"imageRegistry", "image-registry", "registry"},
	{"ingress", "ingress", "ingress"},
	{"network", "cloud-network-config", "network"},
	{"disk", "disk-csi-driver", "disk"},
	{"file", "file-csi-driver", "file"},
}

// dataPlaneOperators maps HyperShift's fields for data plane identities to the operator names of the ARM contract.
var dataPlaneOperators = []struct{ field, operator string }{
	{"imageRegistryMSIClientID", "image-registry"},
	{"diskMSIClientID", "disk-csi-driver"},
	{"fileMSIClientID", "file-csi-driver"},
}

func (r *Renderer) managedIdentities(c *fleet.Cluster) (object, error) {
	controlPlane := object{"managedIdentitiesKeyVault": object{"name": r.Config.Azure.IdentitiesVault, "tenantID": r.Config.Azure.TenantID}}
	for _, o := range operators {
		identity := r.controlPlaneIdentity(c, o.operator)
		if identity["clientID"] == "" {
			return nil, fmt.Errorf("the identity of control plane operator %q has no client id", o.operator)
		}
		controlPlane[o.field] = identity
	}
	dataPlane := object{}
	for _, o := range dataPlaneOperators {
		clientID := r.clientID(c, c.Spec.GetPlatform().GetDataPlaneOperators()[o.operator], "data-plane/"+o.operator)
		if clientID == "" {
			return nil, fmt.Errorf("the identity of data plane operator %q has no client id", o.operator)
		}
		dataPlane[o.field] = clientID
	}
	return object{"controlPlane": controlPlane, "dataPlane": dataPlane}, nil
}

// controlPlaneIdentity is an operator's identity, with the name of the secret in the identities' vault that holds its
// credentials.
func (r *Renderer) controlPlaneIdentity(c *fleet.Cluster, operator string) object {
	short := operator
	for _, o := range operators {
		if o.operator == operator {
			short = o.short
		}
	}
	return object{
		"clientID":              r.clientID(c, c.Spec.GetPlatform().GetControlPlaneOperators()[operator], "control-plane/"+operator),
		"credentialsSecretName": short + "-" + c.ID(),
		"objectEncoding":        "utf-8",
	}
}

// clientID is what ARM told of an identity. Where it told nothing, a local region takes a placeholder that follows from
// the cluster and the role; anywhere else the cluster cannot be rendered.
func (r *Renderer) clientID(c *fleet.Cluster, armID, role string) string {
	if identity := c.Spec.GetIdentities()[strings.ToLower(armID)]; armID != "" && identity.GetClientId() != "" {
		return identity.GetClientId()
	}
	if r.Environment != LocalEnvironment {
		return ""
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("hcpmesh identity\n"+c.UID+"\n"+role)).String()
}
