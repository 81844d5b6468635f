package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func authKey(cluster database.Key, name string) database.Key {
	return database.Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/externalAuths/" + name}
}

// createAuth writes what the frontend writes for a PUT of an external authentication with one confidential client.
func (r *region) createAuth(cluster database.Key, name string) (operation database.Key) {
	r.t.Helper()
	key, uid := authKey(cluster, name), uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		parent, err := r.db.Clusters().Get(ctx, cluster)
		if err != nil {
			return err
		}
		document := database.ExternalAuthDocument{
			UID: uid, ClusterUID: parent.Value.UID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID,
			ExternalAuth: hub.ExternalAuth{Resource: hub.Resource{ID: key.ResourceID, Name: name}},
		}
		document.ExternalAuth.Properties.Clients = []hub.ExternalAuthClient{{ClientID: "console", Type: "Confidential"}}
		batch := r.db.NewBatch(key.SubscriptionID)
		database.Create(batch, r.db.ExternalAuths(), key, document)
		database.Create(batch, r.db.Operations(), opKey, op)
		for reserved, reservation := range database.ExternalAuthReservations(key, uid) {
			database.Create(batch, r.db.Reservations(), reserved, reservation)
		}
		database.Replace(batch, parent)
		return batch.Commit(ctx)
	}))
	return opKey
}

// changeAuth replaces the active operation of an external authentication.
func (r *region) changeAuth(key database.Key, request database.OperationRequest) (operation database.Key) {
	r.t.Helper()
	return begin(r, r.db.ExternalAuths(), authFields, key, request, func(ctx context.Context, batch *database.Batch, auth *database.ExternalAuthDocument) error {
		return r.db.Supersede(ctx, batch, auth.ActiveOperationID, "superseded", time.Now().UTC())
	})
}

// requestCredential writes what the frontend writes for a request of an admin credential.
func (r *region) requestCredential(cluster database.Key) (operation, credential database.Key) {
	r.t.Helper()
	id := uuid.NewString()
	credential = database.CredentialKey(cluster, id)
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		parent, err := r.db.Clusters().Get(ctx, cluster)
		if err != nil {
			return err
		}
		_, op := newOperation(database.RequestCredentialRequest, credential, parent.Value.UID, 0)
		op.OperationID, op.Requester = id, "alice"
		operation = database.OperationKey(cluster.SubscriptionID, op.Location, id)
		batch := r.db.NewBatch(cluster.SubscriptionID)
		database.Create(batch, r.db.Credentials(), credential, database.CredentialDocument{
			UID: id, ClusterResourceID: cluster.ResourceID, ClusterUID: parent.Value.UID, Requester: "alice", State: database.CredentialPending,
		})
		database.Create(batch, r.db.Operations(), operation, op)
		database.Replace(batch, parent)
		return batch.Commit(ctx)
	}))
	return operation, credential
}

// revoke writes what the frontend writes for a revocation: it cancels the pending credentials and creates the
// operation.
func (r *region) revoke(cluster database.Key) (operation database.Key) {
	r.t.Helper()
	id := uuid.NewString()
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		parent, err := r.db.Clusters().Get(ctx, cluster)
		if err != nil {
			return err
		}
		_, op := newOperation(database.RevokeCredentialsRequest, database.RevocationKey(cluster, id), parent.Value.UID, 0)
		op.OperationID, op.Requester = id, "alice"
		operation = database.OperationKey(cluster.SubscriptionID, op.Location, id)
		batch := r.db.NewBatch(cluster.SubscriptionID)
		pending, err := r.db.PendingCredentials(ctx, cluster)
		if err != nil {
			return err
		}
		for _, credential := range pending {
			if err := r.db.Supersede(ctx, batch, credential.Value.UID, "revoked", op.StartTime); err != nil {
				return err
			}
			credential.Value.State = database.CredentialCanceled
			database.Replace(batch, credential)
		}
		parent.Value.RevocationOperationID = id
		database.Replace(batch, parent)
		database.Create(batch, r.db.Operations(), operation, op)
		return batch.Commit(ctx)
	}))
	return operation
}

func (r *region) freeze(frozen bool) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.frozen = frozen
}

func (r *region) giveSecrets() {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.secrets = true
	for uid := range r.fleet.auths {
		r.fleet.moving[uid] = true
	}
}

