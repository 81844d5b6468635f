package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// resourceType is the part of the request handling that differs between resource types. This file holds the common
// part, from reading the stored resource to the response. D is the type's document, R its hub type.
type resourceType[D, R any] interface {
	// name returns the ARM resource type.
	name() string
	collection(db *database.DB) *database.Collection[D]
	// fields returns pointers to the common fields of a document.
	fields(document *D) documentFields[R]
	// common returns the common fields of a hub resource.
	common(resource *R) *hub.Resource
	encode(version *versions.Version, document *D) any
	decode(version *versions.Version, body *wire.Body, base *R, defaults bool) *R

	// newDocument returns the document of a new resource, with the fields that only this type has, and the violations of
	// the request's headers.
	newDocument(rq *request, parent *database.ClusterDocument) (D, []apierror.Violation)
	// setDefaults sets values of a new resource that the service chooses if the customer does not.
	setDefaults(s *Server, rq *request, resource *R, uid string, parent *database.ClusterDocument)
	// validate returns the violations of a resource. stored is nil for a new one.
	validate(s *Server, rq *request, now *R, stored *D, parent *database.ClusterDocument) []apierror.Violation
	// validateAgainstStore validates a new resource against other stored resources, as far as reservations do not.
	validateAgainstStore(s *Server, ctx context.Context, rq *request, resource *R, uid string) ([]apierror.Violation, error)
	// validateChangeAgainstStore validates a changed resource against other stored resources.
	validateChangeAgainstStore(s *Server, ctx context.Context, rq *request, now, stored *R) ([]apierror.Violation, error)
	// pin replaces values of a resource that select exact releases, once the experimental tags in effect are known.
	pin(s *Server, rq *request, resource *R)
	// keepStoredCasing restores the stored casing of immutable ARM IDs.
	keepStoredCasing(now, stored *R)
	// allot gives a new resource its part of the subscription's quota, or returns the error QuotaExceeded. others is the number
	// of other new resources of the type that are planned with it.
	allot(s *Server, ctx context.Context, rq *request, document *D, others int) error
	// reservations returns the names that only one resource may use, by key. They are committed with a new resource.
	reservations(key database.Key, document *D) map[database.Key]database.ReservationDocument
	// reservationConflict returns the error for reservations that other resources hold.
	reservationConflict(document *D, held []database.ReservationDocument) error
	// guardDeletion returns an error if the resource must not be deleted. It adds the documents that the decision
	// depends on to the batch of the deletion. parent is nil if the resource's cluster does not exist.
	guardDeletion(s *Server, ctx context.Context, rq *request, parent *database.Item[database.ClusterDocument], batch *database.Batch) error
	dispatch(ctx context.Context, to Dispatcher, document *D, deleting bool, correlationID string)
}

// documentFields holds pointers into a document.
type documentFields[R any] struct {
	uid         *string
	generation  *int64
	state       *hub.ProvisioningState
	operationID *string
	resource    *R
	// identities holds the IDs that the service has read for the resource's identities, by hub.Key.
	identities map[string]hub.UserAssignedIdentity
}

// handler handles the requests of a route.
type handler func(s *Server, ctx context.Context, rq *request) error

// routesOf returns the routes of a resource type except its lists. pattern is the path of one resource.
func routesOf[D, R any](pattern string, t resourceType[D, R]) []*route {
	return []*route{
		{method: http.MethodGet, pattern: pattern, handle: get(t)},
		{method: http.MethodPut, pattern: pattern, handle: change(t, false), preflight: newPreflightCheck(t)},
		{method: http.MethodPatch, pattern: pattern, handle: change(t, true)},
		{method: http.MethodDelete, pattern: pattern, handle: remove(t)},
	}
}

// show responds with a resource at the request's version.
func show[D, R any](rq *request, t resourceType[D, R], status int, item *database.Item[D]) error {
	rq.w.Header().Set("ETag", item.ETag)
	return rq.w.json(status, t.encode(rq.version, &item.Value))
}

func get[D, R any](t resourceType[D, R]) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		key := responseKey{t.name(), hub.Key(rq.resourceID), rq.version.Name}
		last := s.responseCache.get(key)
		item, changed, err := t.collection(s.Database).FindIfChanged(ctx, rq.key(), last.etag)
		if err != nil {
			return err
		}
		if changed {
			if live(item) == nil {
				s.responseCache.forget(key)
				return notFound(rq.resourceID)
			}
			if last.content, err = marshal(t.encode(rq.version, &item.Value)); err != nil {
				return err
			}
			last.etag, last.id = item.ETag, t.common(t.fields(&item.Value).resource).ID
			s.responseCache.put(key, last)
		}
		rq.resourceID = last.id
		if unchanged, err := rq.notModified(last.etag); unchanged || err != nil {
			return err
		}
		rq.w.content(http.StatusOK, last.content)
		return nil
	}
}

