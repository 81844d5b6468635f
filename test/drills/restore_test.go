package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/credentials"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// maintenanceDatabase is the database from which the databases of services are copied and renamed.
const maintenanceDatabase = "postgres"

// restoreFleet restores the database of Cluster Service to the time before a node pool was created. The backend cannot compare the customer's
// subscription, because Cosmos DB answers queries of it with errors. The engineer repairs Cosmos DB and reconciles the region.
func restoreFleet(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	const backup = local.ClusterServiceDatabase + "_backup"
	release := hold("cluster-service")(t, ctx, r)
	r.sqlIn(t, ctx, maintenanceDatabase, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s_owner", backup, local.ClusterServiceDatabase, local.ClusterServiceDatabase))
	release()
	must.Get(r.customer.Put(ctx, r.customer.NodePoolID(second, "restored"), r.customer.NodePoolBody(1)))(t)

	unreadable := cosmosFault(map[string]any{"id": "partition", "container": "Resources", "resourceTypes": []string{"docs"}, "operations": []string{"query"},
		"partitionKey": fmt.Sprintf("[%q]", subscription), "status": http.StatusInternalServerError})(t, ctx, r)
	release = hold("cluster-service")(t, ctx, r)
	for _, statement := range []string{
		"DROP DATABASE " + local.ClusterServiceDatabase + " WITH (FORCE)",
		"ALTER DATABASE " + backup + " RENAME TO " + local.ClusterServiceDatabase,
		"REVOKE ALL ON DATABASE " + local.ClusterServiceDatabase + " FROM PUBLIC",
		"GRANT CONNECT ON DATABASE " + local.ClusterServiceDatabase + " TO " + local.ClusterServiceDatabase,
	} {
		r.sqlIn(t, ctx, maintenanceDatabase, statement)
	}
	release()
	return func() {
		unreadable()
		r.reconcile(t, ctx)
	}
}

// disagree gives a node pool of the fleet a generation that ARM does not have, as a restore of Cosmos DB would. The next change of the customer
// replaces it, and the engineer reconciles the region.
func disagree(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	id := r.customer.NodePoolID(second, "newer")
	must.Get(r.customer.Put(ctx, id, r.customer.NodePoolBody(1)))(t)
	r.sql(t, ctx, "UPDATE node_pools SET generation = generation + 5 WHERE gone_time IS NULL AND lower(resource_id) = lower('"+id+"')")
	r.reconcile(t, ctx)
	return func() {
		if _, err := r.customer.Put(ctx, id, r.customer.NodePoolBody(2)); err != nil {
			t.Error(err)
		}
		r.reconcile(t, ctx)
	}
}

// publishUnknown publishes a bundle of Cluster Service that has neither a work nor a deletion record, as a late message after a restore would.
// The engineer deletes it.
func publishUnknown(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	endpoints := r.Endpoints()
	identity := must.Get(mesh.LoadIdentity(endpoints.Identities[string(mesh.ClusterService)]))(t)
	client := must.Get(maestro.NewClient("passthrough:///"+endpoints.MaestroGRPC, fleet.Source, credentials.NewTLS(identity.ClientTLS(mesh.MaestroServer)), slog.New(slog.DiscardHandler)))(t)
	defer func() { _ = client.Close() }()
	const name, shard = "ocm-local-unknown", "mgmt-1"
	manifest := must.Get(json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}))(t)
	work := fleet.WorkName(fleet.Namespaces, "unknown", "")
	bundle := &maestro.Bundle{ID: fleet.WorkID(shard, work, ""), Name: work, Consumer: shard, Manifests: []json.RawMessage{manifest},
		Configs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: name},
			UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}}}}
	must.Get(client.Create(ctx, bundle))(t)
	return func() {
		r.mustHcpctl(t, ctx, "orphan", "delete", bundle.ID, "--as", "approver", "--reason", "drill of an unknown bundle", "--ticket", "CHG-1")
	}
}

// reconcile compares the region as an engineer.
func (r *region) reconcile(t *testing.T, ctx context.Context) {
	t.Helper()
	t.Log(r.mustHcpctl(t, ctx, "drift", "reconcile", "--reason", "drill of a restore", "--ticket", "CHG-1"))
}

// manySubscriptions is the number of subscriptions with one request each that together use all seats of the frontend, while others wait.
const manySubscriptions = 1000

// busyFrontend makes Cosmos DB slow, and requests something in many subscriptions at once, in place of ARM.
func busyFrontend(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	identity := must.Get(mesh.LoadIdentity(r.Endpoints().Identities[string(mesh.ARMFrontDoor)]))(t)
	token := must.Get(r.customer.ARMToken(ctx))(t)
	transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: manySubscriptions}
	client := &http.Client{Transport: transport}
	slow := cosmosFault(map[string]any{"id": "very-slow", "container": "Resources", "resourceTypes": []string{"docs"}, "operations": []string{"read", "query"}, "latencyMs": 9000})(t, ctx, r)
	var stops []func()
	for range manySubscriptions {
		address := "https://" + r.Endpoints().Frontend + "/subscriptions/" + uuid.NewString() + "/resourceGroups/" + resourceGroup +
			"/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/busy?api-version=" + customer.APIVersion
		stops = append(stops, r.repeat(ctx, func(ctx context.Context) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer "+token)
			if response, err := client.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}))
	}
	return func() {
		slow()
		var stopping sync.WaitGroup
		for _, stop := range stops {
			stopping.Go(stop)
		}
		stopping.Wait()
		transport.CloseIdleConnections()
	}
}

// sql runs a statement in the database of Cluster Service as the superuser.
func (r *region) sql(t *testing.T, ctx context.Context, statement string) {
	t.Helper()
	r.sqlIn(t, ctx, local.ClusterServiceDatabase, statement)
}

// sqlIn runs a statement in a database as the superuser.
func (r *region) sqlIn(t *testing.T, ctx context.Context, database, statement string) {
	t.Helper()
	text := must.Get(os.ReadFile(r.Endpoints().AdministratorURLFile))(t)
	address := must.Get(url.Parse(string(bytes.TrimSpace(text))))(t)
	address.Path = "/" + database
	connection := must.Get(pgx.Connect(ctx, address.String()))(t)
	defer func() { _ = connection.Close(ctx) }()
	if _, err := connection.Exec(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}
