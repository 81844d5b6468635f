package app_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOneCredentialIsRevoked revokes a credential of one engineer. Another credential of the same elevation is revoked with it, a
// pending one is canceled, and no further one is issued with this elevation, also after a restart. The credential of another
// engineer is not affected, and the engineer gets one with another elevation.
func TestOneCredentialIsRevoked(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	const (
		apply    = csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName
		revoke   = csv1.ClusterService_RevokeBreakGlassCredential_FullMethodName
		issued   = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		awaiting = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION
		canceled = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED
		pending  = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING
	)
	request := func(elevation string) (string, error) {
		c := credentialRequest(t, cluster, sre)
		signed := r.admin.Call(t, apply, c, func(i *intent.Intent) { i.Elevation.ID, i.OperationID = elevation, c.Uid })
		_, err := service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), signed), c)
		return c.Uid, err
	}
	get := func(elevation string) string {
		t.Helper()
		uid := must.Get(request(elevation))(t)
		service.awaitCredential(t, uid, issued)
		return uid
	}
	first, second, others := get("elevation-1"), get("elevation-1"), get("elevation-2")
	r.hypershift.Hold(true)
	unsigned, err := request("elevation-1")
	if err != nil {
		t.Fatal(err)
	}
	service.awaitCredential(t, unsigned, pending)

	revocation := &csv1.RevokeBreakGlassCredentialRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, CredentialUid: first, Requester: "bob@example.com", Reason: "INC-2: stolen"}
	_, err = service.RevokeBreakGlassCredential(t.Context(), revocation)
	requireRefused(t, err, codes.PermissionDenied, mesh.ReasonNotAuthorized)
	as := func(v *csv1.RevokeBreakGlassCredentialRequest) context.Context {
		return intent.AppendToOutgoingContext(t.Context(), r.admin.Call(t, revoke, v))
	}
	for range 2 { // a repetition returns the same revocation
		c, err := service.RevokeBreakGlassCredential(as(revocation), revocation)
		if err != nil || c.GetStatus().GetRevocation().GetUid() != revocation.Uid || c.GetStatus().GetRevocation().GetRequester() != revocation.Requester {
			t.Fatalf("revoked %v: %v", c, err)
		}
	}
	service.awaitCredential(t, first, awaiting)
	service.awaitCredential(t, second, awaiting)
	service.awaitCredential(t, unsigned, canceled)
	service.awaitCredential(t, others, issued)
	r.hypershift.Hold(false)
	for range 2 {
		_, err := request("elevation-1")
		requireRefused(t, err, codes.FailedPrecondition, "ELEVATION_REVOKED")
		service.stop()
		service = r.start(nil)
	}
	get("elevation-2")
	get("elevation-3")
	service.awaitCredential(t, first, awaiting)

	ofCustomer := credentialRequest(t, cluster, customer)
	must.Get(service.ApplyBreakGlassCredential(t.Context(), ofCustomer))(t)
	for uid, want := range map[string]struct {
		code   codes.Code
		reason string
	}{ofCustomer.Uid: {codes.FailedPrecondition, "BREAK_GLASS_CREDENTIAL_NOT_REVOCABLE"}, uuid.NewString(): {codes.NotFound, "BREAK_GLASS_CREDENTIAL_UNKNOWN"}} {
		v := &csv1.RevokeBreakGlassCredentialRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, CredentialUid: uid, Requester: "bob@example.com", Reason: "INC-2: stolen"}
		_, err := service.RevokeBreakGlassCredential(as(v), v)
		requireRefused(t, err, want.code, want.reason)
	}
}
