package server

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// showCluster answers with a cluster as the request's version has it.
func (rq *request) showCluster(status int, item *database.Item[database.ClusterDocument]) error {
	document := &item.Value
	rq.w.Header().Set("ETag", item.ETag)
	return rq.w.json(status, rq.version.EncodeCluster(&document.Cluster, document.ProvisioningState, &document.Status))
}

func (s *Server) getCluster(ctx context.Context, rq *request) error {
	item, err := s.Database.Clusters().Find(ctx, rq.key())
	if err != nil {
		return err
	}
	if live(item) == nil {
		return notFound(rq.resourceID)
	}
	return rq.showCluster(http.StatusOK, item)
}

func (s *Server) putCluster(ctx context.Context, rq *request) error {
	return s.changeCluster(ctx, rq, false)
}

func (s *Server) patchCluster(ctx context.Context, rq *request) error {
	return s.changeCluster(ctx, rq, true)
}

// changeCluster creates, replaces or patches the cluster in the path.
func (s *Server) changeCluster(ctx context.Context, rq *request, patch bool) error {
	fields, err := rq.object()
	if err != nil {
		return err
	}
	change := clusterChange{content: content{fields, patch}, uid: uuid.NewString(), operationID: uuid.NewString()}
	var item *database.Item[database.ClusterDocument]
	created := false
	err = database.Retry(ctx, func(ctx context.Context) error {
		found, err := s.Database.Clusters().Find(ctx, rq.key())
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
		if created = found == nil; created {
			item, err = s.createCluster(ctx, rq, change)
			return err
		}
		item = found
		return s.updateCluster(ctx, rq, change, found)
	})
	if err != nil {
		return err
	}

	document := item.Value
	s.Dispatcher.Cluster(&document, false, rq.correlationID)
	s.follow(rq, change.operationID, patch)
	if created {
		s.deleteUnlessWanted(ctx, rq, item.Key)
	}
	switch {
	case created:
		return rq.showCluster(http.StatusCreated, item)
	case patch:
		return rq.showCluster(http.StatusAccepted, item)
	}
	return rq.showCluster(http.StatusOK, item)
}

// deleteUnlessWanted starts the deletion of a cluster that was just created when its subscription has become Deleted
// meanwhile. The deletion of all clusters starts after that state is stored, so that a cluster which it did not find was
// committed later, and finds the state here.
func (s *Server) deleteUnlessWanted(ctx context.Context, rq *request, key database.Key) {
	subscription, err := s.subscriptions.get(ctx, key.SubscriptionID, true)
	if err == nil && subscription != nil && subscription.State == hub.Deleted {
		_, err = s.startClusterDeletion(ctx, rq, key, uuid.NewString(), func(string) error { return nil })
	}
	if err != nil && !errors.Is(err, errDeleting) {
		s.Log.Warn("could not make sure that the subscription of a new cluster is still there", "resource_id", rq.resourceID,
			"correlation_id", rq.correlationID, "error", err)
	}
}

// clusterChange is one request's change. Its ids stay the same however often it is decided anew.
type clusterChange struct {
	content
	uid         string
	operationID string
}

func (s *Server) createCluster(ctx context.Context, rq *request, change clusterChange) (*database.Item[database.ClusterDocument], error) {
	identityURL := rq.http.Header.Get(headerIdentityURL)
	if identityURL == "" {
		return nil, apierror.New(apierror.InvalidParameter, "The header is required to create a cluster.").WithTarget(strings.ToLower(headerIdentityURL))
	}
	now := s.Now().UTC()
	base := &hub.Cluster{Resource: hub.Resource{ID: rq.resourceID, Name: rq.param(clusterParam), Type: hub.ClusterResourceType}}
	body := wire.NewBody(change.fields)
	cluster := rq.version.DecodeCluster(body, base, true)
	cluster.SystemData = rq.stamp(nil, now)
	s.completeCluster(cluster, change.uid)
	violations := combine(body.Problems(), checkNames(body, &cluster.Resource),
		s.Rules.Cluster(validation.ClusterChange{New: cluster, Subscription: rq.subscription}))
	if err := apierror.InvalidFields(violations); err != nil {
		return nil, err
	}

	key := rq.key()
	document := database.ClusterDocument{
		UID: change.uid, Generation: 1, Cluster: *cluster,
		ProvisioningState: firstState(database.CreateRequest), ActiveOperationID: change.operationID,
		TenantID: rq.tenantID, IdentityURL: identityURL,
	}
	if properties := rq.subscription.Properties; document.TenantID == "" && properties != nil {
		document.TenantID = properties.TenantID
	}
	batch := s.Database.NewBatch(key.SubscriptionID)
	item := database.Create(batch, s.Database.Clusters(), key, document)
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, change.operationID),
		s.newOperation(rq, change.operationID, database.CreateRequest, &cluster.Resource, change.uid, 1, now))
	reservations := database.ClusterReservations(key, &document)
	for reserved, reservation := range reservations {
		database.Create(batch, s.Database.Reservations(), reserved, reservation)
	}
	err := batch.Commit(ctx)
	if race, lost := database.LostRace(err); lost && race.Kind == database.ReservationKind {
		return nil, s.reserved(ctx, reservations, &document, err)
	}
	return item, err
}

