package app_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// requestWith requests a credential of class sre with an elevation, and returns its UID.
func (r *region) requestWith(t *testing.T, service *instance, cluster *csv1.ApplyClusterRequest, elevation string) (uid string, err error) {
	t.Helper()
	c := credentialRequest(t, cluster, sre)
	signed := r.admin.Call(t, csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName, c, func(i *intent.Intent) { i.Elevation.ID, i.OperationID = elevation, c.Uid })
	_, err = service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), signed), c)
	return c.Uid, err
}

// TestCredentialsOfElevationAreRevoked revokes the credentials of an elevation. The API server rejects its certificate, no further one is
// issued with this elevation, also after a restart, and engineers with other elevations get credentials again. The revocation of another
// elevation that waits for the first one needs no signer of its own.
func TestCredentialsOfElevationAreRevoked(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	namespace := fleet.ControlPlaneNamespace("local", &fleet.Cluster{UID: cluster.Uid, Status: ready.GetStatus()})
	const (
		revoke    = csv1.ClusterService_RevokeBreakGlassCredentials_FullMethodName
		issued    = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		revoked   = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
		succeeded = csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED
	)
	request := func(elevation string) (string, error) { return r.requestWith(t, service, cluster, elevation) }
	get := func(elevation string) (uid string, certificate []byte) {
		t.Helper()
		uid = must.Get(request(elevation))(t)
		return uid, []byte(service.awaitCredential(t, uid, issued).GetStatus().GetCertificate())
	}
	trusted := func(certificate []byte) bool { return r.hypershift.Trusts(namespace, "sre-break-glass", certificate) }
	end := func(elevation, signedFor string) (*csv1.RevokeBreakGlassCredentialsRequest, context.Context) {
		v := &csv1.RevokeBreakGlassCredentialsRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE,
			Requester: "bob@example.com", Reason: "INC-2: the elevation was ended", Elevation: elevation}
		return v, intent.AppendToOutgoingContext(t.Context(), r.admin.Call(t, revoke, v, func(i *intent.Intent) { i.Elevation.ID = signedFor }))
	}
	own, certificate := get("elevation-1")
	other, otherCertificate := get("elevation-2")

	wrong, as := end("elevation-1", "elevation-2")
	if _, err := service.RevokeBreakGlassCredentials(as, wrong); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the intent of another elevation: %v", err)
	}
	// A request of an elevation that lasts is signed after the revocation, by the signer that replaces the revoked one.
	r.hypershift.Hold(true)
	waiting := must.Get(request("elevation-5"))(t)
	r.onlyWorks(ready.GetStatus().GetClusterId(), "", "-00-namespaces", "-credential-"+waiting)
	first, as := end("elevation-1", "elevation-1")
	for range 2 { // a repetition returns the same revocation
		v, err := service.RevokeBreakGlassCredentials(as, first)
		if err != nil || v.GetUid() != first.Uid || v.GetElevation() != "elevation-1" {
			t.Fatalf("revoked %v: %v", v, err)
		}
	}
	r.onlyWorks(ready.GetStatus().GetClusterId(), "", "-00-namespaces", "-revocation-"+first.Uid)
	r.continueSigning()
	second, as := end("elevation-2", "elevation-2")
	must.Get(service.RevokeBreakGlassCredentials(as, second))(t)
	service.awaitRevocation(t, first.Uid, succeeded)
	service.awaitRevocation(t, second.Uid, succeeded)
	service.awaitCredential(t, own, revoked)
	service.awaitCredential(t, other, revoked)
	if trusted(certificate) || trusted(otherCertificate) {
		t.Error("the API server accepts the certificate of a revoked credential")
	}
	if later := service.awaitCredential(t, waiting, issued).GetStatus().GetCertificate(); !trusted([]byte(later)) {
		t.Error("the API server does not accept the certificate that was issued after the revocations")
	}

	_, certificate = get("elevation-3")
	for range 2 {
		for _, elevation := range []string{"elevation-1", "elevation-2"} {
			_, err := request(elevation)
			requireRefused(t, err, codes.FailedPrecondition, "ELEVATION_REVOKED")
		}
		service.stop()
		service = r.start(nil)
	}
	// An elevation without a credential prevents one, and does not replace the signer.
	unused, as := end("elevation-4", "elevation-4")
	v, err := service.RevokeBreakGlassCredentials(as, unused)
	if err != nil || v.GetStatus().GetState() != succeeded || !trusted(certificate) {
		t.Errorf("the revocation of an elevation without credentials is %v: %v", v.GetStatus(), err)
	}
	_, err = request("elevation-4")
	requireRefused(t, err, codes.FailedPrecondition, "ELEVATION_REVOKED")

	ofCustomers := &csv1.RevokeBreakGlassCredentialsRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER,
		Requester: "bob@example.com", Elevation: "elevation-1"}
	if _, err := service.RevokeBreakGlassCredentials(t.Context(), ofCustomers); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an elevation of customers: %v", err)
	}
}

// TestOneCredentialIsRevoked revokes a credential of one engineer. Another credential of the same elevation is revoked with it, a
// pending one is canceled, and no further one is issued with this elevation, also after a restart. The credential of another
// engineer is not affected, and the engineer gets one with another elevation.
func TestOneCredentialIsRevoked(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	const (
		revoke   = csv1.ClusterService_RevokeBreakGlassCredential_FullMethodName
		issued   = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		awaiting = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION
		canceled = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED
		pending  = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING
	)
	request := func(elevation string) (string, error) { return r.requestWith(t, service, cluster, elevation) }
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