// credentialIs checks the state of a credential.
func (r *region) credentialIs(key database.Key, want database.CredentialState) database.CredentialDocument {
	r.t.Helper()
	item := must.Get(r.db.Credentials().Get(r.t.Context(), key))(r.t)
	if item.Value.State != want {
		r.t.Errorf("credential %s is %s, want %s", key.ResourceID, item.Value.State, want)
	}
	return item.Value
}

func TestExternalAuthLifecycle(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	cluster := r.createdCluster("a")

	operation := r.createAuth(cluster, "entra")
	awaiting := func(key database.Key, operation database.Key) {
		t.Helper()
		r.eventually("awaiting the secret", func() string {
			item, err := r.db.ExternalAuths().Get(t.Context(), key)
			if err != nil || item.Value.ProvisioningState != hub.AwaitingSecret {
				return fmt.Sprint(item, err)
			}
			op, err := r.db.Operations().Get(t.Context(), operation)
			if err != nil || op.Value.Status != hub.AwaitingSecret || op.Value.EndTime != nil {
				return fmt.Sprint(op, err)
			}
			return ""
		})
	}
	key := authKey(cluster, "entra")
	awaiting(key, operation)
	r.giveSecrets()
	r.ends(operation, hub.Succeeded)
	r.ends(r.changeAuth(key, database.UpdateRequest), hub.Succeeded)
	r.ends(r.changeAuth(key, database.DeleteRequest), hub.Succeeded)

	// Its reservation is free for another one, which is deleted while it waits for its secret.
	r.fleet.mu.Lock()
	r.fleet.secrets = false
	r.fleet.mu.Unlock()
	operation, key = r.createAuth(cluster, "other"), authKey(cluster, "other")
	awaiting(key, operation)
	r.ends(r.changeAuth(key, database.DeleteRequest), hub.Succeeded)
	r.ends(operation, hub.Canceled)

	// A third one is deleted with its cluster.
	r.giveSecrets()
	r.ends(r.createAuth(cluster, "last"), hub.Succeeded)
	r.ends(r.change(cluster, database.DeleteRequest), hub.Succeeded)
	r.nothingLeft(subscription)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	cluster := clusterKey(subscription, "a")
	creation := r.createCluster(cluster)
	// A credential may be requested before the cluster is ready. It waits for the cluster.
	early, first := r.requestCredential(cluster)
	r.ends(creation, hub.Succeeded)
	r.ends(early, hub.Succeeded)
	if document := r.credentialIs(first, database.CredentialIssued); document.ExpirationTime == nil || document.ExpirationTime.Before(time.Now().Add(23*time.Hour)) {
		t.Errorf("an issued credential: %+v", document)
	}

	r.freeze(true)
	pending, second := r.requestCredential(cluster)
	revocation := r.revoke(cluster)
	r.ends(pending, hub.Canceled)
	r.credentialIs(second, database.CredentialCanceled)
	r.freeze(false)
	r.ends(revocation, hub.Succeeded)
	r.credentialIs(first, database.CredentialRevoked)
	r.credentialIs(second, database.CredentialCanceled)
	item, err := r.db.Clusters().Get(t.Context(), cluster)
	if err != nil || item.Value.RevocationOperationID != "" {
		t.Errorf("the cluster refers to the revocation after its end: %+v, %v", item, err)
	}

	again, third := r.requestCredential(cluster)
	r.ends(again, hub.Succeeded)
	r.credentialIs(third, database.CredentialIssued)

	// The deletion of the cluster cancels the pending credentials and removes everything.
	r.freeze(true)
	pending, _ = r.requestCredential(cluster)
	revocation = r.revoke(cluster)
	deletion := r.change(cluster, database.DeleteRequest)
	r.ends(pending, hub.Canceled)
	// Wait before unfreezing the fleet: a revocation that ends before the deletion is processed succeeds.
	r.ends(revocation, hub.Canceled)
	r.freeze(false)
	r.ends(deletion, hub.Succeeded)
	r.nothingLeft(subscription)
}

