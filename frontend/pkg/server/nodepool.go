package server

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// showNodePool answers with a node pool as the request's version has it.
func (rq *request) showNodePool(status int, item *database.Item[database.NodePoolDocument]) error {
	document := &item.Value
	rq.w.Header().Set("ETag", item.ETag)
	return rq.w.json(status, rq.version.EncodeNodePool(&document.NodePool, document.ProvisioningState, &document.Status))
}

func (s *Server) getNodePool(ctx context.Context, rq *request) error {
	item, err := s.Database.NodePools().Find(ctx, rq.key())
	if err != nil {
		return err
	}
	if live(item) == nil {
		return notFound(rq.resourceID)
	}
	return rq.showNodePool(http.StatusOK, item)
}

func (s *Server) putNodePool(ctx context.Context, rq *request) error {
	return s.changeNodePool(ctx, rq, false)
}

func (s *Server) patchNodePool(ctx context.Context, rq *request) error {
	return s.changeNodePool(ctx, rq, true)
}

// parent reads the cluster that the node pool in the path belongs to; nil when there is none.
func (s *Server) parent(ctx context.Context, rq *request) (*database.Item[database.ClusterDocument], error) {
	item, err := s.Database.Clusters().Find(ctx, database.Key{SubscriptionID: rq.key().SubscriptionID, ResourceID: rq.clusterID()})
	return live(item), err
}

// changeNodePool creates, replaces or patches the node pool in the path.
func (s *Server) changeNodePool(ctx context.Context, rq *request, patch bool) error {
	fields, err := rq.object()
	if err != nil {
		return err
	}
	change := clusterChange{content: content{fields, patch}, uid: uuid.NewString(), operationID: uuid.NewString()}
	var item *database.Item[database.NodePoolDocument]
	created := false
	err = retryBeside(ctx, database.ClusterKind, func(ctx context.Context) error {
		parent, err := s.parent(ctx, rq)
		if err != nil {
			return err
		}
		if parent == nil {
			return notFound(rq.clusterID())
		}
		found, err := s.Database.NodePools().Find(ctx, rq.key())
		if err != nil {
			return err
		}
		found = live(found)
		if patch && found == nil {
			return notFound(rq.resourceID)
		}
		if err := rq.preconditions(etagOf(found)); err != nil {
			return err
		}
		if err := parentReady(parent.Value.ProvisioningState); err != nil {
			return err
		}
		if created = found == nil; created {
			item, err = s.createNodePool(ctx, rq, change, parent)
			return err
		}
		item = found
		return s.updateNodePool(ctx, rq, change, parent, found)
	})
	if err != nil {
		return err
	}

	document := item.Value
	s.Dispatcher.NodePool(&document, false, rq.correlationID)
	s.follow(rq, change.operationID, patch)
	switch {
	case created:
		return rq.showNodePool(http.StatusCreated, item)
	case patch:
		return rq.showNodePool(http.StatusAccepted, item)
	}
	return rq.showNodePool(http.StatusOK, item)
}

func (s *Server) createNodePool(ctx context.Context, rq *request, change clusterChange, parent *database.Item[database.ClusterDocument]) (*database.Item[database.NodePoolDocument], error) {
	now := s.Now().UTC()
	cluster := &parent.Value
	base := &hub.NodePool{Resource: hub.Resource{ID: rq.resourceID, Name: rq.param(childParam), Type: hub.NodePoolResourceType}}
	body := wire.NewBody(change.fields)
	pool := rq.version.DecodeNodePool(body, base, true)
	pool.SystemData = rq.stamp(nil, now)
	s.completeNodePool(pool, cluster)
	violations := combine(body.Problems(), checkNames(body, &pool.Resource), s.Rules.NodePool(nodePoolChange(rq, pool, nil, cluster)))
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}

	key := rq.key()
	batch := s.Database.NewBatch(key.SubscriptionID)
	item := database.Create(batch, s.Database.NodePools(), key, database.NodePoolDocument{
		UID: change.uid, ClusterUID: cluster.UID, Generation: 1, NodePool: *pool,
		ProvisioningState: firstState(database.CreateRequest), ActiveOperationID: change.operationID,
	})
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, change.operationID),
		s.newOperation(rq, change.operationID, database.CreateRequest, &pool.Resource, change.uid, 1, now))
	// Writing the cluster as it is makes the batch fail if its deletion has started, so that no pool is left behind.
	database.Replace(batch, parent)
	return item, batch.Commit(ctx)
}

