package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const (
	// maxCredentialClusters is the number of clusters for which credentials can be requested with one elevation. Ending it requests the
	// revocation of all of them in one batch, and Cosmos DB's batches have at most 100 documents.
	maxCredentialClusters = 50
	// revocationTimeout limits the questions about the progress of revocations, and concurrentRevocations their number at a time.
	revocationTimeout     = 3 * time.Second
	concurrentRevocations = 8
)

// acceptCredential stores the operation that requests a credential, or a session with a token. The same batch notes the cluster or the shard in
// the elevation, so that whoever ends the elevation also revokes the credential: an elevation that was ended in the meantime permits nothing.
func (s *Server) acceptCredential(ctx context.Context, rq *request, target database.AdminTarget, document *database.AdminOperationDocument) (accepted any, err error) {
	err = elevation.Retry(ctx, func(ctx context.Context) error {
		item, err := s.Database.Elevations().Get(ctx, database.ElevationKey(rq.elevation.ElevationID))
		if err != nil {
			return err
		}
		e := &item.Value
		if err := s.Seals.Verify(e); err != nil {
			return err
		}
		if !e.Active(time.Now()) {
			return apierror.New(apierror.PermissionDenied, "Your elevation %s has ended. Request another one.", e.ElevationID)
		}
		batch := s.Database.NewBatch(database.AdminPartition)
		var changed *database.ElevationDocument
		noted := database.ElevationCredentials{ClusterUID: target.ClusterUID, ResourceID: target.ResourceID}
		if adminv1.HasTokenSessions(target.Kind) {
			noted.Shard = target.ID
		}
		if !slices.ContainsFunc(e.Credentials, func(c database.ElevationCredentials) bool {
			return c.ClusterUID == noted.ClusterUID && c.Shard == noted.Shard
		}) {
			if len(e.Credentials) >= maxCredentialClusters {
				return apierror.New(apierror.Conflict, "Credentials for %d clusters were requested with your elevation %s, which is the maximum. Request another elevation.", maxCredentialClusters, e.ElevationID)
			}
			e.Credentials = append(e.Credentials, noted)
			if err := s.Seals.Seal(e); err != nil {
				return err
			}
			database.Replace(batch, item)
			changed = e
		}
		accepted, err = s.storeOperation(ctx, rq, document, batch, changed)
		return err
	})
	return accepted, err
}

// ender is who ends an elevation: an engineer, or the ticket validator, whose objectID is no object ID of Entra. request is the ID of the
// request.
type ender struct {
	name, objectID, tenantID string
	roles                    []adminv1.Role
	request                  string
}

// ender returns the caller as one who ends elevations.
func (rq *request) ender() ender {
	return ender{name: rq.caller.Name, objectID: rq.caller.ObjectID, tenantID: rq.caller.TenantID, roles: rq.roles, request: rq.id}
}

// revocations returns the operations that revoke the credentials of an elevation that was ended, and end its sessions with tokens. It notes their
// IDs in the elevation. Each has the signed intent of whoever ended it. There are none if all certificates have expired, or if the elevation is not over.
func (s *Server) revocations(by ender, e *database.ElevationDocument) ([]database.AdminOperationDocument, error) {
	now := time.Now().UTC()
	// Certificates end before the elevation would have. An intent has a precision of seconds.
	if e.EndTime == nil || !now.Before(e.ExpirationTime.Truncate(time.Second)) {
		return nil, nil
	}
	reason := fmt.Sprintf("the elevation %s of %s was ended", e.ElevationID, e.Actor.Name)
	if e.EndReason != "" {
		reason += ": " + e.EndReason
	}
	var operations []database.AdminOperationDocument
	for i := range e.Credentials {
		c := &e.Credentials[i]
		c.RevocationID = uuid.NewString()
		target := database.AdminTarget{Kind: "cluster", ID: c.ClusterUID, ResourceID: c.ResourceID, ClusterUID: c.ClusterUID}
		if c.Shard != "" {
			target = database.AdminTarget{Kind: adminv1.TokenSessionTarget(c.Shard), ID: c.Shard}
		}
		o := database.AdminOperationDocument{
			OperationID: c.RevocationID, SortKey: database.AdminSortKey(now, c.RevocationID), Action: adminv1.ActionElevationEnd, State: database.AdminAccepted,
			Target: target, StartTime: now, LastTransitionTime: now, RequestID: by.request,
			Actor: database.AdminActor{
				Name: by.name, ObjectID: by.objectID, TenantID: by.tenantID, Role: e.Actor.Role, ElevationID: e.ElevationID, Reason: reason, Ticket: e.Actor.Ticket,
			},
		}
		if err := s.sign(&o, by.roles, e, now); err != nil {
			return nil, err
		}
		operations = append(operations, o)
	}
	return operations, nil
}

