package app_test

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// newMeshRegion returns a region whose Cluster Services authorize calls.
func newMeshRegion(t testing.TB) *region {
	t.Helper()
	r := newRegion(t)
	r.mesh, r.admin, r.records = meshtest.New(t), intenttest.New(t), audittest.New(t, "cluster-service", 0)
	return r
}

// as returns a client with the certificate of a workload.
func (r *region) as(workload mesh.Peer, service *instance) csv1.ClusterServiceClient {
	return csv1.NewClusterServiceClient(r.mesh.Dial(workload, mesh.ClusterService, service.address))
}

// requireRefused checks that a call is refused with a code and a reason.
func requireRefused(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code || apierror.As(apierror.FromGRPC(err)).Reason != reason {
		t.Errorf("got %v, want %s with reason %s", err, code, reason)
	}
}

// TestCredentialOfEngineerNeedsIntent requests a credential of class sre in the name of an engineer, first with stolen
// certificates and then with intents that are not for this request.
func TestCredentialOfEngineerNeedsIntent(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	const method = csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName
	for _, workload := range []mesh.Peer{mesh.Frontend, mesh.Admin, mesh.Backend} {
		_, err := r.as(workload, service).ApplyBreakGlassCredential(t.Context(), credentialRequest(t, cluster, sre))
		requireRefused(t, err, codes.PermissionDenied, mesh.ReasonNotAuthorized)
	}

	request := credentialRequest(t, cluster, sre)
	with := func(change func(*csv1.ApplyBreakGlassCredentialRequest)) *csv1.ApplyBreakGlassCredentialRequest {
		changed := proto.CloneOf(request)
		change(changed)
		return changed
	}
	signed := func(changes ...func(*intent.Intent)) string { return r.admin.Call(t, method, request, changes...) }
	for name, tc := range map[string]struct {
		reason  string
		intent  string
		request *csv1.ApplyBreakGlassCredentialRequest
		want    string
	}{
		"another requester": {"the engineer is part of the request", signed(), with(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Spec.Requester = "bob@example.com" }), intent.ReasonInvalid},
		"another key": {"the certificate is for the engineer's key", signed(), with(func(r *csv1.ApplyBreakGlassCredentialRequest) {
			r.Spec.CertificateSigningRequest = credentialRequest(t, cluster, sre).Spec.CertificateSigningRequest
		}), intent.ReasonInvalid},
		"another cluster":   {"an intent is for one cluster", signed(), with(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.ClusterUid = uuid.NewString() }), intent.ReasonInvalid},
		"another operation": {"an intent is for one operation", signed(), with(func(r *csv1.ApplyBreakGlassCredentialRequest) { r.Uid = uuid.NewString() }), intent.ReasonInvalid},
		"another method":    {"an intent is for one method", r.admin.Call(t, csv1.ClusterService_StartUpgrade_FullMethodName, request), request, intent.ReasonInvalid},
		"another signer":    {"only admin signs", intenttest.New(t).Call(t, method, request), request, intent.ReasonInvalid},
		"ended": {"an intent ends", signed(func(i *intent.Intent) {
			i.IssuedAt, i.ExpiresAt = i.IssuedAt.Add(-time.Minute), i.IssuedAt.Add(-time.Second)
		}), request, intent.ReasonExpired},
	} {
		_, err := service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), tc.intent), tc.request)
		if t.Logf("%s: %s", name, tc.reason); err == nil {
			t.Errorf("%s: %s", name, tc.reason)
		}
		requireRefused(t, err, codes.PermissionDenied, tc.want)
	}
	list, err := service.ListBreakGlassCredentials(t.Context(), &csv1.ListBreakGlassCredentialsRequest{ClusterUid: cluster.Uid})
	if err != nil || len(list.GetCredentials()) != 0 {
		t.Fatalf("refused requests left %v: %v", list.GetCredentials(), err)
	}
	refused := r.audit.of(t, method, "refused")
	if len(refused) < 9 || strings.Contains(r.audit.String(), request.Spec.CertificateSigningRequest) {
		t.Errorf("%d audit records of refused calls:\n%s", len(refused), &r.audit)
	}

	// The end of the auditor stores the numbers of repeated refusals.
	ended, end := context.WithCancel(t.Context())
	end()
	r.auditor.Run(ended)
	recorded := 0
	for _, record := range r.records.Records(t) {
		if recorded += max(record.Count, 1); record.Outcome != audit.Refused || record.Action != "ApplyBreakGlassCredential" {
			t.Errorf("the audit has %+v", record)
		}
	}
	if recorded != len(refused) {
		t.Errorf("the audit has %d of %d refused calls", recorded, len(refused))
	}

	asked := signed(func(i *intent.Intent) { i.OperationID = request.Uid })
	for range 2 { // a repetition returns the same credential
		must.Get(service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), asked), request))(t)
	}
	service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
	r.records.Verify(t)
}

