package server

import (
	"context"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// externalAuthType is hcpOpenShiftClusters/externalAuths.
type externalAuthType struct{}

var _ resourceType[database.ExternalAuthDocument, hub.ExternalAuth] = externalAuthType{}

func (externalAuthType) name() string { return hub.ExternalAuthResourceType }

func (externalAuthType) collection(db *database.DB) *database.Collection[database.ExternalAuthDocument] {
	return db.ExternalAuths()
}

func (externalAuthType) parts(d *database.ExternalAuthDocument) parts[hub.ExternalAuth] {
	return parts[hub.ExternalAuth]{&d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID, &d.ExternalAuth}
}

func (externalAuthType) common(auth *hub.ExternalAuth) *hub.Resource { return &auth.Resource }

func (externalAuthType) encode(version *versions.Version, d *database.ExternalAuthDocument) any {
	return version.EncodeExternalAuth(&d.ExternalAuth, d.ProvisioningState, &d.Status)
}

func (externalAuthType) decode(version *versions.Version, body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth {
	return version.DecodeExternalAuth(body, base, defaults)
}

func (externalAuthType) begin(_ *request, parent *database.ClusterDocument) (database.ExternalAuthDocument, error) {
	return database.ExternalAuthDocument{ClusterUID: parent.UID}, nil
}

// The service decides nothing of an external auth.
func (externalAuthType) complete(*Server, *request, *hub.ExternalAuth, string, *database.ClusterDocument) {
}

func (externalAuthType) validate(s *Server, rq *request, now *hub.ExternalAuth, stored *database.ExternalAuthDocument, parent *database.ClusterDocument) []apierror.Violation {
	change := validation.ExternalAuthChange{New: now, Cluster: &parent.Cluster, Subscription: rq.subscription}
	if stored != nil {
		change.Old = &stored.ExternalAuth
	}
	return s.Rules.ExternalAuth(change)
}

func (externalAuthType) neighbours(*Server, context.Context, *request, *hub.ExternalAuth, string) ([]apierror.Violation, error) {
	return nil, nil
}

// All of an external auth can be changed.
func (externalAuthType) retain(*hub.ExternalAuth, *hub.ExternalAuth) {}

func (externalAuthType) reservations(key database.Key, document *database.ExternalAuthDocument) map[database.Key]database.ReservationDocument {
	return database.ExternalAuthReservations(key, document.UID)
}

// taken: the cluster has another external auth, be it one that is still being deleted.
func (externalAuthType) taken(_ *database.ExternalAuthDocument, held []database.ReservationDocument) error {
	holder := held[0].OwnerResourceID
	return apierror.New(apierror.Conflict, "The cluster has the external authentication '%s' already; it can have one.",
		holder[strings.LastIndexByte(holder, '/')+1:]).WithTarget(holder)
}

func (externalAuthType) dispatch(ctx context.Context, to Dispatcher, document *database.ExternalAuthDocument, deleting bool, correlationID string) {
	to.ExternalAuth(ctx, document, deleting, correlationID)
}
