package app_test

import (
	"context"
	"fmt"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestCrashesDuringAccessConverge terminates the process at each point of the life cycles of an external authentication,
// a credential and a revocation, starts another one and expects the same result every time.
func TestCrashesDuringAccessConverge(t *testing.T) {
	t.Parallel()
	everyPoint(t, accessWithCrash, func(_ *testing.T, r *region) {
		r.start(nil)
		r.onlyWorks("")
	})
}

// accessWithCrash runs the scenario with a crash at the n-th point. It reports whether the scenario ended before that
// point.
func accessWithCrash(t *testing.T, r *region, n int) bool {
	r.hypershift.ProvideSecrets(true)
	steady := r.start(nil)
	cluster, _ := steady.createReady(t, fmt.Sprintf("a%d", n))
	steady.stop()
	d := crashAt(n)
	w := r.survivor(d)
	defer w.end()
	auth, credential, revocation := authRequest(cluster, "ea", 1), credentialRequest(t, cluster, customer), revokeRequest(cluster, customer)
	untilDone(t, func(ctx context.Context) error { _, err := w.now().ApplyExternalAuth(ctx, auth); return err })
	untilDone(t, func(ctx context.Context) error {
		_, err := w.now().ApplyBreakGlassCredential(ctx, credential)
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		a, err := w.now().GetExternalAuth(ctx, &csv1.GetExternalAuthRequest{Uid: auth.Uid})
		if err == nil && a.GetStatus().GetPhase() != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY {
			err = fmt.Errorf("point %d: external auth is %v", n, a.GetStatus())
		}
		return err
	})
	state := func(wanted csv1.BreakGlassCredentialState) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			c, err := w.now().GetBreakGlassCredential(ctx, &csv1.GetBreakGlassCredentialRequest{Uid: credential.Uid})
			if err == nil && c.GetStatus().GetState() != wanted {
				err = fmt.Errorf("point %d: credential is %v", n, c.GetStatus())
			}
			return err
		}
	}
	untilDone(t, state(csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED))
	untilDone(t, func(ctx context.Context) error {
		_, err := w.now().RevokeBreakGlassCredentials(ctx, revocation)
		return err
	})
	untilDone(t, state(csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED))
	untilDone(t, func(ctx context.Context) error {
		_, err := w.now().DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: cluster.Uid})
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		c, err := w.now().GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid})
		if err == nil && !clusterDeleted(c) {
			err = fmt.Errorf("point %d: cluster is %v", n, c.GetStatus())
		}
		return err
	})
	return d.unreached()
}