// resultWriter responds with the resource of a key if it still has the UID.
type resultWriter func(s *Server, ctx context.Context, rq *request, status int, key database.Key, uid string) error

// result returns the writer of the resource that an operation created or updated. It responds 404 if the resource was
// deleted since, also if another one has its name now.
func result[D, R any](t resourceType[D, R]) resultWriter {
	return func(s *Server, ctx context.Context, rq *request, status int, key database.Key, uid string) error {
		item, err := t.collection(s.Database).Find(ctx, key)
		if err != nil {
			return err
		}
		if live(item) == nil || *t.fields(&item.Value).uid != uid {
			return notFound(key.ResourceID)
		}
		return show(rq, t, status, item)
	}
}

// parent returns the cluster of the resource in the path, or nil if it does not exist. The request adopts its ID.
func (s *Server) parent(ctx context.Context, rq *request) (*database.Item[database.ClusterDocument], error) {
	item, err := s.Database.Clusters().Find(ctx, database.Key{SubscriptionID: rq.key().SubscriptionID, ResourceID: rq.clusterID()})
	if live(item) == nil {
		return nil, err
	}
	rq.adopt(item.Value.Cluster.ID)
	return item, err
}

// proposal is the change that one request asks for. Its IDs stay the same in all attempts.
type proposal struct {
	content
	uid         string
	operationID string
	// headers are the violations of the request's headers.
	headers []apierror.Violation
	// parent is nil for a resource without a parent.
	parent *database.Item[database.ClusterDocument]
}

func (p *proposal) cluster() *database.ClusterDocument {
	if p.parent == nil {
		return nil
	}
	return &p.parent.Value
}

// change returns the handler that creates, replaces or patches the resource in the path.
func change[D, R any](t resourceType[D, R], patch bool) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		fields, err := rq.object(rq.version.Form(t.name()))
		if err != nil {
			return err
		}
		p := &proposal{content: content{fields, patch}, uid: uuid.NewString(), operationID: uuid.NewString()}
		sharedKind := database.FenceKind
		if rq.isChild() {
			sharedKind = database.ClusterKind
		}
		var item *database.Item[D]
		created := false
		err = retrySharedWrite(ctx, sharedKind, func(ctx context.Context) error {
			item, created, err = decide(s, ctx, rq, t, p)
			return err
		})
		if err != nil {
			return err
		}

		document := item.Value
		t.dispatch(ctx, s.Dispatcher, &document, false, rq.correlationID)
		s.setOperationHeaders(rq, p.operationID, patch)
		switch {
		case created:
			return show(rq, t, http.StatusCreated, item)
		case patch:
			return show(rq, t, http.StatusAccepted, item)
		}
		return show(rq, t, http.StatusOK, item)
	}
}

// decide reads the stored state and commits the result of the proposal.
func decide[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal) (item *database.Item[D], created bool, err error) {
	if rq.isChild() {
		if p.parent, err = s.parent(ctx, rq); err != nil {
			return nil, false, err
		}
		if p.parent == nil {
			return nil, false, notFound(rq.clusterID())
		}
	}
	var found *database.Item[D]
	if !rq.invalidName {
		if found, err = t.collection(s.Database).Find(ctx, rq.key()); err != nil {
			return nil, false, err
		}
		if found = live(found); found != nil {
			rq.adopt(t.common(t.fields(&found.Value).resource).ID)
		}
	}
	if p.patch && found == nil {
		return nil, false, notFound(rq.resourceID)
	}
	if err := rq.preconditions(etagOf(found)); err != nil {
		return nil, false, err
	}
	if found == nil {
		item, err = create(s, ctx, rq, t, p)
		return item, true, err
	}
	return found, false, update(s, ctx, rq, t, p, found)
}

// decodeNew returns the new resource of a proposal, with all violations. base may hold values that the type has set
// before.
func decodeNew[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal, base *R, now time.Time) (*R, []apierror.Violation, error) {
	*t.common(base) = hub.Resource{ID: rq.resourceID, Name: rq.name(), Type: t.name()}
	body := wire.NewBody(p.fields)
	resource := t.decode(rq.version, body, base, true)
	if unknown := unknownField(rq, t.name(), p.fields); unknown != nil {
		return resource, unknown, nil
	}
	if body.Full() {
		return resource, mergeProblems(body.Problems()), nil
	}
	common := t.common(resource)
	clearIdentityIDs(common.Identity, nil)
	common.SystemData = rq.systemDataOf(nil, now)
	t.setDefaults(s, rq, resource, p.uid, p.cluster())
	if tags := s.Rules.ApplyExperiments(common, nil, rq.subscription); len(tags) > 0 && !body.Malformed() {
		return resource, tags, nil
	}
	t.pin(s, rq, resource)
	conflicts, err := t.validateAgainstStore(s, ctx, rq, resource, p.uid)
	if err != nil {
		return nil, nil, err
	}
	named := append(checkNames(body, common, rq.name()), rq.nameViolations()...)
	return resource, mergeProblems(body.Problems(), p.headers, named, rq.atVersion(t.name(), t.validate(s, rq, resource, nil, p.cluster()), conflicts)), nil
}