// TestAccessWaitsForRevocationByEngineer: an engineer may revoke the customer's class without ARM, which accepts
// requests and revocations meanwhile. Cluster Service delays them until the engineer's revocation ends.
func TestAccessWaitsForRevocationByEngineer(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	cluster := r.createdCluster("a")
	item := must.Get(r.db.Clusters().Get(t.Context(), cluster))(t)
	meanwhile := func(ask func() (uid string)) {
		t.Helper()
		r.freeze(true)
		ofSRE := &clusterservicev1.RevokeBreakGlassCredentialsRequest{Uid: uuid.NewString(), ClusterUid: item.Value.UID, Requester: "oncall",
			Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER}
		must.Get(clusterservicev1.NewClusterServiceClient(r.connection).RevokeBreakGlassCredentials(t.Context(), ofSRE))(t)
		uid := ask()
		r.eventually("a repeated request after the rejection", func() string {
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			if r.fleet.calls[uid] < 2 || r.fleet.effects[uid] != 0 {
				return fmt.Sprintf("%d requests with %d effects", r.fleet.calls[uid], r.fleet.effects[uid])
			}
			return ""
		})
		r.freeze(false)
	}
	var operation, credential database.Key
	meanwhile(func() string {
		operation, credential = r.requestCredential(cluster)
		document := must.Get(r.db.Credentials().Get(t.Context(), credential))(t)
		return document.Value.UID
	})
	r.ends(operation, hub.Succeeded)
	r.credentialIs(credential, database.CredentialIssued)
	meanwhile(func() string {
		operation = r.revoke(cluster)
		document := must.Get(r.db.Operations().Get(t.Context(), operation))(t)
		return document.Value.OperationID
	})
	r.ends(operation, hub.Succeeded)
	r.credentialIs(credential, database.CredentialRevoked)
}

// TestRevocationExceedsOneTransaction revokes more credentials than fit into one transaction.
func TestRevocationExceedsOneTransaction(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	cluster := r.createdCluster("a")
	var operations, credentials []database.Key
	for range 130 {
		operation, credential := r.requestCredential(cluster)
		operations, credentials = append(operations, operation), append(credentials, credential)
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	r.ends(r.revoke(cluster), hub.Succeeded)
	for _, credential := range credentials {
		r.credentialIs(credential, database.CredentialRevoked)
	}
	r.ends(r.change(cluster, database.DeleteRequest), hub.Succeeded)
	r.nothingLeft(subscription)
}

// TestRejectedCredentialRequestFails: a request that Cluster Service rejects permanently fails at once.
func TestRejectedCredentialRequestFails(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	stop := r.start("backend-0")
	cluster := r.createdCluster("a")
	stop()
	operation, credential := r.requestCredential(cluster)
	r.refuse(apierror.ToGRPC(apierror.InvalidFields([]apierror.Violation{{Field: "spec.certificate_signing_request", Message: "Invalid value: it is not signed"}}), "clusterservice.hcpmesh"))
	r.start("backend-0")
	if got := r.ends(operation, hub.Failed); got.Error == nil || got.Error.Target != "certificateSigningRequest" {
		t.Errorf("the error of a rejected request: %+v", got.Error)
	}
	r.credentialIs(credential, database.CredentialFailed)
}

// TestMissedReportsAreListed: all changes that happened while no backend ran are processed, although Cluster Service no
// longer has them.
func TestMissedReportsAreListed(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	stop := r.start("backend-0")
	cluster := r.createdCluster("a")
	stop()

	auth := r.createAuth(cluster, "entra")
	request, credential := r.requestCredential(cluster)
	document := must.Get(r.db.ExternalAuths().Get(t.Context(), authKey(cluster, "entra")))(t)
	asked := must.Get(r.db.Credentials().Get(t.Context(), credential))(t)
	client := clusterservice.NewClient(r.connection)
	must.Get(client.ApplyExternalAuth(t.Context(), &document.Value))(t)
	must.Get(client.ApplyCredential(t.Context(), &asked.Value))(t)
	r.giveSecrets()
	r.eventually("the fleet", func() string {
		report, err := client.GetCredentialReport(t.Context(), asked.Value.UID)
		if err != nil || report.Expiration == nil {
			return fmt.Sprint(report, err)
		}
		return ""
	})
	r.fleet.compact()
	r.start("backend-0")
	r.ends(auth, hub.Succeeded)
	r.ends(request, hub.Succeeded)
	r.credentialIs(credential, database.CredentialIssued)
}