// TestCredentialEndsWithElevation requests certificates that name somebody else than the engineer of the intent, or that are valid
// after the elevation. A certificate that is not signed in time is not issued.
func TestCredentialEndsWithElevation(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	const method = csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName
	end := time.Now().Add(12*time.Minute + 30*time.Second)
	apply := func(request *csv1.ApplyBreakGlassCredentialRequest) error {
		signed := r.admin.Call(t, method, request, func(i *intent.Intent) { i.Elevation.ExpiresAt, i.ExpiresAt = end, i.IssuedAt.Add(time.Minute) })
		_, err := service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), signed), request)
		return err
	}
	named := func(name string) string {
		return signingRequest(t, pkix.Name{CommonName: name, Organization: []string{"system:masters"}})
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*csv1.BreakGlassCredentialSpec)
		field  string
	}{
		"name of somebody else": {"the certificate would name bob", func(s *csv1.BreakGlassCredentialSpec) {
			s.CertificateSigningRequest = named("system:sre-break-glass:bob")
		}, "spec.certificate_signing_request"},
		"longer name":                 {"alice2 is somebody else", func(s *csv1.BreakGlassCredentialSpec) { s.CertificateSigningRequest = named(sreName + "2") }, "spec.certificate_signing_request"},
		"after the elevation":         {"it ends half a minute later", func(s *csv1.BreakGlassCredentialSpec) { s.Lifetime = durationpb.New(13 * time.Minute) }, "spec.lifetime"},
		"long lifetime":               {"a revoked certificate works until it expires", func(s *csv1.BreakGlassCredentialSpec) { s.Lifetime = durationpb.New(16 * time.Minute) }, "spec.lifetime"},
		"elevation set by the caller": {"Cluster Service reads it from the intent", func(s *csv1.BreakGlassCredentialSpec) { s.Elevation = "other" }, "spec.elevation"},
		"emergency set by the caller": {"Cluster Service reads it from the intent", func(s *csv1.BreakGlassCredentialSpec) { s.Emergency = true }, "spec.emergency"},
		"default lifetime":            {"a day is longer than any elevation", func(s *csv1.BreakGlassCredentialSpec) { s.Lifetime = nil }, "spec.lifetime"},
		"end set by the caller":       {"Cluster Service sets it", func(s *csv1.BreakGlassCredentialSpec) { s.NotAfter = timestamppb.New(end) }, "spec.not_after"},
	} {
		request := credentialRequest(t, cluster, sre)
		tc.change(request.Spec)
		if err := apply(request); status.Code(err) != codes.InvalidArgument || apierror.As(apierror.FromGRPC(err)).Target != tc.field {
			t.Errorf("%s: %s: got %v, want an error of %s", name, tc.reason, err, tc.field)
		}
	}
	issued := credentialRequest(t, cluster, sre)
	must.Do(t, apply(issued))
	credential := service.awaitCredential(t, issued.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
	if expires := credential.GetStatus().GetExpirationTime().AsTime(); expires.After(end) || !credential.GetSpec().GetNotAfter().AsTime().Equal(end.Truncate(time.Second)) {
		t.Errorf("the certificate ends at %s, limited to %s; the elevation ends at %s", expires, credential.GetSpec().GetNotAfter().AsTime(), end)
	}

	r.hypershift.Hold(true)
	unsigned := credentialRequest(t, cluster, sre)
	const untilTooLate = 10 * time.Minute
	end = time.Now().Add(unsigned.Spec.Lifetime.AsDuration() + untilTooLate)
	must.Do(t, apply(unsigned))
	service.awaitCredential(t, unsigned.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING)
	service.stop()
	r.clock.advance(untilTooLate)
	service = r.start(nil) // it reads when the next credential ends
	late := service.awaitCredential(t, unsigned.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED)
	if text := fmt.Sprint(late.GetStatus().GetConditions()); !strings.Contains(text, "OutlivesElevation") || late.GetStatus().GetCertificate() != "" {
		t.Errorf("the credential that was not signed in time has %s", text)
	}
}