// decodeChanged returns the changed resource of a proposal, with all violations. It does not modify document.
func decodeChanged[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal, document *D, now time.Time) (*R, []apierror.Violation, error) {
	fields, err := p.merged(t.encode(rq.version, document))
	if err != nil {
		return nil, nil, err
	}
	body := wire.NewBody(fields)
	of := t.fields(document)
	before := of.resource
	stored := t.common(before)
	resource := t.decode(rq.version, body, before, !p.patch)
	if unknown := unknownField(rq, t.name(), fields); unknown != nil {
		return resource, unknown, nil
	}
	if body.Full() {
		return resource, mergeProblems(body.Problems()), nil
	}
	t.common(resource).SystemData = rq.systemDataOf(stored.SystemData, now)
	if tags := s.Rules.ApplyExperiments(t.common(resource), stored, rq.subscription); len(tags) > 0 && !body.Malformed() {
		return resource, tags, nil
	}
	t.pin(s, rq, resource)
	conflicts, err := t.validateChangeAgainstStore(s, ctx, rq, resource, before)
	if err != nil {
		return nil, nil, err
	}
	named := append(checkNames(body, stored, rq.name()), clearIdentityIDs(t.common(resource).Identity, of.identities)...)
	return resource, mergeProblems(body.Problems(), named, rq.atVersion(t.name(), t.validate(s, rq, resource, document, p.cluster()), conflicts)), nil
}

func create[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal) (*database.Item[D], error) {
	var document D
	document, p.headers = t.newDocument(rq, p.cluster())
	now := s.Now().UTC()
	to := t.fields(&document)
	resource, violations, err := decodeNew(s, ctx, rq, t, p, to.resource, now)
	if err != nil {
		return nil, err
	}
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}
	// A creation is validated before the state of its cluster counts, a change of a stored resource after it.
	if err := checkParentState(p.parent); err != nil {
		return nil, err
	}

	key := rq.key()
	*to.resource, *to.uid, *to.generation = *resource, p.uid, 1
	*to.state, *to.operationID = initialState(database.CreateRequest), p.operationID
	if err := t.allot(s, ctx, rq, &document, 0); err != nil {
		return nil, err
	}
	batch := s.Database.NewBatch(key.SubscriptionID)
	item := database.Create(batch, t.collection(s.Database), key, document)
	s.addOperation(batch, rq, database.CreateRequest, t.common(resource), p.operationID, p.uid, 1, now)
	reservations := t.reservations(key, &document)
	for reserved, reservation := range reservations {
		database.Create(batch, s.Database.Reservations(), reserved, reservation)
	}
	if p.parent != nil {
		// The unchanged cluster is written too: the batch then fails if the cluster's deletion has started, so that no orphan
		// remains.
		database.Replace(batch, p.parent)
	} else if err := s.Database.AddFence(ctx, batch); err != nil {
		// The fence has the same effect for a cluster and the deletion of its subscription's resources.
		return nil, err
	}
	err = batch.Commit(ctx)
	if race, lost := database.AsWriteConflict(err); lost && race.Kind == database.ReservationKind {
		held, findErr := s.conflictingReservations(ctx, reservations)
		if findErr != nil {
			return nil, findErr
		}
		if len(held) > 0 {
			return nil, t.reservationConflict(&document, held)
		}
	}
	return item, err
}

// conflictingReservations returns the reservations of names that other resources hold. If there are none after a lost race for
// a reservation, a retry helps: the holder is another request that creates this very resource, and the retry finds it; or
// another resource has got the slot of the quota, and the retry chooses another one.
func (s *Server) conflictingReservations(ctx context.Context, wanted map[database.Key]database.ReservationDocument) ([]database.ReservationDocument, error) {
	var held []database.ReservationDocument
	for key, reservation := range wanted {
		if reservation.Kind == database.ClusterQuotaReservation {
			continue
		}
		item, err := s.Database.Reservations().Find(ctx, key)
		if err != nil {
			return nil, err
		}
		if live(item) != nil && !strings.EqualFold(item.Value.OwnerResourceID, reservation.OwnerResourceID) {
			held = append(held, item.Value)
		}
	}
	return held, nil
}