// reserved says which of a cluster's reservations another one holds. When none does the race is worth another try, and its
// error is returned.
func (s *Server) reserved(ctx context.Context, reservations map[database.Key]database.ReservationDocument, document *database.ClusterDocument, race error) error {
	platform := &document.Cluster.Properties.Platform
	var taken []apierror.Violation
	for key, reservation := range reservations {
		item, err := s.Database.Reservations().Find(ctx, key)
		if err != nil {
			return err
		}
		// One of the same name is another request's creation of this very cluster, which the next try will find.
		if live(item) == nil || strings.EqualFold(item.Value.OwnerResourceID, document.Cluster.ID) {
			continue
		}
		field, value := "properties.platform.managedResourceGroup", platform.ManagedResourceGroup
		switch reservation.Kind {
		case database.SubnetReservation:
			field, value = "properties.platform.subnetId", platform.SubnetID
		case database.NetworkSecurityGroupReservation:
			field, value = "properties.platform.networkSecurityGroupId", platform.NetworkSecurityGroupID
		}
		taken = append(taken, apierror.Violation{Field: field,
			Message: fmt.Sprintf("Invalid value: %s: is in use by another cluster of the subscription", wire.Show(value))})
	}
	if len(taken) == 0 {
		return race
	}
	validation.Sort(taken)
	return apierror.InvalidFields(taken)
}

// completeCluster fills in what the service decides where the customer did not.
func (s *Server) completeCluster(cluster *hub.Cluster, uid string) {
	cluster.Location = s.Rules.Location(cluster.Location)
	if cluster.Properties.DNS.BaseDomainPrefix == "" {
		cluster.Properties.DNS.BaseDomainPrefix = domainPrefix(uid)
	}
	if cluster.Properties.Platform.ManagedResourceGroup == "" {
		name := cluster.Name[:min(len(cluster.Name), 45)]
		cluster.Properties.Platform.ManagedResourceGroup = "arohcp-" + name + "-" + uid
	}
}

// domainPrefix makes a name of 15 characters of a uid: a letter and 70 bits of its hash, so that two never meet.
func domainPrefix(uid string) string {
	hash := sha256.Sum256([]byte(uid))
	return "c" + strings.ToLower(base32.StdEncoding.EncodeToString(hash[:]))[:14]
}

func (s *Server) updateCluster(ctx context.Context, rq *request, change clusterChange, item *database.Item[database.ClusterDocument]) error {
	document := &item.Value
	if err := busy(document.ProvisioningState); err != nil {
		return err
	}
	now := s.Now().UTC()
	body, err := change.over(rq.version.EncodeCluster(&document.Cluster, document.ProvisioningState, &document.Status))
	if err != nil {
		return err
	}
	cluster := rq.version.DecodeCluster(body, &document.Cluster, !change.patch)
	cluster.SystemData = rq.stamp(document.Cluster.SystemData, now)
	violations := combine(body.Problems(), checkNames(body, &document.Cluster.Resource),
		s.Rules.Cluster(validation.ClusterChange{New: cluster, Old: &document.Cluster, ActiveVersions: document.Status.ActiveVersions, Subscription: rq.subscription}))
	if err := apierror.InvalidFields(violations); err != nil {
		return err
	}
	// These are immutable but for the casing of ids, where the first one stays.
	cluster.Location, cluster.Properties.Platform = document.Cluster.Location, document.Cluster.Properties.Platform

	document.Cluster = *cluster
	document.Generation++
	document.ProvisioningState = firstState(database.UpdateRequest)
	document.ActiveOperationID = change.operationID
	batch := s.Database.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	database.Create(batch, s.Database.Operations(), database.OperationKey(rq.param(subscriptionParam), s.Location, change.operationID),
		s.newOperation(rq, change.operationID, database.UpdateRequest, &cluster.Resource, document.UID, document.Generation, now))
	return batch.Commit(ctx)
}

// deleteCluster starts the deletion; the backend takes the node pools along.
func (s *Server) deleteCluster(ctx context.Context, rq *request) error {
	operationID := uuid.NewString()
	started, err := s.startClusterDeletion(ctx, rq, rq.key(), operationID, rq.preconditions)
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

// startClusterDeletion reports whether there was a cluster to delete.
func (s *Server) startClusterDeletion(ctx context.Context, rq *request, key database.Key, operationID string, precondition func(etag string) error) (started bool, err error) {
	var document database.ClusterDocument
	err = database.Retry(ctx, func(ctx context.Context) error {
		started = false
		item, err := s.Database.Clusters().Find(ctx, key)
		if err != nil || live(item) == nil {
			return err
		}
		if err := precondition(item.ETag); err != nil {
			return err
		}
		if item.Value.ProvisioningState == hub.Deleting {
			return errDeleting
		}
		now := s.Now().UTC()
		batch := s.Database.NewBatch(key.SubscriptionID)
		if err := s.supersede(ctx, batch, key, item.Value.ActiveOperationID, now); err != nil {
			return err
		}
		item.Value.ProvisioningState = firstState(database.DeleteRequest)
		item.Value.ActiveOperationID = operationID
		database.Replace(batch, item)
		database.Create(batch, s.Database.Operations(), database.OperationKey(key.SubscriptionID, s.Location, operationID),
			s.newOperation(rq, operationID, database.DeleteRequest, &item.Value.Cluster.Resource, item.Value.UID, item.Value.Generation, now))
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		started, document = true, item.Value
		return nil
	})
	if started {
		s.Dispatcher.Cluster(&document, true, rq.correlationID)
	}
	return started, err
}

// deleteAllClusters starts the deletion of every cluster of the subscription in the path that is not being deleted yet.
func (s *Server) deleteAllClusters(ctx context.Context, rq *request) error {
	return s.Database.Clusters().All(ctx, rq.param(subscriptionParam), "", func(item *database.Item[database.ClusterDocument]) error {
		if item.Value.ProvisioningState == hub.Deleting {
			return nil
		}
		_, err := s.startClusterDeletion(ctx, rq, item.Key, uuid.NewString(), func(string) error { return nil })
		if errors.Is(err, errDeleting) {
			return nil
		}
		return err
	})
}
