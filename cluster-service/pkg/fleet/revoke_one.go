package fleet

import (
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

// RevokedElevation returns a credential that was requested with an elevation and revoked alone, or nil. No further credential is
// issued with this elevation.
func (t *ClusterAggregate) RevokedElevation(elevation string) *Credential {
	for _, c := range t.Credentials {
		if c.Status.GetRevocation() != nil && c.sameElevation(elevation) {
			return c
		}
	}
	return nil
}

func (c *Credential) sameElevation(elevation string) bool {
	return elevation != "" && c.Spec.GetElevation() == elevation
}
