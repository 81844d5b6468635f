package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/certificaterequest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

const (
	// accessSessionSigning is the time within which the certificate of an access session must be issued.
	accessSessionSigning = 2 * time.Minute
	// maxAccessSessions is the number of open access sessions that an engineer may have for one cluster.
	maxAccessSessions = 10
	// maxSealedKeys is the number of keys that a session keeps, one for each attempt of its request.
	maxSealedKeys = 4
	// maxListedSessions limits the length of a list.
	maxListedSessions = 1000
)

// Gateway has the address and the public keys of the session gateway.
type Gateway struct {
	// URL is the address under which engineers reach it, without a slash at the end.
	URL string
	// Keys seals the private keys of sessions, which only the gateway can open.
	Keys *seal.PublicKeys
	// ServiceCluster is true if the region has a service cluster. Its program gateway-grants issues the tokens of sessions.
	ServiceCluster bool
}

// requestAccessSession accepts the request for an access session. It creates the private key of the session and seals it for the gateway;
// admin keeps no copy. The session is stored before the operation that requests its certificate. If admin ends in between, the session
// ends without a certificate, or the same request with its idempotency key continues.
func (s *Server) requestAccessSession(ctx context.Context, rq *request) (any, error) {
	asked, err := s.decodeSessionRequest(rq)
	if err != nil {
		return nil, err
	}
	level := asked.Mode.Level()
	key, signing, err := certificaterequest.New(hostedreport.EngineerPrefix+rq.caller.ObjectID, level.Organization())
	if err != nil {
		return nil, err
	}
	credential := adminv1.CredentialRequest{Level: level, CertificateSigningRequest: string(signing), Duration: asked.Duration}
	if err := s.completeCredential(ctx, rq, &credential); err != nil {
		return nil, err
	}
	target, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	operation, err := s.newOperation(rq, target, credential)
	if err != nil {
		return nil, err
	}
	session := newAccessSession(rq, operation, asked.Mode)
	session.ClusterUID, session.ResourceID = target.ClusterUID, target.ResourceID
	sealed, err := s.Gateway.Keys.Seal(session.KeyPurpose(), key)
	if err != nil {
		return nil, err
	}
	session.SealedKeys = [][]byte{sealed}
	return s.acceptAccessSession(ctx, rq, target, operation, session)
}

// decodeSessionRequest returns the request for an access session, with its mode.
func (s *Server) decodeSessionRequest(rq *request) (asked adminv1.AccessSessionRequest, err error) {
	if err := rq.decodeBody(&asked); err != nil {
		return asked, err
	}
	if asked.Mode = cmp.Or(asked.Mode, adminv1.AccessRead); !slices.Contains(adminv1.AccessModes(), asked.Mode) {
		return asked, apierror.InvalidFields([]apierror.Violation{{Field: "mode", Message: fmt.Sprintf("Unsupported value: %q: supported values: %q", asked.Mode, adminv1.AccessModes())}})
	}
	if s.Gateway == nil {
		return asked, apierror.New(apierror.FailedPrecondition, "The region has no session gateway. Use a break-glass credential.")
	}
	return asked, nil
}

// newAccessSession returns the session of an operation, without its object and its key.
func newAccessSession(rq *request, operation *database.AdminOperationDocument, mode adminv1.AccessMode) *database.AccessSessionDocument {
	now := time.Now().UTC()
	return &database.AccessSessionDocument{
		SessionID: operation.OperationID, Mode: string(mode), Owner: operation.Actor, Emergency: rq.elevation.Emergency, State: database.AccessSessionRequested, RequestTime: now,
		RequestExpirationTime: now.Add(accessSessionSigning), ElevationExpirationTime: rq.elevation.ExpirationTime,
	}
}

// acceptAccessSession stores a session and then its operation.
func (s *Server) acceptAccessSession(ctx context.Context, rq *request, target database.AdminTarget, operation *database.AdminOperationDocument, session *database.AccessSessionDocument) (any, error) {
	if err := s.storeAccessSession(ctx, rq, session); err != nil {
		return nil, err
	}
	accepted, err := s.acceptCredential(ctx, rq, target, operation)
	if err != nil && apierror.KindOf(err) != apierror.Unavailable { // after Unavailable the operation may exist
		_, endErr := s.endSession(ctx, session.Key(), rq.caller.Name, "its credential could not be requested")
		s.logFailedEnd(ctx, operation.OperationID, endErr)
	}
	return accepted, err
}

