package adminaction

import (
	"context"
	"encoding/json"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// IntentVerifier verifies signed intents. *intent.Verifier implements it.
type IntentVerifier interface {
	Verify(ctx context.Context, signed string) (*intent.Intent, error)
}

// VerifyEgressLink returns the verified intent with which an engineer asked for exactly this link: its ID, its cluster and its hosts. The intent may have ended,
// because the link was assigned before. All other fields of the document describe the link and authorize nothing. The kind of the error is PermissionDenied, or
// Unavailable if admin's keys are unknown now.
func VerifyEgressLink(ctx context.Context, verifier IntentVerifier, l *database.EgressLinkDocument) (*intent.Intent, error) {
	if l.Intent == "" {
		return nil, intent.Missing()
	}
	asked, err := verifier.Verify(ctx, l.Intent)
	if asked == nil {
		return nil, err
	}
	hosts := l.Hosts
	if hosts == nil {
		hosts = []string{} // as admin signs them
	}
	parameters, err := json.Marshal(adminv1.EgressLinkParameters{LinkID: l.LinkID, Hosts: hosts})
	if err != nil {
		return nil, err
	}
	document := &database.AdminOperationDocument{OperationID: l.OperationID, Action: adminv1.ActionEgressLinkSet, Parameters: parameters,
		Target: database.AdminTarget{Kind: "cluster", ID: l.ClusterUID, ClusterUID: l.ClusterUID, ResourceID: l.ResourceID}}
	if err := Check(asked, document); err != nil {
		return nil, apierror.As(err)
	}
	return asked, nil
}