// credentialsResponse returns the credentials of an elevation. The states of revocations are those that follow from the time.
func credentialsResponse(e *database.ElevationDocument, now time.Time) []adminv1.ElevationCredentials {
	var all []adminv1.ElevationCredentials
	for _, c := range e.Credentials {
		shown := adminv1.ElevationCredentials{Cluster: adminv1.ElevationCluster{UID: c.ClusterUID, ResourceID: c.ResourceID}, Shard: c.Shard}
		if c.RevocationID != "" && e.EndTime != nil {
			until := e.ExpirationTime
			// A certificate that was requested before the end of the elevation may be signed after it.
			if signed := e.EndTime.Add(signingTime + maxCredential); signed.Before(until) {
				until = signed
			}
			shown.Revocation = &adminv1.ElevationRevocation{OperationID: c.RevocationID, State: adminv1.RevocationRequested, AcceptedUntil: until}
			if !now.Before(until) {
				shown.Revocation.State = adminv1.RevocationExpired
			}
		}
		all = append(all, shown)
	}
	return all
}

// showElevation returns an elevation with the progress of its revocations.
func (s *Server) showElevation(ctx context.Context, e *database.ElevationDocument) adminv1.Elevation {
	shown := elevationResponse(e)
	s.showRevocations(ctx, shown.Credentials, true)
	return shown
}

// showRevocations sets the progress of revocations. Without past, it asks only about those whose certificates have not expired, so that a
// list has few questions.
func (s *Server) showRevocations(ctx context.Context, credentials []adminv1.ElevationCredentials, past bool) {
	ctx, cancel := context.WithTimeout(ctx, revocationTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(concurrentRevocations)
	for _, c := range credentials {
		if c.Revocation == nil || !past && c.Revocation.State == adminv1.RevocationExpired {
			continue
		}
		group.Go(func() error {
			s.showRevocation(ctx, c.Cluster.UID, c.Revocation)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
}

// showRevocation sets the progress of a revocation: that of its operation, and that of Cluster Service once it has accepted it. cluster is empty for the
// sessions for a management cluster or for the service cluster.
func (s *Server) showRevocation(ctx context.Context, cluster string, shown *adminv1.ElevationRevocation) {
	expired := shown.State == adminv1.RevocationExpired
	set := func(state adminv1.RevocationState, message string) {
		if !expired || state == adminv1.RevocationRevoked {
			shown.State, shown.Message = state, message
		}
	}
	item, err := s.Database.AdminOperations().Find(ctx, database.AdminOperationKey(shown.OperationID))
	switch {
	case err != nil:
		set(adminv1.RevocationUnknown, "The operation cannot be read: "+apierror.As(err).Message)
	case item == nil || item.Removed != nil:
		set(adminv1.RevocationUnknown, "The operation is not stored any more.")
	case item.Value.State == database.AdminSucceeded && cluster == "":
		set(adminv1.RevocationRevoked, "") // the sessions have ended
	case item.Value.State == database.AdminSucceeded:
		state, message, err := s.revocationProgress(ctx, cluster, shown.OperationID)
		if err != nil {
			set(adminv1.RevocationUnknown, "Cluster Service has accepted the revocation and cannot report its progress: "+apierror.As(err).Message)
			return
		}
		set(state, message)
	case item.Value.State == database.AdminFailed && item.Value.Error != nil:
		set(adminv1.RevocationFailed, item.Value.Error.Message)
	case item.Value.State.Terminal():
		set(adminv1.RevocationFailed, "The operation has ended without an error.")
	case item.Value.Attempts > 1:
		set(adminv1.RevocationRequested, fmt.Sprintf("The revocation has not succeeded in %d attempts. The backend retries it.", item.Value.Attempts))
	default:
		set(adminv1.RevocationRequested, "The backend has not executed the revocation yet.")
	}
}

// revocationProgress returns the progress of a revocation in Cluster Service.
func (s *Server) revocationProgress(ctx context.Context, cluster, id string) (state adminv1.RevocationState, message string, err error) {
	state, message = adminv1.RevocationUnknown, "Cluster Service does not store the revocation any more."
	err = clusterservice.EachPage(func(token string) (*clusterservicev1.ListBreakGlassRevocationsResponse, error) {
		return s.Fleet.ListBreakGlassRevocations(ctx, &clusterservicev1.ListBreakGlassRevocationsRequest{ClusterUid: cluster, PageSize: 500, PageToken: token})
	}, func(page *clusterservicev1.ListBreakGlassRevocationsResponse) error {
		for _, v := range page.GetRevocations() {
			if v.GetUid() == id {
				state, message = revocationState(v)
			}
		}
		return nil
	})
	return state, message, err
}

func revocationState(v *clusterservicev1.BreakGlassRevocation) (state adminv1.RevocationState, message string) {
	progress := v.GetStatus().GetProgress()
	// The first layer that has not done its part, or else the last layer.
	for _, p := range progress {
		message = fmt.Sprintf("%s (since %s)", p.GetMessage(), p.GetSince().AsTime().Format(time.RFC3339))
		if state := p.GetState(); state != clusterstatus.StatePublished && state != clusterstatus.StateApplied {
			break
		}
	}
	switch v.GetStatus().GetState() {
	case clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED:
		return adminv1.RevocationRevoked, ""
	case clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED:
		return adminv1.RevocationRevoking, "The cluster is being deleted. Its API server accepts the certificates until they expire or it is deleted."
	case clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED:
		return adminv1.RevocationFailed, message
	}
	return adminv1.RevocationRevoking, message
}
