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

// resourceType is what one type of resource has of its own. All that its requests share, from the reading of what is
// stored to the answer, is in this file. D is the type's document in the store, R its hub type.
type resourceType[D, R any] interface {
	// name is the ARM resource type.
	name() string
	collection(db *database.DB) *database.Collection[D]
	// parts are where a document keeps what every resource has.
	parts(document *D) parts[R]
	// common is what every ARM resource has, within a hub resource.
	common(resource *R) *hub.Resource
	encode(version *versions.Version, document *D) any
	decode(version *versions.Version, body *wire.Body, base *R, defaults bool) *R

	// begin makes the document of a resource that the request creates, with the fields that only this type has.
	begin(rq *request, parent *database.ClusterDocument) (D, error)
	// complete fills in what the service decides of a new resource where the customer did not.
	complete(s *Server, rq *request, resource *R, uid string, parent *database.ClusterDocument)
	// validate judges a resource that becomes now; stored is nil when it is new.
	validate(s *Server, rq *request, now *R, stored *D, parent *database.ClusterDocument) []apierror.Violation
	// neighbours judges a new resource beside those that the store holds, as far as reservations do not.
	neighbours(s *Server, ctx context.Context, rq *request, resource *R, uid string) ([]apierror.Violation, error)
	// retain keeps the stored form of what cannot be changed, where another form of it is as good: the casing of ids.
	retain(now, stored *R)
	// reservations are what only one resource may have, each with its key; they are committed with a new resource.
	reservations(key database.Key, document *D) map[database.Key]database.ReservationDocument
	// taken says that others hold reservations that a new resource needs.
	taken(document *D, held []database.ReservationDocument) error
	dispatch(ctx context.Context, to Dispatcher, document *D, deleting bool, correlationID string)
}

// parts points into a document.
type parts[R any] struct {
	uid         *string
	generation  *int64
	state       *hub.ProvisioningState
	operationID *string
	resource    *R
}

// handler answers the requests of a route.
type handler func(s *Server, ctx context.Context, rq *request) error

// routesOf are the routes of one type of resource, at the pattern of one such resource, but for its lists.
func routesOf[D, R any](pattern string, t resourceType[D, R]) []*route {
	return []*route{
		{method: http.MethodGet, pattern: pattern, handle: get(t)},
		{method: http.MethodPut, pattern: pattern, handle: change(t, false), judge: judgement(t)},
		{method: http.MethodPatch, pattern: pattern, handle: change(t, true)},
		{method: http.MethodDelete, pattern: pattern, handle: remove(t)},
	}
}

// show answers with a resource as the request's version has it.
func show[D, R any](rq *request, t resourceType[D, R], status int, item *database.Item[D]) error {
	rq.w.Header().Set("ETag", item.ETag)
	return rq.w.json(status, t.encode(rq.version, &item.Value))
}

func get[D, R any](t resourceType[D, R]) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		key := shownKey{t.name(), hub.Key(rq.resourceID), rq.version.Name}
		last := s.shown.get(key)
		item, changed, err := t.collection(s.Database).FindIfChanged(ctx, rq.key(), last.etag)
		if err != nil {
			return err
		}
		if changed {
			if live(item) == nil {
				s.shown.forget(key)
				return notFound(rq.resourceID)
			}
			if last.content, err = marshal(t.encode(rq.version, &item.Value)); err != nil {
				return err
			}
			last.etag = item.ETag
			s.shown.put(key, last)
		}
		rq.w.Header().Set("ETag", last.etag)
		rq.w.content(http.StatusOK, last.content)
		return nil
	}
}

// answer answers with the resource of a key, if it is still the one with the uid.
type answer func(s *Server, ctx context.Context, rq *request, status int, key database.Key, uid string) error

// result answers with the resource that an operation has created or updated. One that was deleted since is not found, and
// neither is it when another has its name by now.
func result[D, R any](t resourceType[D, R]) answer {
	return func(s *Server, ctx context.Context, rq *request, status int, key database.Key, uid string) error {
		item, err := t.collection(s.Database).Find(ctx, key)
		if err != nil {
			return err
		}
		if live(item) == nil || *t.parts(&item.Value).uid != uid {
			return notFound(key.ResourceID)
		}
		return show(rq, t, status, item)
	}
}

// parent reads the cluster that the resource in the path belongs to; nil when there is none.
func (s *Server) parent(ctx context.Context, rq *request) (*database.Item[database.ClusterDocument], error) {
	item, err := s.Database.Clusters().Find(ctx, database.Key{SubscriptionID: rq.key().SubscriptionID, ResourceID: rq.clusterID()})
	return live(item), err
}

