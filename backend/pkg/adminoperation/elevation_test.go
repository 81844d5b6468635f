package adminoperation_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

func (f *fleet) ApplyBreakGlassCredential(_ context.Context, r *clusterservicev1.ApplyBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	if _, err := f.do(r.GetUid(), &clusterservicev1.Actor{Name: "an engineer"}); err != nil {
		return nil, err
	}
	return &clusterservicev1.BreakGlassCredential{Uid: r.GetUid()}, nil
}

func (f *fleet) RevokeBreakGlassCredentials(_ context.Context, r *clusterservicev1.RevokeBreakGlassCredentialsRequest) (*clusterservicev1.BreakGlassRevocation, error) {
	f.mu.Lock()
	f.revoked = proto.CloneOf(r)
	f.mu.Unlock()
	if _, err := f.do(r.GetUid(), &clusterservicev1.Actor{Name: "an engineer"}); err != nil {
		return nil, err
	}
	return &clusterservicev1.BreakGlassRevocation{Uid: r.GetUid(), Elevation: r.GetElevation()}, nil
}

// TestEndedElevationIsRevoked executes the revocation of the credentials of an elevation. It needs no active elevation, and the elevation
// that Cluster Service gets is that of the intent. The state of the stored elevation does not matter. It is retried for longer than other
// actions while Cluster Service is away.
func TestEndedElevationIsRevoked(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(o *database.AdminOperationDocument, e *database.ElevationDocument)
	}{
		"ended": {"this is the usual case", func(_ *database.AdminOperationDocument, e *database.ElevationDocument) {
			now := time.Now().UTC()
			e.State, e.EndTime = database.ElevationEnded, &now
		}},
		"set back":            {"whoever can write to the database cannot prevent it", func(*database.AdminOperationDocument, *database.ElevationDocument) {}},
		"of another engineer": {"somebody else has ended it", func(_ *database.AdminOperationDocument, e *database.ElevationDocument) { e.Actor.ObjectID = "bob" }},
		"with another's in it": {"the document cannot name another elevation", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) {
			o.Actor.ElevationID = "another"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnvironment(t)
			h.fleet.respond = until(3, apierror.New(apierror.Unavailable, "The database cannot be reached."))
			o, elevation := h.signed(t, "9f1b0a3c-5d2e-4f60-8a71-b2c3d4e5f607", func(o *database.AdminOperationDocument) {
				o.Action, o.Parameters = adminv1.ActionElevationEnd, nil
			})
			tc.change(&o, &elevation)
			key := h.insert(t, o, &elevation)
			h.run(t, adminoperation.Options{RetryTimeout: time.Nanosecond})
			ended := h.await(t, key, database.AdminSucceeded)
			want := &clusterservicev1.RevokeBreakGlassCredentialsRequest{Uid: o.OperationID, ClusterUid: "uid", Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE,
				Requester: "alice@example.com", Reason: "INC-1: it is stuck", Elevation: elevation.ElevationID}
			if !proto.Equal(h.fleet.revoked, want) || ended.Attempts != 3 || h.fleet.effects[o.OperationID] != 1 {
				t.Errorf("%s: Cluster Service got %v, want %v; %d attempts with %d effects", tc.reason, h.fleet.revoked, want, ended.Attempts, h.fleet.effects[o.OperationID])
			}
		})
	}
}

// TestCredentialsWaitForRevocation requests a credential, and revokes those of a class, while the credentials of the class are being
// revoked. Both are accepted when that is over. Other rejected actions fail at once.
func TestCredentialsWaitForRevocation(t *testing.T) {
	revoking := apierror.New(apierror.FailedPrecondition, "The credentials of this class are being revoked.").WithReason(clusterservice.ReasonRevocationInProgress)
	for action, tc := range map[string]struct {
		parameters any
		state      database.AdminOperationState
		attempts   int32
	}{
		adminv1.ActionCredentialRequest:    {adminv1.CredentialRequest{Level: adminv1.LevelReader, CertificateSigningRequest: "csr", Duration: "15m"}, database.AdminSucceeded, 3},
		adminv1.ActionAccessSessionRequest: {adminv1.CredentialRequest{Level: adminv1.LevelReader, CertificateSigningRequest: "csr", Duration: "15m"}, database.AdminSucceeded, 3},
		adminv1.ActionCredentialRevoke:     {adminv1.RevokeRequest{Class: "sre"}, database.AdminSucceeded, 3},
		adminv1.ActionClusterRetry:         {map[string]string{"clusterUid": "uid"}, database.AdminFailed, 1},
	} {
		t.Run(action, func(t *testing.T) {
			h := newEnvironment(t)
			h.fleet.respond = until(3, revoking)
			h.run(t, adminoperation.Options{})
			if o := h.await(t, h.request(t, "one", action, tc.parameters), tc.state); o.Attempts != tc.attempts {
				t.Errorf("%d attempts, want %d", o.Attempts, tc.attempts)
			}
		})
	}
}
