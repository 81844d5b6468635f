package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
				observe(t.Work(fleet.CredentialWork, e), o)
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
			observe(t.Work(fleet.RevocationWork, uid), feedback.Observed{Conditions: map[string]feedback.Condition{condition: {Status: status, Reason: "R"}}})
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
		"other not signed":         {"its request is deleted before the signer is replaced", []step{issue("e1"), revoke("v1", "e1")}, "AWAITING_REVOCATION", "PENDING", "PENDING", 0},
		"other signed late":        {"the certificate has the signer that is replaced", []step{issue("e1"), revoke("v1", "e1"), issue("e2")}, "AWAITING_REVOCATION", "PENDING", "PENDING", 0},
		"other waits":              {"no request exists while the signer is replaced", []step{issue("e1"), revoke("v1", "e1"), removed}, "AWAITING_REVOCATION", "PENDING", "REVOKING", 1},
		"other has a new signer":   {"its request is made again", []step{issue("e1"), revoke("v1", "e1"), removed, replaced, issue("e2")}, "REVOKED", "ISSUED", "SUCCEEDED", 0},
		"other, expired meanwhile": {"the signer stays, and the request is made again", []step{issue("e1"), revoke("v1", "e1"), expired, removed, issue("e2")}, "REVOKED", "ISSUED", "SUCCEEDED", 0},
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
			observe(aggregate.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Completed"))
			for _, e := range []string{"e1", "e2"} {
				aggregate.Credentials = append(aggregate.Credentials, &fleet.Credential{UID: e,
					Spec:   &csv1.BreakGlassCredentialSpec{Class: sre, Elevation: e, Requester: "bob", CertificateSigningRequest: requests[e]},
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

// restarts is a Renderer whose digests depend on the requested restart only. It fails while broken is set.
type restarts struct{ broken bool }

func (*restarts) OmittedRanges(*fleet.Cluster) []string { return nil }

func (r *restarts) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	if r.broken {
		return "", errors.New("the pull secret is not valid")
	}
	if w.Kind == fleet.HostedCluster {
		return "restart " + t.Cluster.RestartTime().String(), nil
	}
	return "immutable", nil
}

// twoElevations returns an available cluster for which ada has a certificate with the elevation e1, and carol one with e2.
func twoElevations(t *testing.T, renderer fleet.Renderer) *fleet.ClusterAggregate {
	t.Helper()
	aggregate := placed(t)
	settle(t, aggregate, renderer)
	published := aggregate.Work(fleet.HostedCluster, "")
	observe(published, hosted(published.Digest, "True", "Completed"))
	for _, holder := range [][2]string{{"e1", "ada"}, {"e2", "carol"}} {
		aggregate.Credentials = append(aggregate.Credentials, &fleet.Credential{UID: "credential of " + holder[0],
			Spec: &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Elevation: holder[0], Requester: holder[1]},
			Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, CertificateFingerprint: "f",
				ExpirationTime: timestamppb.New(start.Add(time.Hour))}})
	}
	settle(t, aggregate, nil)
	return aggregate
}

func pendingRevocation(uid, elevation, requester string) *fleet.Revocation {
	return &fleet.Revocation{UID: uid, Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Elevation: elevation, Requester: requester,
		Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING}}
}