// completeNodePool fills in what a pool takes from its cluster.
func (s *Server) completeNodePool(pool *hub.NodePool, cluster *database.ClusterDocument) {
	pool.Location = s.Rules.Location(pool.Location)
	if pool.Properties.Platform.SubnetID == "" {
		pool.Properties.Platform.SubnetID = cluster.Cluster.Properties.Platform.SubnetID
	}
	// Newest first: during an upgrade of the control plane its nodes may not be newer than the oldest.
	if active := cluster.Status.ActiveVersions; pool.Properties.Version.ID == "" && len(active) > 0 {
		pool.Properties.Version.ID = active[len(active)-1]
	}
}

func nodePoolChange(rq *request, now, old *hub.NodePool, cluster *database.ClusterDocument) validation.NodePoolChange {
	return validation.NodePoolChange{
		New: now, Old: old, Cluster: &cluster.Cluster, ActiveVersions: cluster.Status.ActiveVersions, Subscription: rq.subscription,
	}
}

func (s *Server) updateNodePool(ctx context.Context, rq *request, change clusterChange, parent *database.Item[database.ClusterDocument], item *database.Item[database.NodePoolDocument]) error {
	document := &item.Value
	if err := busy(document.ProvisioningState); err != nil {
		return err
	}
	now := s.Now().UTC()
	body, err := change.over(rq.version.EncodeNodePool(&document.NodePool, document.ProvisioningState, &document.Status))
	if err != nil {
		return err
	}
	pool := rq.version.DecodeNodePool(body, &document.NodePool, !change.patch)
	pool.SystemData = rq.stamp(document.NodePool.SystemData, now)
	violations := combine(body.Problems(), checkNames(body, &document.NodePool.Resource),
		s.Rules.NodePool(nodePoolChange(rq, pool, &document.NodePool, &parent.Value)))
	if err := apierror.InvalidFields(violations); err != nil {
		return err
	}
	// Immutable but for the casing of ids, where the first one stays.
	pool.Location, pool.Properties.Platform = document.NodePool.Location, document.NodePool.Properties.Platform

	document.NodePool = *pool
	document.Generation++
	document.ProvisioningState = firstState(database.UpdateRequest)
	document.ActiveOperationID = change.operationID
	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, change.operationID),
		s.newOperation(rq, change.operationID, database.UpdateRequest, &pool.Resource, document.UID, document.Generation, now))
	return batch.Commit(ctx)
}

func (s *Server) deleteNodePool(ctx context.Context, rq *request) error {
	operationID := uuid.NewString()
	key := rq.key()
	var document database.NodePoolDocument
	started := false
	err := database.Retry(ctx, func(ctx context.Context) error {
		started = false
		item, err := s.Database.NodePools().Find(ctx, key)
		if err != nil || live(item) == nil {
			return err
		}
		if err := rq.preconditions(item.ETag); err != nil {
			return err
		}
		if item.Value.ProvisioningState == hub.Deleting {
			return errDeleting
		}
		parent, err := s.parent(ctx, rq)
		if err != nil {
			return err
		}
		if parent != nil {
			if err := parentReady(parent.Value.ProvisioningState); err != nil {
				return err
			}
		}
		now := s.Now().UTC()
		batch := s.Database.NewBatch(key.SubscriptionID)
		if err := s.Database.Supersede(ctx, batch, item.Value.ActiveOperationID, "The operation was superseded by the deletion of the resource.", now); err != nil {
			return err
		}
		item.Value.ProvisioningState = firstState(database.DeleteRequest)
		item.Value.ActiveOperationID = operationID
		database.Replace(batch, item)
		database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, operationID),
			s.newOperation(rq, operationID, database.DeleteRequest, &item.Value.NodePool.Resource, item.Value.UID, item.Value.Generation, now))
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		started, document = true, item.Value
		return nil
	})
	if err != nil {
		return err
	}
	if !started {
		rq.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	s.Dispatcher.NodePool(&document, true, rq.correlationID)
	s.follow(rq, operationID, true)
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}
