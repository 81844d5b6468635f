// Package versions is the set of ARM api-versions that the frontend speaks, each as the functions that lead from its wire
// form to the hub types and back. A new api-version is a package of tables under api/ and one entry here.
package versions

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/v20240610preview"
	"github.com/hcpmesh/hcpmesh/api/v20251223preview"
	"github.com/hcpmesh/hcpmesh/api/v20260630preview"
	"github.com/hcpmesh/hcpmesh/api/v20260901preview"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Version is one api-version.
type Version struct {
	// Name is the value of the api-version parameter.
	Name string
	// ChoosesVersion says that a cluster may leave its OpenShift version to the service.
	ChoosesVersion bool

	// The encoders make what is marshalled into a response.
	EncodeCluster      func(cluster *hub.Cluster, state hub.ProvisioningState, status *hub.ClusterStatus) any
	EncodeNodePool     func(pool *hub.NodePool, state hub.ProvisioningState, status *hub.NodePoolStatus) any
	EncodeExternalAuth func(auth *hub.ExternalAuth, state hub.ProvisioningState, status *hub.ExternalAuthStatus) any
	// The decoders read a body over the resource as it stands; defaults are those of the version. A base with its id, name
	// and type alone is a resource that is made.
	DecodeCluster      func(body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster
	DecodeNodePool     func(body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool
	DecodeExternalAuth func(body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth
	// paths by resource type.
	paths map[string]func(hubPath string) (string, bool)

	EncodeOpenShiftVersion        func(version *hub.OpenShiftVersion) any
	EncodeOperatorIdentityRoleSet func(set *hub.OperatorIdentityRoleSet) any

	// DecodeAdminCredentialRequest reads the body of requestAdminCredential; nil when the version has none, and the
	// service makes the key.
	DecodeAdminCredentialRequest func(body *wire.Body) *hub.AdminCredentialRequest
	EncodeAdminCredential        func(credential *hub.AdminCredential) any
}

// Path is where the version has a field that the hub's resource has at a path, as in tags[name]; false when the version
// cannot say it.
func (v *Version) Path(resourceType, hubPath string) (string, bool) {
	return v.paths[resourceType](hubPath)
}

// APIs are the tables of the api-versions, the oldest first.
func APIs() []version.Version {
	return []version.Version{v20240610preview.API(), v20251223preview.API(), v20260630preview.API(), v20260901preview.API()}
}

// All are the api-versions, by name.
func All() map[string]*Version {
	apis := APIs()
	newest := bind(apis[len(apis)-1])
	all := map[string]*Version{}
	for i, api := range apis {
		own := newest
		if i < len(apis)-1 {
			own = bind(api).under(newest)
		}
		all[api.Name] = speak(api, own)
	}
	return all
}

// converters are an api-version's.
type converters struct {
	cluster      *shape.Converter[hub.Cluster, hub.ClusterStatus]
	nodePool     *shape.Converter[hub.NodePool, hub.NodePoolStatus]
	externalAuth *shape.Converter[hub.ExternalAuth, hub.ExternalAuthStatus]
}

func bind(api version.Version) converters {
	return converters{
		cluster:      shape.Bind[hub.Cluster, hub.ClusterStatus](api.Cluster),
		nodePool:     shape.Bind[hub.NodePool, hub.NodePoolStatus](api.NodePool),
		externalAuth: shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](api.ExternalAuth),
	}
}

func (c converters) under(newest converters) converters {
	return converters{c.cluster.WithDefaultsOf(newest.cluster), c.nodePool.WithDefaultsOf(newest.nodePool), c.externalAuth.WithDefaultsOf(newest.externalAuth)}
}

func speak(api version.Version, own converters) *Version {
	v := &Version{
		Name: api.Name, ChoosesVersion: api.VersionOptional,
		EncodeCluster: own.cluster.Encode, DecodeCluster: own.cluster.Decode,
		EncodeNodePool: own.nodePool.Encode, DecodeNodePool: own.nodePool.Decode,
		EncodeExternalAuth: own.externalAuth.Encode, DecodeExternalAuth: own.externalAuth.Decode,

		paths: map[string]func(string) (string, bool){
			hub.ClusterResourceType: own.cluster.Path, hub.NodePoolResourceType: own.nodePool.Path, hub.ExternalAuthResourceType: own.externalAuth.Path,
		},

		EncodeOpenShiftVersion:        func(v *hub.OpenShiftVersion) any { return version.EncodeOpenShiftVersion(v) },
		EncodeOperatorIdentityRoleSet: func(set *hub.OperatorIdentityRoleSet) any { return version.EncodeOperatorIdentityRoleSet(set) },
		EncodeAdminCredential:         func(credential *hub.AdminCredential) any { return version.EncodeAdminCredential(credential) },
	}
	if api.AcceptsCSR {
		v.DecodeAdminCredentialRequest = version.DecodeAdminCredentialRequest
	}
	return v
}