// proposal is one request's change of a resource. Its ids stay the same however often it is decided anew.
type proposal struct {
	content
	uid         string
	operationID string
	// parent is nil for what has none.
	parent *database.Item[database.ClusterDocument]
}

func (p *proposal) cluster() *database.ClusterDocument {
	if p.parent == nil {
		return nil
	}
	return &p.parent.Value
}

// change creates, replaces or patches the resource in the path.
func change[D, R any](t resourceType[D, R], patch bool) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		fields, err := rq.object()
		if err != nil {
			return err
		}
		p := &proposal{content: content{fields, patch}, uid: uuid.NewString(), operationID: uuid.NewString()}
		beside := database.FenceKind
		if rq.isChild() {
			beside = database.ClusterKind
		}
		var item *database.Item[D]
		created := false
		err = retryBeside(ctx, beside, func(ctx context.Context) error {
			item, created, err = decide(s, ctx, rq, t, p)
			return err
		})
		if err != nil {
			return err
		}

		document := item.Value
		t.dispatch(ctx, s.Dispatcher, &document, false, rq.correlationID)
		s.follow(rq, p.operationID, patch)
		switch {
		case created:
			return show(rq, t, http.StatusCreated, item)
		case patch:
			return show(rq, t, http.StatusAccepted, item)
		}
		return show(rq, t, http.StatusOK, item)
	}
}

// decide reads what there is, and commits what the proposal makes of it.
func decide[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal) (item *database.Item[D], created bool, err error) {
	if rq.isChild() {
		if p.parent, err = s.parent(ctx, rq); err != nil {
			return nil, false, err
		}
		if p.parent == nil {
			return nil, false, notFound(rq.clusterID())
		}
	}
	found, err := t.collection(s.Database).Find(ctx, rq.key())
	if err != nil {
		return nil, false, err
	}
	found = live(found)
	if p.patch && found == nil {
		return nil, false, notFound(rq.resourceID)
	}
	if err := rq.preconditions(etagOf(found)); err != nil {
		return nil, false, err
	}
	if err := parentReady(p.parent); err != nil {
		return nil, false, err
	}
	if found == nil {
		item, err = create(s, ctx, rq, t, p)
		return item, true, err
	}
	return found, false, update(s, ctx, rq, t, p, found)
}

// fresh is what a proposal makes of a resource that there is none of yet, with everything that is wrong with it. What base
// has of its own stays.
func fresh[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal, base *R, now time.Time) (*R, []apierror.Violation, error) {
	*t.common(base) = hub.Resource{ID: rq.resourceID, Name: rq.name(), Type: t.name()}
	body := wire.NewBody(p.fields)
	resource := t.decode(rq.version, body, base, true)
	common := t.common(resource)
	common.SystemData = rq.stamp(nil, now)
	t.complete(s, rq, resource, p.uid, p.cluster())
	beside, err := t.neighbours(s, ctx, rq, resource, p.uid)
	if err != nil {
		return nil, nil, err
	}
	named := checkNames(body, common)
	return resource, combine(body.Problems(), named, rq.said(t.name(), t.validate(s, rq, resource, nil, p.cluster()), beside)), nil
}

// changed is what a proposal makes of the resource of a document, which it leaves as it is, with everything that is wrong
// with it.
func changed[D, R any](s *Server, rq *request, t resourceType[D, R], p *proposal, document *D, now time.Time) (*R, []apierror.Violation, error) {
	body, err := p.over(t.encode(rq.version, document))
	if err != nil {
		return nil, nil, err
	}
	before := t.parts(document).resource
	stored := t.common(before)
	resource := t.decode(rq.version, body, before, !p.patch)
	t.common(resource).SystemData = rq.stamp(stored.SystemData, now)
	named := checkNames(body, stored)
	return resource, combine(body.Problems(), named, rq.said(t.name(), t.validate(s, rq, resource, document, p.cluster()))), nil
}

