package service

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// RevokeBreakGlassCredential revokes one credential of an SRE, with the others of its elevation.
func (s *Service) RevokeBreakGlassCredential(ctx context.Context, r *csv1.RevokeBreakGlassCredentialRequest) (*csv1.BreakGlassCredential, error) {
	c := check{violations: validateOnce(r.GetUid(), r.GetClusterUid())}
	c.uuid("credential_uid", r.GetCredentialUid())
	c.whoAndWhy("", csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, r.GetRequester(), r.GetReason())
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	clusterUID, credentialUID := strings.ToLower(r.GetClusterUid()), strings.ToLower(r.GetCredentialUid())
	var credential *fleet.Credential
	err := s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) error {
		t := tx.Aggregates[clusterUID]
		if credential = t.Credential(credentialUID); credential == nil {
			return apierror.New(apierror.NotFound, "The cluster has no break-glass credential %s, or it ended more than an hour ago.", credentialUID).WithReason(ReasonCredentialUnknown)
		}
		if credential.Spec.GetClass() != csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE {
			return failedPrecondition(ReasonCredentialNotRevocable, "The credential is a customer's. Its certificate may be valid for a day: revoke the class.")
		}
		if credential.Status.GetRevocation() != nil {
			return nil // it is revoked once; a repetition returns it
		}
		if err := wantedCluster(t); err != nil {
			return err
		}
		now := s.o.Store.Now()
		t.RevokeAlone(credential, &csv1.BreakGlassCredentialRevocation{Uid: strings.ToLower(r.GetUid()), Requester: r.GetRequester(), Reason: r.GetReason(), CreateTime: timestamppb.New(now)})
		return s.settle(now, t)
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return credential.Proto(), nil
}
