package app_test

import (
	"sync"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// response is the outcome of a request that was sent concurrently.
type response struct {
	uid string
	err error
}

// concurrently sends n requests from several clients at the same time as an interruption. The second half of the
// requests is sent after the interruption has returned.
func concurrently(n int, request func() response, interrupt func()) []response {
	var mu sync.Mutex
	var all []response
	send := func(n int) *sync.WaitGroup {
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				a := request()
				mu.Lock()
				defer mu.Unlock()
				all = append(all, a)
			})
		}
		return &group
	}
	first := send(n / 2)
	interrupt()
	second := send(n - n/2)
	first.Wait()
	second.Wait()
	return all
}

// TestRequestsDuringRevocation sends requests and a revocation of their class concurrently. In any order of execution,
// credentials from before the revocation stop working, requests during it are rejected, and later requests work.
func TestRequestsDuringRevocation(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, ready := service.createReady(t, "c")
	namespace := fleet.ControlPlaneNamespace("local", &fleet.Cluster{UID: cluster.Uid, Status: ready.GetStatus()})
	revoke := revokeRequest(cluster, customer)
	all := concurrently(40, func() response {
		request := credentialRequest(t, cluster, customer)
		_, err := service.ApplyBreakGlassCredential(ctx, request)
		return response{request.Uid, err}
	}, func() {
		if _, err := service.RevokeBreakGlassCredentials(ctx, revoke); err != nil {
			t.Error(err)
		}
	})
	done := service.awaitRevocation(t, revoke.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED)
	outcomes := map[string]int{}
	for _, a := range all {
		if a.err != nil {
			if reasonOf(a.err) != "REVOCATION_IN_PROGRESS" {
				t.Errorf("request rejected with %v", a.err)
			}
			outcomes["refused"]++
			continue
		}
		c := service.awaitEnd(t, a.uid)
		outcomes[c.GetStatus().GetState().String()]++
		certificate := []byte(c.GetStatus().GetCertificate())
		trusted := r.hypershift.Trusts(namespace, "customer-break-glass", certificate)
		switch c.GetStatus().GetState() {
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:
			if c.GetCreateTime().AsTime().Before(done.GetStatus().GetCompletionTime().AsTime()) {
				t.Errorf("credential %s, created %s, survived the revocation that completed %s", a.uid, c.GetCreateTime().AsTime(), done.GetStatus().GetCompletionTime().AsTime())
			}
			if !trusted {
				t.Errorf("credential %s is issued, but the control plane does not trust it", a.uid)
			}
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:
			if trusted {
				t.Errorf("credential %s is revoked, but the control plane trusts it", a.uid)
			}
		case csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
			if len(certificate) > 0 {
				t.Errorf("credential %s is cancelled, but a certificate was issued", a.uid)
			}
		default:
			t.Errorf("credential %s is %s", a.uid, c.GetStatus().GetState())
		}
	}
	t.Logf("outcomes: %v", outcomes)

	service.issue(t, cluster, customer)
}

// awaitEnd waits until a credential is in a terminal state or issued.
func (i *instance) awaitEnd(t *testing.T, uid string) *csv1.BreakGlassCredential {
	t.Helper()
	return i.awaitCredential(t, uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED,
		csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED)
}

// TestConcurrentRevocations checks that one of several concurrent revocations of a class is accepted, and that each
// class has its own.
func TestConcurrentRevocations(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, _ := service.createReady(t, "c")
	var credentials []string
	for _, class := range []csv1.BreakGlassClass{customer, sre} {
		request, _ := service.issue(t, cluster, class)
		credentials = append(credentials, request.Uid)
	}
	r.hypershift.Hold(true) // no revocation is through before the others are response for
	ofSRE := revokeRequest(cluster, sre)
	taken := ""
	for _, a := range concurrently(12, func() response {
		request := revokeRequest(cluster, customer)
		_, err := service.RevokeBreakGlassCredentials(ctx, request)
		return response{request.Uid, err}
	}, func() {
		if _, err := service.RevokeBreakGlassCredentials(ctx, ofSRE); err != nil {
			t.Errorf("revocation of the other class: %v", err)
		}
	}) {
		switch {
		case a.err == nil && taken == "":
			taken = a.uid
		case a.err == nil:
			t.Errorf("the revocations %s and %s of one class are both accepted", taken, a.uid)
		case reasonOf(a.err) != "REVOCATION_IN_PROGRESS":
			t.Errorf("second revocation rejected with %v", a.err)
		}
	}
	if taken == "" {
		t.Fatal("no revocation was accepted")
	}
	// What was response for once is known, also while another is refused.
	again := revokeRequest(cluster, customer)
	again.Uid = taken
	if known, err := service.RevokeBreakGlassCredentials(ctx, again); err != nil || known.GetUid() != taken {
		t.Errorf("repeated request: %v", err)
	}
	r.continueSigning()
	for _, uid := range []string{taken, ofSRE.Uid} {
		service.awaitRevocation(t, uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED)
	}
	for _, uid := range credentials {
		service.awaitCredential(t, uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	}
	next := revokeRequest(cluster, customer)
	must.Get(service.RevokeBreakGlassCredentials(ctx, next))(t)
	service.awaitRevocation(t, next.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED)
}

// TestClusterDeletionDuringAccess deletes a cluster while credentials are requested and revoked. The deletion takes
// precedence and nothing is left over.
func TestClusterDeletionDuringAccess(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster, ready := service.createReady(t, "c")
	issued, _ := service.issue(t, cluster, customer)
	r.hypershift.Hold(true)
	revocation := revokeRequest(cluster, sre)
	must.Get(service.RevokeBreakGlassCredentials(ctx, revocation))(t)
	all := concurrently(20, func() response {
		request := credentialRequest(t, cluster, customer)
		_, err := service.ApplyBreakGlassCredential(ctx, request)
		return response{request.Uid, err}
	}, func() {
		if _, err := service.DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: cluster.Uid}); err != nil {
			t.Error(err)
		}
	})
	if _, err := service.RevokeBreakGlassCredentials(ctx, revokeRequest(cluster, customer)); reasonOf(err) != "CLUSTER_DELETING" {
		t.Errorf("revocation during the deletion: %v", err)
	}
	service.awaitCluster(t, cluster.Uid, clusterDeleted)
	service.awaitRevocation(t, revocation.Uid, csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED)
	service.awaitCredential(t, issued.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED)
	refused := 0
	for _, a := range all {
		if a.err != nil {
			refused++
			if reasonOf(a.err) != "CLUSTER_DELETING" {
				t.Errorf("request during the deletion: %v", a.err)
			}
			continue
		}
		if c := service.awaitEnd(t, a.uid); c.GetStatus().GetState() != csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED ||
			c.GetStatus().GetCertificate() != "" {
			t.Errorf("a credential of a deleted cluster is %s", c.GetStatus().GetState())
		}
	}
	if refused < 10 {
		t.Errorf("%d requests are rejected, want at least those after the deletion", refused)
	}
	r.onlyWorks(ready.GetStatus().GetClusterId())
}
