package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// newestVersion is the newest api-version.
var newestVersion = version.Newest().Name

// testSubscription is the subscription of a test.
type testSubscription struct {
	*harness
	t            testing.TB
	subscription string
}

func (h *harness) newSubscription(t testing.TB) *testSubscription {
	t.Helper()
	y := &testSubscription{h, t, uuid.NewString()}
	if status, _, body := y.do(http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"Registered","registrationDate":"now"}`); status != http.StatusOK {
		t.Fatalf("registering the subscription: %d %s", status, body)
	}
	return y
}

// in returns the subscription for a subtest.
func (y *testSubscription) in(t testing.TB) *testSubscription {
	return &testSubscription{y.harness, t, y.subscription}
}

func (y *testSubscription) cluster(name string) string {
	return "/subscriptions/" + y.subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

// body returns a file of testdata/bodies with a merge patch applied.
func (y *testSubscription) body(file, patch string) string {
	y.t.Helper()
	content := must.Get(os.ReadFile("../../testdata/bodies/" + file))(y.t)
	group := "/subscriptions/" + y.subscription + "/resourceGroups/"
	text := strings.NewReplacer("{{location}}", location, "{{subscription}}", y.subscription, "{{network}}", group+"network/providers/Microsoft.Network",
		"{{identity}}", group+"identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities").Replace(string(content))
	fields := must.Get(wire.ParseObject([]byte(text)))(y.t)
	changes := must.Get(wire.ParseObject([]byte(patch)))(y.t)
	merged := must.Get(json.Marshal(wire.MergePatch(fields, changes)))(y.t)
	return string(merged)
}

// platformPatch returns a patch that sets a cluster's subnet and security group to names of its own.
func (y *testSubscription) platformPatch(name string) string {
	network := "/subscriptions/" + y.subscription + "/resourceGroups/network/providers/Microsoft.Network"
	return fmt.Sprintf(`{"properties":{"platform":{"subnetId":"%s/virtualNetworks/vnet/subnets/%s","networkSecurityGroupId":"%s/networkSecurityGroups/%s"}}}`,
		network, name, network, name)
}

// do sends a request directly to the handler.
func (y *testSubscription) do(method, target, body string, headers ...string) (int, http.Header, string) {
	recorder := httptest.NewRecorder()
	y.server.ServeHTTP(recorder, y.request(method, target, body, headers...))
	return recorder.Code, recorder.Header(), recorder.Body.String()
}

// request returns a request as ARM sends it, at the newest api-version unless the target names one.
func (y *testSubscription) request(method, target, body string, headers ...string) *http.Request {
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	if !strings.Contains(target, "api-version") {
		target += separator + "api-version=" + newestVersion
	}
	request := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Ms-Identity-Url", "https://identity.example")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

// mustDo is do with a required status.
func (y *testSubscription) mustDo(status int, method, target, body string, headers ...string) http.Header {
	y.t.Helper()
	got, header, answer := y.do(method, target, body, headers...)
	if got != status {
		y.t.Fatalf("%s %s status %d, want %d: %s", method, target, got, status, answer)
	}
	return header
}

// createCluster creates a cluster and finishes its operation.
func (y *testSubscription) createCluster(name string) {
	y.t.Helper()
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster(name), y.body("cluster.json", y.platformPatch(name)))
	must.Do(y.t, y.finishOperations(context.Background()))
}

// documents are the live documents of the subscription.
type documents struct {
	clusters     []*database.Item[database.ClusterDocument]
	nodePools    []*database.Item[database.NodePoolDocument]
	externals    []*database.Item[database.ExternalAuthDocument]
	credentials  []*database.Item[database.CredentialDocument]
	operations   []*database.Item[database.OperationDocument]
	reservations []*database.Item[database.ReservationDocument]
}

func (y *testSubscription) documents() documents {
	y.t.Helper()
	return documents{
		clusters: all(y, y.db.Clusters()), nodePools: all(y, y.db.NodePools()), externals: all(y, y.db.ExternalAuths()), credentials: all(y, y.db.Credentials()),
		operations: all(y, y.db.Operations()), reservations: all(y, y.db.Reservations()),
	}
}

func all[T any](y *testSubscription, collection *database.Collection[T]) []*database.Item[T] {
	y.t.Helper()
	var found []*database.Item[T]
	must.Do(y.t, collection.ForEach(context.Background(), y.subscription, "", func(item *database.Item[T]) error {
		found = append(found, item)
		return nil
	}))
	return found
}

// check tests the invariants of the store: every cluster has three reservations and every external authentication one,
// there are no others, and every resource with a non-terminal state has one active operation.
func (d documents) check(t testing.TB) {
	t.Helper()
	uids := map[string]bool{}
	active := map[string]string{}
	running := map[string]database.OperationRequest{}
	for _, operation := range d.operations {
		if operation.Value.Status.Terminal() {
			continue
		}
		running[operation.Value.OperationID] = operation.Value.Request
		switch operation.Value.Request {
		case database.CreateRequest, database.UpdateRequest, database.DeleteRequest:
			if other := active[operation.Value.UID]; other != "" {
				t.Errorf("%s has two active operations: %s and %s", operation.Value.ResourceID, other, operation.Value.OperationID)
			}
			active[operation.Value.UID] = operation.Value.OperationID
		}
	}
	for _, credential := range d.credentials {
		pending := credential.Value.State == database.CredentialPending
		if pending != (running[credential.Value.UID] == database.RequestCredentialRequest) {
			t.Errorf("%s is %s, and its operation is active: %v", credential.Key.ResourceID, credential.Value.State, !pending)
		}
		if !pending && credential.Value.State != database.CredentialIssued && len(credential.Value.SealedPrivateKey) > 0 {
			t.Errorf("%s is %s and still has a key", credential.Key.ResourceID, credential.Value.State)
		}
	}
	for _, cluster := range d.clusters {
		uids[cluster.Value.UID] = true
		if id := cluster.Value.RevocationOperationID; id != "" && running[id] != database.RevokeCredentialsRequest {
			t.Errorf("%s refers to a revocation that is not active", cluster.Key.ResourceID)
		}
		if active[cluster.Value.UID] != cluster.Value.ActiveOperationID || (cluster.Value.ActiveOperationID == "") != cluster.Value.ProvisioningState.Terminal() {
			t.Errorf("%s is %s with the operation %q, and active is %q", cluster.Key.ResourceID, cluster.Value.ProvisioningState,
				cluster.Value.ActiveOperationID, active[cluster.Value.UID])
		}
	}
	ofClusters := map[string]int{}
	for _, external := range d.externals {
		uids[external.Value.UID] = true
		ofClusters[external.Value.ClusterUID]++
		if active[external.Value.UID] != external.Value.ActiveOperationID {
			t.Errorf("%s is %s with the operation %q, and active is %q", external.Key.ResourceID, external.Value.ProvisioningState,
				external.Value.ActiveOperationID, active[external.Value.UID])
		}
		if !uids[external.Value.ClusterUID] || ofClusters[external.Value.ClusterUID] > 1 {
			t.Errorf("%s is not the only one of its cluster, or the cluster is missing", external.Key.ResourceID)
		}
	}
	if want := 4*len(d.clusters) + len(d.externals); len(d.reservations) != want {
		t.Errorf("%d reservations for %d clusters and %d external authentications", len(d.reservations), len(d.clusters), len(d.externals))
	}
	for _, reservation := range d.reservations {
		if !uids[reservation.Value.OwnerUID] {
			t.Errorf("the reservation of %s has no owner", reservation.Value.Name)
		}
	}
}

// awaitGeneration waits until Cluster Service has a generation of a resource.
func (h *harness) awaitGeneration(t testing.TB, uid string, want int64) {
	t.Helper()
	eventually.Soon(t, fmt.Sprintf("Cluster Service has generation %d", want), func() error {
		if got := h.clusterService.generation(uid); got != want {
			return fmt.Errorf("it has %d", got)
		}
		return nil
	})
}

// awaitDeleted waits until Cluster Service has deleted a resource.
func (h *harness) awaitDeleted(t testing.TB, uid string) {
	t.Helper()
	eventually.Soon(t, "Cluster Service has deleted the resource", func() error {
		h.clusterService.mu.Lock()
		defer h.clusterService.mu.Unlock()
		if !h.clusterService.deleted[uid] {
			return errors.New("it has not")
		}
		return nil
	})
}

func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var value T
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}