// TestLevelNeedsItsRole requests credentials of both levels with elevations to each role.
func TestLevelNeedsItsRole(t *testing.T) {
	t.Parallel()
	r, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	const method = csv1.ClusterService_ApplyBreakGlassCredential_FullMethodName
	const reader, admin = csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER, csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN
	for _, tc := range []struct {
		role         string
		level        csv1.BreakGlassLevel
		organization string
		permitted    bool
	}{
		{"operator", reader, "system:cluster-readers", true}, {"break-glass", reader, "system:cluster-readers", true}, {"break-glass", admin, "system:masters", true},
		{"operator", admin, "system:masters", false}, {"reader", reader, "system:cluster-readers", false}, {"", admin, "system:masters", false},
	} {
		request := credentialRequest(t, cluster, sre)
		request.Spec.Level = tc.level
		request.Spec.CertificateSigningRequest = signingRequest(t, pkix.Name{CommonName: sreName, Organization: []string{tc.organization}})
		signed := r.admin.Call(t, method, request, func(i *intent.Intent) { i.Elevation.Role, i.OperationID = tc.role, request.Uid })
		_, err := service.ApplyBreakGlassCredential(intent.AppendToOutgoingContext(t.Context(), signed), request)
		if !tc.permitted {
			if status.Code(err) != codes.InvalidArgument || apierror.As(apierror.FromGRPC(err)).Target != "spec.level" {
				t.Errorf("%s with the role %q: got %v, want an error of spec.level", tc.level, tc.role, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with the role %q: %v", tc.level, tc.role, err)
			continue
		}
		service.awaitCredential(t, request.Uid, csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED)
		want := string(fleet.Level(request.Spec))
		recorded := false
		eventually.Soon(t, "the audit has the level", func() error {
			for _, record := range r.records.Records(t) {
				recorded = recorded || record.Operation == request.Uid && record.Action == fleet.CredentialRequested && record.Level == want
			}
			if !recorded {
				return errors.New("not yet")
			}
			return nil
		})

	}
}

// TestCustomersNeedNoIntent checks that the backend requests and revokes the credentials of customers as before, and that a
// revocation by an engineer is verified.
func TestCustomersNeedNoIntent(t *testing.T) {
	t.Parallel()
	_, service := newMeshRegion(t).run()
	cluster, _ := service.createReady(t, "c")
	if _, err := service.ApplyBreakGlassCredential(t.Context(), credentialRequest(t, cluster, customer)); err != nil {
		t.Error(err)
	}
	revocation := revokeRequest(cluster, customer)
	_, err := service.RevokeBreakGlassCredentials(intent.AppendToOutgoingContext(t.Context(), "forged.by.somebody"), revocation)
	requireRefused(t, err, codes.PermissionDenied, intent.ReasonInvalid)
	if _, err := service.RevokeBreakGlassCredentials(t.Context(), revocation); err != nil {
		t.Error(err)
	}
	_, err = service.RevokeBreakGlassCredentials(t.Context(), revokeRequest(cluster, sre))
	requireRefused(t, err, codes.PermissionDenied, mesh.ReasonNotAuthorized)
}

// TestIntentHasOneEffect repeats a call whose request has no UID after its effect was undone. A call ID of the caller does not
// change that.
func TestIntentHasOneEffect(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	const method = csv1.ClusterService_UpdateProvisionShard_FullMethodName
	set := func(cordoned bool) (*csv1.UpdateProvisionShardRequest, context.Context) {
		request := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &cordoned, Actor: &csv1.Actor{Name: "alice@example.com", Reason: "it is stuck", Ticket: "INC-1"}}
		return request, intent.AppendToOutgoingContext(t.Context(), r.admin.Call(t, method, request))
	}
	cordon, cordoning := set(true)
	must.Get(service.UpdateProvisionShard(cordoning, cordon))(t)
	uncordon, uncordoning := set(false)
	must.Get(service.UpdateProvisionShard(uncordoning, uncordon))(t)
	_, err := service.UpdateProvisionShard(cordoning, cordon)
	requireRefused(t, err, codes.Aborted, clusterservice.ReasonCallDone)
	shards := must.Get(r.as(mesh.Admin, service).ListProvisionShards(t.Context(), &csv1.ListProvisionShardsRequest{}))(t)
	for _, shard := range shards.GetProvisionShards() {
		if shard.GetCordoned() {
			t.Errorf("%s is cordoned again", shard.GetName())
		}
	}
}
