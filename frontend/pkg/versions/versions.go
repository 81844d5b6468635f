// Package versions has the functions that convert between the wire form of each ARM api-version and the hub types.
package versions

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Version is one api-version.
type Version struct {
	// Name is the value of the api-version parameter.
	Name string

	// The encoders return a value that json.Marshal writes as the response.
	EncodeCluster      func(cluster *hub.Cluster, state hub.ProvisioningState, status *hub.ClusterStatus) any
	EncodeNodePool     func(pool *hub.NodePool, state hub.ProvisioningState, status *hub.NodePoolStatus) any
	EncodeExternalAuth func(auth *hub.ExternalAuth, state hub.ProvisioningState, status *hub.ExternalAuthStatus) any
	// The decoders apply a body to a stored resource, or to a new one that has an ID, name and type only; see shape.Converter.Decode.
	DecodeCluster      func(body *wire.Body, base *hub.Cluster, defaults bool) *hub.Cluster
	DecodeNodePool     func(body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool
	DecodeExternalAuth func(body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth
	// unknownFields return the path of a field of a body that the version does not have, by resource type.
	unknownFields map[string]func(body map[string]any) string
	// forms are the forms of bodies by resource type.
	forms map[string]*wire.Form
	// paths converts hub paths to wire paths, by resource type.
	paths map[string]func(hubPath string) (string, bool)

	EncodeOpenShiftVersion        func(version *hub.OpenShiftVersion) any
	EncodeOperatorIdentityRoleSet func(set *hub.OperatorIdentityRoleSet) any

	// DecodeAdminCredentialRequest decodes the body of requestAdminCredential. It is nil if the version has no body; the
	// service then generates the key.
	DecodeAdminCredentialRequest func(body *wire.Body) *hub.AdminCredentialRequest
	EncodeAdminCredential        func(credential *hub.AdminCredential) any
}

// Path returns the wire path of a hub path such as tags[name]. It returns false if the version does not have the field or
// the resource type.
func (v *Version) Path(resourceType, hubPath string) (string, bool) {
	path, ok := v.paths[resourceType]
	if !ok {
		return "", false
	}
	return path(hubPath)
}

// UnknownField returns the path of a field of a body that the version does not have, and the empty string if there is none.
func (v *Version) UnknownField(resourceType string, body map[string]any) string {
	return v.unknownFields[resourceType](body)
}

// Form returns the form of the bodies of a resource type: the values that decoding reads.
func (v *Version) Form(resourceType string) *wire.Form { return v.forms[resourceType] }

// All returns the api-versions by name.
func All() map[string]*Version {
	apis := version.All()
	newest := bind(apis[len(apis)-1])
	all := map[string]*Version{}
	for i, api := range apis {
		own := newest
		if i < len(apis)-1 {
			own = bind(api).withDefaultsOf(newest)
		}
		all[api.Name] = newVersion(api, own)
	}
	return all
}

// converters are the converters of one api-version.
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

func (c converters) withDefaultsOf(newest converters) converters {
	return converters{c.cluster.WithDefaultsOf(newest.cluster), c.nodePool.WithDefaultsOf(newest.nodePool), c.externalAuth.WithDefaultsOf(newest.externalAuth)}
}

func newVersion(api version.Version, own converters) *Version {
	v := &Version{
		Name:          api.Name,
		EncodeCluster: own.cluster.Encode, DecodeCluster: own.cluster.Decode,
		EncodeNodePool: own.nodePool.Encode, DecodeNodePool: own.nodePool.Decode,
		EncodeExternalAuth: own.externalAuth.Encode, DecodeExternalAuth: own.externalAuth.Decode,

		unknownFields: map[string]func(map[string]any) string{
			hub.ClusterResourceType: own.cluster.UnknownField, hub.NodePoolResourceType: own.nodePool.UnknownField, hub.ExternalAuthResourceType: own.externalAuth.UnknownField,
		},
		forms: map[string]*wire.Form{
			hub.ClusterResourceType: own.cluster.Form(), hub.NodePoolResourceType: own.nodePool.Form(), hub.ExternalAuthResourceType: own.externalAuth.Form(),
		},
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