// TestEndByAnotherPersonRestartsControlPlane checks when the end of an elevation requests a restart of the control plane: when the API
// server rejects the certificates, and another person ended it.
func TestEndByAnotherPersonRestartsControlPlane(t *testing.T) {
	const (
		revoking  = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING
		succeeded = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED
	)
	revocation := func(elevation, requester string) *fleet.Revocation {
		return pendingRevocation("revocation of "+elevation, elevation, requester)
	}
	for name, tc := range map[string]struct {
		reason      string
		revocations []*fleet.Revocation
		broken      bool
		restarts    bool
		state       csv1.BreakGlassRevocationState
	}{
		"by its engineer":        {"the work is done", []*fleet.Revocation{revocation("e1", "ada")}, false, false, succeeded},
		"by another engineer":    {"access is taken away", []*fleet.Revocation{revocation("e1", "bob")}, false, true, succeeded},
		"of the class":           {"a restart is not part of it", []*fleet.Revocation{revocation("", "bob")}, false, false, succeeded},
		"one signer for two":     {"the second one takes access away", []*fleet.Revocation{revocation("e1", "ada"), revocation("e2", "ada")}, false, true, succeeded},
		"of another elevation":   {"its engineer has no certificate", []*fleet.Revocation{revocation("e1", "ada"), revocation("e3", "bob")}, false, false, succeeded},
		"cannot be rendered":     {"it ends when the restart can be requested", []*fleet.Revocation{revocation("e1", "bob")}, true, false, revoking},
		"own, and no renderable": {"it needs no restart", []*fleet.Revocation{revocation("e1", "ada")}, true, false, succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			renderer := &restarts{}
			aggregate := twoElevations(t, renderer)
			for _, v := range tc.revocations {
				aggregate.RevokeElevation(v)
			}
			now := start
			observed := func() {
				t.Helper()
				now = now.Add(time.Minute)
				must.Do(t, region.SettleObserved(now, aggregate, renderer))
			}
			// A settlement that fails replaces the rows of the aggregate.
			status := func() *csv1.BreakGlassRevocationStatus { return aggregate.Revocation(tc.revocations[0].UID).Status }
			observed()
			desired := aggregate.Work(fleet.HostedCluster, "").Desired
			if !aggregate.Cluster.RestartTime().IsZero() {
				t.Error("a restart is requested before the API server rejects the certificates")
			}
			renderer.broken = tc.broken
			aggregate.Work(fleet.RevocationWork, tc.revocations[0].UID).Observed = feedback.Observed{
				Conditions: map[string]feedback.Condition{feedback.PreviousCertificatesRevoked: {Status: "True"}}}
			for range 2 { // the second time changes nothing
				observed()
				if got := !aggregate.Cluster.RestartTime().IsZero(); got != tc.restarts {
					t.Errorf("a restart is requested: %t, want %t: %s", got, tc.restarts, tc.reason)
				}
				if got := aggregate.Work(fleet.HostedCluster, "").Desired - desired; got != map[bool]int64{true: 1}[tc.restarts] {
					t.Errorf("the HostedCluster is published %d times for the restart %t: %s", got, tc.restarts, tc.reason)
				}
				if got := status().GetState(); got != tc.state {
					t.Errorf("the revocation is %s, want %s: %s", got, tc.state, tc.reason)
				}
			}
			if !tc.broken || tc.state == succeeded {
				return
			}
			if p := status().GetProgress(); p[len(p)-1].GetState() != "AwaitingRestart" {
				t.Errorf("the progress is %v", p)
			}
			renderer.broken = false
			observed()
			if aggregate.Cluster.RestartTime().IsZero() || aggregate.Work(fleet.HostedCluster, "").Desired == desired || status().GetState() != succeeded {
				t.Errorf("when it can be rendered again: restart at %s, %s", aggregate.Cluster.RestartTime(), status())
			}
		})
	}
}

// TestLateEndRestartsControlPlane ends an elevation after another revocation of the class has revoked its certificate without a restart. The requests in progress
// end only if the late end requests the restart.
func TestLateEndRestartsControlPlane(t *testing.T) {
	for name, tc := range map[string]struct {
		requester string
		restarts  bool
	}{"by its engineer": {"carol", false}, "by another engineer": {"bob", true}} {
		t.Run(name, func(t *testing.T) {
			renderer := &restarts{}
			aggregate := twoElevations(t, renderer)
			now := start
			revoke := func(uid, elevation, requester string) {
				aggregate.RevokeElevation(pendingRevocation(uid, elevation, requester))
			}
			observed := func() {
				t.Helper()
				now = now.Add(time.Minute)
				must.Do(t, region.SettleObserved(now, aggregate, renderer))
			}
			requireRestart := func(step string, want time.Time) {
				t.Helper()
				if got := aggregate.Cluster.RestartTime(); !got.Equal(want) {
					t.Errorf("%s: a restart is requested at %s, want %s", step, got, want)
				}
			}
			revoke("own", "e1", "ada")
			observed()
			aggregate.Work(fleet.RevocationWork, "own").Observed = feedback.Observed{Conditions: map[string]feedback.Condition{feedback.PreviousCertificatesRevoked: {Status: "True"}}}
			observed()
			requireRestart("after the own end", time.Time{})
			if state := aggregate.Credential("credential of e2").State(); state != csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED {
				t.Fatalf("the certificate of the other elevation is %s", state)
			}
			revoke("late", "e2", tc.requester)
			observed()
			want := time.Time{}
			if tc.restarts {
				want = now
			}
			requireRestart("after the late end", want)
			if state := aggregate.Revocation("late").Status.GetState(); state != csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED {
				t.Errorf("the late revocation is %s", state)
			}
			revoke("again", "e2", tc.requester)
			observed()
			requireRestart("after another end", want)
		})
	}
}
