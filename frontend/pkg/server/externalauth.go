package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// externalAuthType implements hcpOpenShiftClusters/externalAuths.
type externalAuthType struct{}

var _ resourceType[database.ExternalAuthDocument, hub.ExternalAuth] = externalAuthType{}

func (externalAuthType) name() string { return hub.ExternalAuthResourceType }

func (externalAuthType) collection(db *database.DB) *database.Collection[database.ExternalAuthDocument] {
	return db.ExternalAuths()
}

func (externalAuthType) fields(d *database.ExternalAuthDocument) documentFields[hub.ExternalAuth] {
	return documentFields[hub.ExternalAuth]{&d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID, &d.ExternalAuth, nil}
}

func (externalAuthType) common(auth *hub.ExternalAuth) *hub.Resource { return &auth.Resource }

func (externalAuthType) encode(version *versions.Version, d *database.ExternalAuthDocument) any {
	return version.EncodeExternalAuth(&d.ExternalAuth, d.ProvisioningState, &d.Status)
}

func (externalAuthType) decode(version *versions.Version, body *wire.Body, base *hub.ExternalAuth, defaults bool) *hub.ExternalAuth {
	return version.DecodeExternalAuth(body, base, defaults)
}

func (externalAuthType) newDocument(_ *request, parent *database.ClusterDocument) (database.ExternalAuthDocument, []apierror.Violation) {
	return database.ExternalAuthDocument{ClusterUID: parent.UID}, nil
}

// setDefaults does nothing: external authentications have no defaults of the service.
func (externalAuthType) setDefaults(*Server, *request, *hub.ExternalAuth, string, *database.ClusterDocument) {
}

func (externalAuthType) validate(s *Server, rq *request, now *hub.ExternalAuth, stored *database.ExternalAuthDocument, parent *database.ClusterDocument) []apierror.Violation {
	change := validation.ExternalAuthChange{New: now, Cluster: &parent.Cluster, ClusterIssuer: parent.Status.IssuerURL, Subscription: rq.subscription}
	if stored != nil {
		change.Old = &stored.ExternalAuth
	}
	return s.Rules.ExternalAuth(change)
}

func (externalAuthType) validateAgainstStore(*Server, context.Context, *request, *hub.ExternalAuth, string) ([]apierror.Violation, error) {
	return nil, nil
}

// keepStoredCasing does nothing: all properties of an external authentication can be changed.
func (externalAuthType) pin(*Server, *request, *hub.ExternalAuth) {}

func (externalAuthType) validateChangeAgainstStore(*Server, context.Context, *request, *hub.ExternalAuth, *hub.ExternalAuth) ([]apierror.Violation, error) {
	return nil, nil
}

func (externalAuthType) keepStoredCasing(*hub.ExternalAuth, *hub.ExternalAuth) {}

// allot returns nil: there is no quota.
func (externalAuthType) allot(*Server, context.Context, *request, *database.ExternalAuthDocument, int) error {
	return nil
}

func (externalAuthType) reservations(key database.Key, document *database.ExternalAuthDocument) map[database.Key]database.ReservationDocument {
	return database.ExternalAuthReservations(key, document.UID)
}

// reservationConflict returns the error for a cluster that has another external authentication. One that is being
// deleted counts.
func (externalAuthType) reservationConflict(_ *database.ExternalAuthDocument, held []database.ReservationDocument) error {
	holder := held[0].OwnerResourceID
	return apierror.InvalidFields([]apierror.Violation{{Field: "name", Message: fmt.Sprintf(
		"Forbidden: the cluster already has the external authentication %s, and can have only one",
		wire.FormatValue(holder[strings.LastIndexByte(holder, '/')+1:]))}})
}

// guardDeletion returns nil: an external authentication can always be deleted.
func (externalAuthType) guardDeletion(*Server, context.Context, *request, *database.Item[database.ClusterDocument], *database.Batch) error {
	return nil
}

func (externalAuthType) dispatch(ctx context.Context, to Dispatcher, document *database.ExternalAuthDocument, deleting bool, correlationID string) {
	to.ExternalAuth(ctx, document, deleting, correlationID)
}
