package fleet

import (
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// RevokeElevation revokes the credentials that were requested with an elevation, and prevents further ones. It marks them as revoked
// alone, so that none becomes valid again if the control plane refuses the revocation. The revocation replaces the signer of the
// class if the API server accepts one of their certificates; see advanceRevocation.
func (t *ClusterAggregate) RevokeElevation(v *Revocation) {
	for _, c := range t.Credentials {
		if c.sameElevation(v.Elevation) && !c.ended() && c.Status.GetRevocation() == nil {
			c.Status.Revocation = &csv1.BreakGlassCredentialRevocation{Uid: v.UID, Requester: v.Requester, Reason: v.Reason, CreateTime: timestamp(v.CreateTime)}
		}
	}
	t.Revocations = append(t.Revocations, v)
}

// accepts reports whether the API server may accept a certificate of an elevation at a time.
func (t *ClusterAggregate) accepts(now time.Time, elevation string) bool {
	return slices.ContainsFunc(t.Credentials, func(c *Credential) bool {
		switch c.State() {
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION:
			return c.sameElevation(elevation) && now.Before(c.Status.GetExpirationTime().AsTime())
		}
		return false
	})
}

// replacing returns the active revocation of a class that has a work, or nil. The next one waits for its end.
func (t *ClusterAggregate) replacing(class csv1.BreakGlassClass) *Revocation {
	i := slices.IndexFunc(t.Revocations, func(v *Revocation) bool {
		return v.Class == class && v.Active() && t.Work(RevocationWork, v.UID) != nil
	})
	if i < 0 {
		return nil
	}
	return t.Revocations[i]
}