// storeAccessSession stores a new session. A repetition of the same request adds its keys.
func (s *Server) storeAccessSession(ctx context.Context, rq *request, document *database.AccessSessionDocument) error {
	now, open := time.Now().UTC(), 0
	filter := database.AccessSessionFilter{ClusterUID: document.ClusterUID, Shard: document.Shard, OpenOnly: true}
	err := s.Database.EachAccessSession(ctx, filter, func(item *database.Item[database.AccessSessionDocument]) error {
		if v := &item.Value; v.Owner.ObjectID == rq.caller.ObjectID && accessSessionState(v, now) != adminv1.AccessSessionEnded {
			open++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if open >= maxAccessSessions {
		return apierror.New(apierror.Throttled, "You have %d open sessions on this cluster; end one of them.", open).WithRetryAfter(time.Minute)
	}
	at := document.Key()
	batch := s.Database.NewBatch(at.SubscriptionID)
	database.Create(batch, s.Database.AccessSessions(), at, *document)
	err = batch.Commit(ctx)
	if race, lost := database.AsWriteConflict(err); !lost || !race.Exists || rq.operation == "" {
		return err
	}
	_, err = s.Database.ChangeAccessSession(ctx, at, func(v *database.AccessSessionDocument) (bool, error) {
		keys := len(v.SealedKeys) + len(document.SealedKeys)
		if accessSessionState(v, now) != adminv1.AccessSessionRequested || v.Owner.ObjectID != rq.caller.ObjectID || keys > maxSealedKeys {
			return false, apierror.New(apierror.Conflict, "The key was used for another session, which is %s. Repeat the request with another key.", accessSessionState(v, now)).WithTarget(adminv1.IdempotencyKey)
		}
		v.SealedKeys = append(v.SealedKeys, document.SealedKeys...)
		return len(document.SealedKeys) > 0, nil
	})
	return err
}

// accessSessionState returns the state of a session at a time. Time alone does not change the stored state at once.
func accessSessionState(v *database.AccessSessionDocument, now time.Time) adminv1.AccessSessionState {
	if v.State == database.AccessSessionEnded || !now.Before(v.Deadline()) {
		return adminv1.AccessSessionEnded
	}
	return adminv1.AccessSessionState(v.State)
}

func (s *Server) accessSessionResponse(v *database.AccessSessionDocument) adminv1.AccessSession {
	shown := adminv1.AccessSession{
		ID: v.SessionID, State: accessSessionState(v, time.Now()), Mode: adminv1.AccessMode(v.Mode), Cluster: adminv1.ElevationCluster{UID: v.ClusterUID, ResourceID: v.ResourceID}, Shard: v.Shard,
		Name: v.Owner.Name, ObjectID: v.Owner.ObjectID, ElevationID: v.Owner.ElevationID, Reason: v.Owner.Reason, Ticket: v.Owner.Ticket, Emergency: v.Emergency,
		RequestTime: v.RequestTime, ReadyTime: v.ReadyTime, ExpirationTime: v.ExpirationTime, CertificateFingerprint: v.CertificateFingerprint,
		EndTime: v.EndTime, EndedBy: v.EndedBy, EndReason: v.EndReason,
	}
	for _, o := range v.Objects {
		shown.Objects = append(shown.Objects, adminv1.AccessSessionObject{Request: o.Request, Verb: o.Verb, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Time: o.Time, Outcome: string(o.Outcome), Reason: o.Reason})
	}
	if s.Gateway != nil {
		shown.URL = s.Gateway.URL + adminv1.AccessSessionPath(v.SessionID)
	}
	return shown
}

// accessSessionInPath returns the session that the path names, which becomes the object of the audit record.
func (s *Server) accessSessionInPath(ctx context.Context, rq *request) (*database.AccessSessionDocument, error) {
	id := strings.ToLower(rq.http.PathValue("session"))
	var found *database.AccessSessionDocument
	err := s.Database.EachAccessSession(ctx, database.AccessSessionFilter{ID: id}, func(item *database.Item[database.AccessSessionDocument]) error {
		found = &item.Value
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, apierror.New(apierror.NotFound, "Access session '%s' does not exist.", id)
	}
	rq.audited.object = audit.Object{Kind: "accessSession", ID: found.SessionID, ResourceID: found.ResourceID, Cluster: found.ClusterUID, Shard: found.Shard}
	rq.audited.operation, rq.audited.emergency = found.SessionID, found.Emergency
	rq.audited.reason, rq.audited.ticket, rq.audited.level = found.Owner.Reason, found.Owner.Ticket, string(adminv1.AccessMode(found.Mode).Level())
	return found, nil
}

func (s *Server) getAccessSession(ctx context.Context, rq *request) (any, error) {
	found, err := s.accessSessionInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accessSessionResponse(found), nil
}

func (s *Server) listAccessSessions(ctx context.Context, rq *request) (any, error) {
	open, err := rq.flag("open")
	if err != nil {
		return nil, err
	}
	filter := database.AccessSessionFilter{OpenOnly: open, Shard: rq.http.URL.Query().Get("shard")}
	if filter.Shard != "" && rq.http.URL.Query().Has("cluster") {
		return nil, apierror.New(apierror.InvalidParameter, "The parameters cluster and shard exclude each other.").WithTarget("shard")
	}
	if text := rq.http.URL.Query().Get("cluster"); text != "" {
		cluster, err := s.finder.One(ctx, text)
		if err != nil {
			return nil, err
		}
		filter.ClusterUID = cluster.UID
	}
	list := adminv1.AccessSessionList{Items: []adminv1.AccessSession{}}
	err = s.Database.EachAccessSession(ctx, filter, func(item *database.Item[database.AccessSessionDocument]) error {
		if shown := s.accessSessionResponse(&item.Value); !open || shown.State != adminv1.AccessSessionEnded {
			list.Items = append(list.Items, shown)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b adminv1.AccessSession) int {
		return cmp.Or(b.RequestTime.Compare(a.RequestTime), strings.Compare(a.ID, b.ID))
	})
	list.Items = list.Items[:min(len(list.Items), maxListedSessions)]
	return list, nil
}

// endAccessSession ends the session in the path. Engineers end their own; the role break-glass ends those of others.
func (s *Server) endAccessSession(ctx context.Context, rq *request) (any, error) {
	found, err := s.accessSessionInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	own := found.Owner.ObjectID == rq.caller.ObjectID && found.Owner.TenantID == rq.caller.TenantID
	if !own && !access.Includes(rq.roles[len(rq.roles)-1], adminv1.BreakGlass) {
		return nil, apierror.New(apierror.PermissionDenied, "Ending the session of another engineer requires the role %s.", adminv1.BreakGlass)
	}
	if !own {
		if err := rq.checkClaims(adminv1.BreakGlass); err != nil {
			return nil, err
		}
	}
	ended, err := s.endSession(ctx, found.Key(), rq.caller.Name, "ended by "+rq.caller.Name)
	if err != nil {
		return nil, err
	}
	return s.accessSessionResponse(ended), nil
}

// endSession ends a session, unless it has ended.
func (s *Server) endSession(ctx context.Context, key database.Key, by, reason string) (*database.AccessSessionDocument, error) {
	ended, err := s.Database.ChangeAccessSession(ctx, key, func(v *database.AccessSessionDocument) (bool, error) {
		return v.End(by, reason, time.Now().UTC()), nil
	})
	if err == nil && ended == nil {
		return nil, apierror.New(apierror.NotFound, "The access session does not exist any more.")
	}
	return ended, err
}

// endSessionsOf ends the access sessions of an elevation that was ended, so that the gateway closes their connections at once. If that
// fails, the operations that are stored with the end of the elevation end them: Cluster Service revokes the credentials of clusters, and the backend
// ends the sessions for management clusters.
func (s *Server) endSessionsOf(ctx context.Context, by string, e *database.ElevationDocument) {
	for _, c := range e.Credentials {
		filter := database.AccessSessionFilter{ClusterUID: c.ClusterUID, Shard: c.Shard, ElevationID: e.ElevationID, OpenOnly: true}
		err := s.Database.EachAccessSession(ctx, filter, func(item *database.Item[database.AccessSessionDocument]) error {
			_, err := s.endSession(ctx, item.Key, by, "the elevation was ended")
			s.logFailedEnd(ctx, item.Value.SessionID, err)
			return nil
		})
		if err != nil {
			s.Log.WarnContext(ctx, "listing the access sessions of an ended elevation failed", logkey.ClusterUID, c.ClusterUID, logkey.Shard, c.Shard, logkey.Error, err)
		}
	}
}

func (s *Server) logFailedEnd(ctx context.Context, id string, err error) {
	if err != nil {
		s.Log.WarnContext(ctx, "ending an access session failed", logkey.OperationID, id, logkey.Error, err)
	}
}
