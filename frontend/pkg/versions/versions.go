// Package versions is the set of ARM api-versions that the frontend speaks, each as the functions that lead from its wire
// form to the hub types and back. A new api-version is a package of converters under api/ and one entry here.
package versions

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/v20260901preview"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Version is one api-version.
type Version struct {
	// Name is the value of the api-version parameter.
	Name string
	// The encoders make what is marshalled into a response.
	EncodeCluster                 func(cluster *hub.Cluster, state hub.ProvisioningState, status *hub.ClusterStatus) any
	EncodeNodePool                func(pool *hub.NodePool, state hub.ProvisioningState, status *hub.NodePoolStatus) any
	EncodeOpenShiftVersion        func(version *hub.OpenShiftVersion) any
	EncodeOperatorIdentityRoleSet func(set *hub.OperatorIdentityRoleSet) any
	EncodeExternalAuth            func(auth *hub.ExternalAuth, state hub.ProvisioningState, status *hub.ExternalAuthStatus) any
	// The decoders read a body over the resource as it stands; defaults are those of the version.
	DecodeCluster      func(body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster
	DecodeNodePool     func(body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool
	DecodeExternalAuth func(body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth
}

// All are the api-versions, by name.
func All() map[string]*Version {
	all := map[string]*Version{}
	for _, version := range []*Version{
		{
			Name: v20260901preview.Version,
			EncodeCluster: func(cluster *hub.Cluster, state hub.ProvisioningState, status *hub.ClusterStatus) any {
				return v20260901preview.EncodeCluster(cluster, state, status)
			},
			EncodeNodePool: func(pool *hub.NodePool, state hub.ProvisioningState, status *hub.NodePoolStatus) any {
				return v20260901preview.EncodeNodePool(pool, state, status)
			},
			EncodeExternalAuth: func(auth *hub.ExternalAuth, state hub.ProvisioningState, status *hub.ExternalAuthStatus) any {
				return v20260901preview.EncodeExternalAuth(auth, state, status)
			},
			EncodeOpenShiftVersion: func(version *hub.OpenShiftVersion) any {
				return v20260901preview.EncodeOpenShiftVersion(version)
			},
			EncodeOperatorIdentityRoleSet: func(set *hub.OperatorIdentityRoleSet) any {
				return v20260901preview.EncodeOperatorIdentityRoleSet(set)
			},
			DecodeCluster: func(body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster {
				return v20260901preview.DecodeCluster(body, base, v20260901preview.Defaults(defaults))
			},
			DecodeNodePool: func(body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool {
				return v20260901preview.DecodeNodePool(body, base, v20260901preview.Defaults(defaults))
			},
			DecodeExternalAuth: func(body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth {
				return v20260901preview.DecodeExternalAuth(body, base, v20260901preview.Defaults(defaults))
			},
		},
	} {
		all[version.Name] = version
	}
	return all
}
