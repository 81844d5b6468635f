package fleet

import (
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// A kube-apiserver authenticates a request once. A watch or a command in a pod that it has accepted goes on after the revocation of its
// certificate, until the server stops. HyperShift does not restart servers after a revocation, so Cluster Service requests it, with an
// annotation of the HostedCluster. It does so only if access was taken away from an engineer: engineers end their own elevations when
// their work is done, and a restart replaces all pods of the control plane.

// takesAway reports whether the replacement of a signer takes access away from an engineer: an active revocation of the class takes away a
// credential.
func (t *ClusterAggregate) takesAway(class csv1.BreakGlassClass) bool {
	return slices.ContainsFunc(t.Revocations, func(v *Revocation) bool {
		return v.Class == class && v.Active() && slices.ContainsFunc(t.Credentials, v.takesAway)
	})
}

// takesAway reports whether a revocation takes a credential away from its holder: it is for the elevation with which the certificate was issued, and
// another person than the holder, or the ticket validator, requested it.
func (v *Revocation) takesAway(c *Credential) bool {
	return v.Elevation != "" && c.sameElevation(v.Elevation) && c.Status.GetCertificateFingerprint() != "" && c.Spec.GetRequester() != v.Requester
}

// revokedBefore reports whether a revocation takes away a credential that an earlier revocation of the class has revoked without a restart: requests in
// progress go on.
func (t *ClusterAggregate) revokedBefore(v *Revocation) bool {
	return slices.ContainsFunc(t.Revocations, func(earlier *Revocation) bool {
		return earlier.Class == v.Class && earlier.Status.GetState() == csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED &&
			earlier.Status.GetCompletionTime().AsTime().After(t.Cluster.RestartTime())
	}) && slices.ContainsFunc(t.Credentials, func(c *Credential) bool {
		return c.State() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED && v.takesAway(c)
	})
}

// awaitsRestart reports whether the end of an active revocation requests a restart of the control plane.
func (t *ClusterAggregate) awaitsRestart() bool {
	return t.takesAway(csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE)
}

// RestartTime returns when a restart of the control plane was last requested; zero if never.
func (c *Cluster) RestartTime() time.Time {
	if c == nil || c.Status.GetControlPlaneRestartTime() == nil {
		return time.Time{}
	}
	return c.Status.GetControlPlaneRestartTime().AsTime()
}
