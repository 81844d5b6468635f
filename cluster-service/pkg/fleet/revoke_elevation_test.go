package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestElevationIsRevoked is the table of the revocation v1 of elevation e1, on a cluster with one credential of each of the elevations
// e1 and e2.
func TestElevationIsRevoked(t *testing.T) {
	const sre = csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	requests, certificates := map[string]string{}, map[string]string{}
	for _, e := range []string{"e1", "e2"} {
		key, certificate := newKey(t), newIssued(start.Add(time.Hour))
		certificate.issuer = strings.Replace(certificate.issuer, "_customer", "_sre", 1)
		requests[e], certificates[e] = newRequest(t, key), certificate.sign(t, key)
	}
	type step func(*fleet.ClusterAggregate)
	issue := func(elevations ...string) step {
		return func(t *fleet.ClusterAggregate) {
			for _, e := range elevations {
				o := applied("")
				o.Certificate, o.ServingCA = certificates[e], "ca"
				t.Work(fleet.CredentialWork, e).Observed = o
			}
		}
	}
	// removed reports the deletion of the works of credentials that no longer need one.
	removed := func(t *fleet.ClusterAggregate) {
		for _, w := range t.Works {
			if w.Kind == fleet.CredentialWork && w.Deleting() {
				w.Observed.Deleted = true
			}
		}
	}
	expired := func(t *fleet.ClusterAggregate) { t.Credentials[0].Status.ExpirationTime.Seconds = start.Unix() }
	revoke := func(uid, elevation string) step {
		return func(t *fleet.ClusterAggregate) {
			t.RevokeElevation(&fleet.Revocation{UID: uid, Class: sre, Elevation: elevation, Requester: "bob", Reason: "r",
				Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING}})
		}
	}
	report := func(uid, condition, status string) step {
		return func(t *fleet.ClusterAggregate) {
			t.Work(fleet.RevocationWork, uid).Observed = feedback.Observed{Conditions: map[string]feedback.Condition{condition: {Status: status, Reason: "R"}}}
		}
	}
	deleteCluster := func(t *fleet.ClusterAggregate) { t.Cluster.DeleteTime = start }
	replaced := report("v1", feedback.PreviousCertificatesRevoked, "True")
	for name, tc := range map[string]struct {
		reason string
		steps  []step
		// own and other are the states of the credentials, revocations those of the revocations in order of their requests.
		own, other, revocations string
		// signers is the number of works that replace a signer.
		signers int
	}{
		"not signed":               {"no certificate exists, so the signer stays", []step{revoke("v1", "e1")}, "CANCELED", "PENDING", "SUCCEEDED", 0},
		"issued":                   {"only another signer ends a certificate", []step{issue("e1", "e2"), removed, revoke("v1", "e1")}, "AWAITING_REVOCATION", "AWAITING_REVOCATION", "REVOKING", 1},
		"other not signed":         {"the new signer must not sign an old request", []step{issue("e1"), revoke("v1", "e1")}, "AWAITING_REVOCATION", "CANCELED", "PENDING", 0},
		"replaced":                 {"the API server rejects the signer", []step{issue("e1", "e2"), removed, revoke("v1", "e1"), replaced}, "REVOKED", "REVOKED", "SUCCEEDED", 0},
		"of an elevation without":  {"there is nothing to revoke", []step{issue("e1", "e2"), revoke("v1", "e3")}, "ISSUED", "ISSUED", "SUCCEEDED", 0},
		"expired before":           {"the API server rejects an expired certificate", []step{issue("e1", "e2"), expired, revoke("v1", "e1")}, "EXPIRED", "ISSUED", "SUCCEEDED", 0},
		"refused":                  {"the certificate works until it expires, and the others again", []step{issue("e1", "e2"), removed, revoke("v1", "e1"), report("v1", feedback.SignerClassValid, "False")}, "AWAITING_REVOCATION", "ISSUED", "FAILED", 0},
		"second waits":             {"one signer is replaced at a time", []step{issue("e1", "e2"), removed, revoke("v1", "e1"), revoke("v2", "e2")}, "AWAITING_REVOCATION", "AWAITING_REVOCATION", "REVOKING PENDING", 1},
		"one signer for both":      {"the certificates of both had the replaced signer", []step{issue("e1", "e2"), removed, revoke("v1", "e1"), revoke("v2", "e2"), replaced}, "REVOKED", "REVOKED", "SUCCEEDED SUCCEEDED", 0},
		"second begins":            {"the first one has replaced nothing", []step{issue("e1", "e2"), removed, revoke("v1", "e1"), revoke("v2", "e2"), report("v1", feedback.SignerClassValid, "False")}, "AWAITING_REVOCATION", "AWAITING_REVOCATION", "FAILED REVOKING", 1},
		"cluster is being deleted": {"the API server is deleted soon", []step{issue("e1", "e2"), deleteCluster, revoke("v1", "e1")}, "AWAITING_REVOCATION", "ISSUED", "CANCELED", 0},
	} {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			aggregate.Work(fleet.HostedCluster, "").Observed = hosted("cluster-1", "True", "Completed")
			for _, e := range []string{"e1", "e2"} {
				aggregate.Credentials = append(aggregate.Credentials, &fleet.Credential{UID: e,
					Spec:   &csv1.BreakGlassCredentialSpec{Class: sre, Elevation: e, CertificateSigningRequest: requests[e]},
					Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}})
			}
			settle(t, aggregate, nil)
			for _, step := range tc.steps {
				step(aggregate)
				settle(t, aggregate, nil)
			}
			var revocations []string
			for _, v := range aggregate.Revocations {
				revocations = append(revocations, strings.TrimPrefix(v.Status.GetState().String(), "BREAK_GLASS_REVOCATION_STATE_"))
				if !aggregate.ElevationRevoked(v.Elevation) {
					t.Errorf("another credential of %s may be issued", v.Elevation)
				}
			}
			state := func(i int) string {
				return strings.TrimPrefix(aggregate.Credentials[i].State().String(), "BREAK_GLASS_CREDENTIAL_STATE_")
			}
			signers := 0
			for _, w := range aggregate.Works {
				if w.Kind == fleet.RevocationWork && !w.Deleting() {
					signers++
				}
			}
			if got := strings.Join(revocations, " "); state(0) != tc.own || state(1) != tc.other || got != tc.revocations || signers != tc.signers {
				t.Errorf("credentials %s and %s, revocations %s, %d signers to replace; want %s and %s, %s, %d: %s", state(0), state(1), got, signers,
					tc.own, tc.other, tc.revocations, tc.signers, tc.reason)
			}
			if name == "second waits" {
				waits := aggregate.Revocations[1].Status.GetProgress()
				if len(waits) != 1 || waits[0].GetState() != "AwaitingRevocation" || !strings.Contains(waits[0].GetMessage(), "the revocation v1") {
					t.Errorf("the waiting revocation reports %v, want it to name the other one", waits)
				}
			}
			again := aggregate.Clone()
			settle(t, again, nil)
			if !slices.EqualFunc(again.Revocations, aggregate.Revocations, func(a, b *fleet.Revocation) bool { return a.Status.GetState() == b.Status.GetState() }) || len(again.Works) != len(aggregate.Works) {
				t.Error("settling twice changed the result")
			}
		})
	}
}