func update[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal, item *database.Item[D]) error {
	if err := checkParentState(p.parent); err != nil {
		return err
	}
	to := t.fields(&item.Value)
	if err := checkNotBusy(*to.state); err != nil {
		return err
	}
	now := s.Now().UTC()
	resource, violations, err := decodeChanged(s, ctx, rq, t, p, &item.Value, now)
	if err != nil {
		return err
	}
	if err := apierror.InvalidFields(violations); err != nil {
		return err
	}
	t.keepStoredCasing(resource, to.resource)

	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	// A resource in AwaitingSecret can be changed while its operation is in progress.
	if err := s.Database.Supersede(ctx, batch, *to.operationID, "The operation was superseded by another change of the resource.", now); err != nil {
		return err
	}
	*to.resource = *resource
	*to.generation++
	*to.state, *to.operationID = initialState(database.UpdateRequest), p.operationID
	database.Replace(batch, item)
	s.addOperation(batch, rq, database.UpdateRequest, t.common(to.resource), p.operationID, *to.uid, *to.generation, now)
	return batch.Commit(ctx)
}

// addOperation adds the operation that a request starts to the batch.
func (s *Server) addOperation(batch *database.Batch, rq *request, kind database.OperationRequest, resource *hub.Resource, operationID, uid string, generation int64, now time.Time) {
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, operationID),
		s.newOperation(rq, operationID, kind, resource, uid, generation, now))
}

// remove returns the handler that starts the deletion of the resource in the path. The backend deletes the children.
func remove[D, R any](t resourceType[D, R]) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		operationID, err := startDeletion(s, ctx, rq, t)
		if err != nil {
			return err
		}
		if operationID == "" {
			rq.w.WriteHeader(http.StatusNoContent)
			return nil
		}
		s.setOperationHeaders(rq, operationID, true)
		rq.w.WriteHeader(http.StatusAccepted)
		return nil
	}
}

// startDeletion starts the deletion and returns its operation. An operation in progress ends as Canceled. The result is empty if
// the resource does not exist, or if the deletion of its cluster deletes it and another caller's operation waits for that.
func startDeletion[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R]) (operationID string, err error) {
	key := rq.key()
	var document D
	started := false
	err = retrySharedWrite(ctx, database.NodePoolKind, func(ctx context.Context) error {
		operationID = ""
		item, err := t.collection(s.Database).Find(ctx, key)
		if err != nil || live(item) == nil {
			return err
		}
		of := t.fields(&item.Value)
		rq.adopt(t.common(of.resource).ID)
		if err := rq.preconditions(item.ETag); err != nil {
			return err
		}
		var parent *database.Item[database.ClusterDocument]
		if rq.isChild() {
			if parent, err = s.parent(ctx, rq); err != nil {
				return err
			}
		}
		now := s.Now().UTC()
		batch := s.Database.NewBatch(key.SubscriptionID)
		deleting, withCluster := *of.state == hub.Deleting, parent != nil && parent.Value.ProvisioningState == hub.Deleting
		switch {
		case deleting && !withCluster:
			return errDeleting
		case deleting:
			running, err := s.runningOperation(ctx, rq, *of.operationID)
			if err != nil {
				return err
			}
			if running != nil {
				if rq.isStarterOf(running) {
					operationID = running.OperationID
				}
				return nil
			}
			// The deletion of the cluster has marked the child without an operation of its own.
		case !withCluster:
			if err := checkParentState(parent); err != nil {
				return err
			}
			if err := t.guardDeletion(s, ctx, rq, parent, batch); err != nil {
				return err
			}
		}
		next := uuid.NewString()
		if err := s.Database.Supersede(ctx, batch, *of.operationID, "The operation was superseded by the deletion of the resource.", now); err != nil {
			return err
		}
		*of.state, *of.operationID = initialState(database.DeleteRequest), next
		database.Replace(batch, item)
		s.addOperation(batch, rq, database.DeleteRequest, t.common(of.resource), next, *of.uid, *of.generation, now)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		operationID, started, document = next, true, item.Value
		return nil
	})
	if started {
		t.dispatch(ctx, s.Dispatcher, &document, true, rq.correlationID)
	}
	return operationID, err
}

// runningOperation returns the operation of an ID, or nil if there is none or it has ended.
func (s *Server) runningOperation(ctx context.Context, rq *request, id string) (*database.OperationDocument, error) {
	if id == "" {
		return nil, nil
	}
	item, err := s.Database.Operations().Find(ctx, database.OperationKey(rq.param(subscriptionParam), s.Location, id))
	if err != nil || live(item) == nil || item.Value.Status.Terminal() {
		return nil, err
	}
	return &item.Value, nil
}
