package fleet

import (
	"slices"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// RevokeAlone revokes a credential and the others that were requested with its elevation. Those that were revoked before keep
// their revocation.
func (t *ClusterAggregate) RevokeAlone(c *Credential, revocation *csv1.BreakGlassCredentialRevocation) {
	for _, other := range t.Credentials {
		if other.Status.GetRevocation() == nil && (other == c || other.sameElevation(c.Spec.GetElevation())) {
			other.Status.Revocation = proto.CloneOf(revocation)
		}
	}
}

// ElevationRevoked reports whether the credentials of an elevation were revoked: all of them, or one alone. No further credential is
// issued with this elevation.
func (t *ClusterAggregate) ElevationRevoked(elevation string) bool {
	return elevation != "" && (slices.ContainsFunc(t.Revocations, func(v *Revocation) bool { return v.Elevation == elevation }) ||
		slices.ContainsFunc(t.Credentials, func(c *Credential) bool { return c.Status.GetRevocation() != nil && c.sameElevation(elevation) }))
}

func (c *Credential) sameElevation(elevation string) bool {
	return elevation != "" && c.Spec.GetElevation() == elevation
}