func create[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], p *proposal) (*database.Item[D], error) {
	document, err := t.begin(rq, p.cluster())
	if err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	to := t.parts(&document)
	resource, violations, err := fresh(s, ctx, rq, t, p, to.resource, now)
	if err != nil {
		return nil, err
	}
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}

	key := rq.key()
	*to.resource, *to.uid, *to.generation = *resource, p.uid, 1
	*to.state, *to.operationID = firstState(database.CreateRequest), p.operationID
	batch := s.Database.NewBatch(key.SubscriptionID)
	item := database.Create(batch, t.collection(s.Database), key, document)
	s.start(batch, rq, database.CreateRequest, t.common(resource), p.operationID, p.uid, 1, now)
	reservations := t.reservations(key, &document)
	for reserved, reservation := range reservations {
		database.Create(batch, s.Database.Reservations(), reserved, reservation)
	}
	if p.parent != nil {
		// Writing the cluster as it is makes the batch fail if its deletion has started, so that nothing is left behind.
		database.Replace(batch, p.parent)
	} else if err := s.Database.AddFence(ctx, batch); err != nil {
		// The same for a cluster, and the deletion of everything in its subscription.
		return nil, err
	}
	err = batch.Commit(ctx)
	if race, lost := database.AsWriteConflict(err); lost && race.Kind == database.ReservationKind {
		held, findErr := s.held(ctx, reservations)
		if findErr != nil {
			return nil, findErr
		}
		if len(held) > 0 {
			return nil, t.taken(&document, held)
		}
	}
	return item, err
}

// held are those of a resource's reservations that another one has. When there are none, after a race was lost for them,
// another try is worth it: one of the same owner is another request's creation of this very resource, which that finds.
func (s *Server) held(ctx context.Context, wanted map[database.Key]database.ReservationDocument) ([]database.ReservationDocument, error) {
	var held []database.ReservationDocument
	for key, reservation := range wanted {
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
	to := t.parts(&item.Value)
	if err := busy(*to.state); err != nil {
		return err
	}
	now := s.Now().UTC()
	resource, violations, err := changed(s, rq, t, p, &item.Value, now)
	if err != nil {
		return err
	}
	if err := apierror.InvalidFields(violations); err != nil {
		return err
	}
	t.retain(resource, to.resource)

	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	// One that awaits the customer's secret may be changed with its operation under way.
	if err := s.Database.Supersede(ctx, batch, *to.operationID, "The operation was superseded by another change of the resource.", now); err != nil {
		return err
	}
	*to.resource = *resource
	*to.generation++
	*to.state, *to.operationID = firstState(database.UpdateRequest), p.operationID
	database.Replace(batch, item)
	s.start(batch, rq, database.UpdateRequest, t.common(to.resource), p.operationID, *to.uid, *to.generation, now)
	return batch.Commit(ctx)
}

// start adds the operation that a request starts to the batch.
func (s *Server) start(batch *database.Batch, rq *request, kind database.OperationRequest, resource *hub.Resource, operationID, uid string, generation int64, now time.Time) {
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, operationID),
		s.newOperation(rq, operationID, kind, resource, uid, generation, now))
}

// remove starts the deletion of the resource in the path; the backend takes along what belongs to it.
func remove[D, R any](t resourceType[D, R]) handler {
	return func(s *Server, ctx context.Context, rq *request) error {
		operationID := uuid.NewString()
		started, err := startDeletion(s, ctx, rq, t, operationID)
		if err != nil {
			return err
		}
		if !started {
			rq.w.WriteHeader(http.StatusNoContent)
			return nil
		}
		s.follow(rq, operationID, true)
		rq.w.WriteHeader(http.StatusAccepted)
		return nil
	}
}

// startDeletion reports whether there was a resource to delete. What works on it ends as Canceled.
func startDeletion[D, R any](s *Server, ctx context.Context, rq *request, t resourceType[D, R], operationID string) (started bool, err error) {
	key := rq.key()
	var document D
	err = database.Retry(ctx, func(ctx context.Context) error {
		started = false
		item, err := t.collection(s.Database).Find(ctx, key)
		if err != nil || live(item) == nil {
			return err
		}
		if err := rq.preconditions(item.ETag); err != nil {
			return err
		}
		of := t.parts(&item.Value)
		if *of.state == hub.Deleting {
			return errDeleting
		}
		if rq.isChild() {
			parent, err := s.parent(ctx, rq)
			if err != nil {
				return err
			}
			if err := parentReady(parent); err != nil {
				return err
			}
		}
		now := s.Now().UTC()
		batch := s.Database.NewBatch(key.SubscriptionID)
		if err := s.Database.Supersede(ctx, batch, *of.operationID, "The operation was superseded by the deletion of the resource.", now); err != nil {
			return err
		}
		*of.state, *of.operationID = firstState(database.DeleteRequest), operationID
		database.Replace(batch, item)
		s.start(batch, rq, database.DeleteRequest, t.common(of.resource), operationID, *of.uid, *of.generation, now)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		started, document = true, item.Value
		return nil
	})
	if started {
		t.dispatch(ctx, s.Dispatcher, &document, true, rq.correlationID)
	}
	return started, err
}
