package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// concurrently runs n calls concurrently and counts their results.
func concurrently(n int, call func(i int) int) map[int]int {
	var mu sync.Mutex
	counts := map[int]int{}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			result := call(i)
			mu.Lock()
			defer mu.Unlock()
			counts[result]++
		})
	}
	close(start)
	wg.Wait()
	return counts
}

// TestWritesAreReadAtOnce: after each successful request, the next one finds its result, while one replica of the store lags.
func TestWritesAreReadAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	must.Get(h.faults.Add(faults.Rule{Operations: []string{"read", "query", "list"}, ResourceTypes: []string{"docs"}, StaleRead: true}))(t)
	target := y.cluster("new")
	created := y.mustDo(http.StatusCreated, http.MethodPut, target, y.body("cluster.json", "{}"))
	y.mustDo(http.StatusOK, http.MethodGet, target, "")
	y.mustDo(http.StatusOK, http.MethodGet, created.Get("Azure-AsyncOperation"), "")
	if _, _, list := y.do(http.MethodGet, y.allClusters(), ""); !strings.Contains(list, `"name":"new"`) {
		t.Errorf("the list does not have the cluster: %s", list)
	}
	must.Do(t, y.finishOperations(context.Background()))
	patched := y.mustDo(http.StatusAccepted, http.MethodPatch, target, `{"tags":{"value":"a"}}`)
	if read := y.mustDo(http.StatusOK, http.MethodGet, target, ""); read.Get("ETag") != patched.Get("ETag") {
		t.Errorf("a read after the update has the ETag %s, want %s", read.Get("ETag"), patched.Get("ETag"))
	}
	must.Do(t, y.finishOperations(context.Background()))
	y.mustDo(http.StatusAccepted, http.MethodDelete, target, "")
	if _, _, body := y.do(http.MethodGet, target, ""); !strings.Contains(body, `"provisioningState":"Deleting"`) {
		t.Errorf("the deleted cluster: %s", body)
	}
}

// TestOneUpdateAtATime: of concurrent PATCHes, one is accepted. With If-Match the others fail the precondition or are
// conflicts.
func TestOneUpdateAtATime(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	etag := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag")
	counts := concurrently(8, func(i int) int {
		status, _, _ := y.do(http.MethodPatch, y.cluster("cluster"), fmt.Sprintf(`{"tags":{"by":"%d"}}`, i), "If-Match", etag)
		return status
	})
	if counts[http.StatusAccepted] != 1 || counts[http.StatusPreconditionFailed]+counts[http.StatusConflict] != 7 {
		t.Errorf("responses: %v", counts)
	}
	y.documents().check(t)
}

// TestManyPoolsAtOnce: concurrent creations of many node pools of a cluster all succeed.
func TestManyPoolsAtOnce(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	const pools = 16
	counts := concurrently(pools, func(i int) int {
		status, _, _ := y.do(http.MethodPut, fmt.Sprintf("%s/nodePools/pool-%d", y.cluster("cluster"), i), y.body("nodepool.json", "{}"))
		return status
	})
	if counts[http.StatusCreated] != pools {
		t.Errorf("responses: %v", counts)
	}
}

// TestOneNodePoolRemains: of concurrent deletions of all node pools of a cluster, all but one succeed.
func TestOneNodePoolRemains(t *testing.T) {
	t.Parallel()
	for _, pools := range []int{2, 8} {
		t.Run(fmt.Sprint(pools), func(t *testing.T) {
			y := newHarness(t).newSubscription(t)
			y.createCluster("cluster")
			pool := func(i int) string { return fmt.Sprintf("%s/nodePools/pool-%d", y.cluster("cluster"), i) }
			for i := range pools {
				y.mustDo(http.StatusCreated, http.MethodPut, pool(i), y.body("nodepool.json", "{}"))
			}
			counts := concurrently(pools, func(i int) int {
				status, _, _ := y.do(http.MethodDelete, pool(i), "")
				return status
			})
			if counts[http.StatusAccepted] != pools-1 || counts[http.StatusConflict] != 1 {
				t.Errorf("responses: %v", counts)
			}
			y.documents().check(t)
		})
	}
}

// TestManyClustersAtOnce: concurrent creations of clusters in one subscription do not block each other at the
// subscription's fences.
func TestManyClustersAtOnce(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	const clusters = 48
	if counts := y.createMany("cluster", clusters); counts[http.StatusCreated] != clusters {
		t.Errorf("responses: %v", counts)
	}
	y.documents().check(t)
}

// TestNodePoolCreationRacesWithClusterDeletion: node pools that are created while their cluster's deletion starts are part of the deletion or
// rejected.
func TestNodePoolCreationRacesWithClusterDeletion(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	counts := concurrently(9, func(i int) int {
		if i == 4 {
			status, _, _ := y.do(http.MethodDelete, y.cluster("cluster"), "")
			return status
		}
		status, _, _ := y.do(http.MethodPut, fmt.Sprintf("%s/nodePools/pool-%d", y.cluster("cluster"), i), y.body("nodepool.json", "{}"))
		return status
	})
	for status := range counts {
		switch status {
		case http.StatusCreated, http.StatusAccepted, http.StatusConflict:
		default:
			t.Errorf("responses: %v", counts)
		}
	}
	if counts[http.StatusAccepted] != 1 {
		t.Fatalf("the deletion was not accepted: %v", counts)
	}
	must.Do(t, y.finishOperations(context.Background()))
	if left := y.documents(); len(left.nodePools) != 0 || len(left.clusters) != 0 || len(left.reservations) != 0 {
		t.Errorf("%d clusters, %d node pools and %d reservations remain", len(left.clusters), len(left.nodePools), len(left.reservations))
	}
}

// TestCreateRacesWithSubscriptionDeletion: a creation that has read the subscription as Registered is rejected if the fences are
// closed before its commit. A creation that commits earlier is visible to a list of clusters after the closing.
func TestCreateRacesWithSubscriptionDeletion(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	must.Get(h.faults.Add(faults.Rule{Operations: []string{"batch"}, LatencyMS: 1000, Count: 1}))(t)
	body := y.body("cluster.json", "{}")
	type answer struct {
		status int
		text   string
	}
	created := make(chan answer)
	go func() {
		status, _, text := y.do(http.MethodPut, y.cluster("cluster"), body)
		created <- answer{status, text}
	}()
	eventually.Soon(t, "the fault was injected", func() error {
		if rules := h.faults.List(); len(rules) > 0 && rules[0].Fired == 0 {
			return errors.New("no request has met it")
		}
		return nil
	})
	y.mustDo(http.StatusOK, http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"Deleted","registrationDate":"now"}`)
	must.Do(t, h.db.CloseFences(t.Context(), y.subscription))
	listed := len(y.documents().clusters)
	got := <-created
	found := y.documents()
	if len(found.clusters) != listed {
		t.Errorf("%d clusters, of which %d existed when the fences were closed", len(found.clusters), listed)
	}
	switch {
	case listed == 1 && got.status == http.StatusCreated:
	case listed == 0 && got.status == http.StatusBadRequest && strings.Contains(got.text, "InvalidSubscriptionState"):
	default:
		t.Errorf("the creation got status %d %s, with %d clusters", got.status, got.text, listed)
	}
	found.check(t)
}

// TestFaults: with faults of Cosmos DB, a request is accepted once or not at all, and the stored documents are
// consistent.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]faults.Rule{
		"lost responses":    {Operations: []string{"batch"}, DropResponse: true, Count: 2},
		"lost requests":     {Operations: []string{"batch"}, DropRequest: true, Count: 2},
		"throttling":        {Status: 429, RetryAfterMS: 1, Count: 6},
		"unavailable":       {Status: 503, Count: 3},
		"retry with":        {Operations: []string{"batch"}, Status: 449, Count: 3},
		"lost read answers": {Operations: []string{"read"}, DropResponse: true, Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			y := h.newSubscription(t)
			must.Get(h.faults.Add(rule))(t)
			y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", "{}"))
			h.faults.Clear()
			found := y.documents()
			found.check(t)
			if len(found.clusters) != 1 || len(found.operations) != 1 {
				t.Fatalf("%d clusters and %d operations", len(found.clusters), len(found.operations))
			}
			must.Do(t, y.finishOperations(context.Background()))
			must.Get(h.faults.Add(rule))(t)
			y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"tags":{"a":"b"}}`)
			h.faults.Clear()
			found = y.documents()
			found.check(t)
			if len(found.operations) != 2 || found.clusters[0].Value.Generation != 2 {
				t.Errorf("%d operations, generation %d", len(found.operations), found.clusters[0].Value.Generation)
			}
		})
	}
}

// TestFastPath: committed changes of a cluster and of an external authentication reach Cluster Service without the
// backend, and a new incarnation has a new UID.
func TestFastPath(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	y.createCluster("cluster")
	first := y.documents().clusters[0].Value.UID
	h.awaitGeneration(t, first, 1)
	auth := y.cluster("cluster") + "/externalAuths/auth"
	y.mustDo(http.StatusCreated, http.MethodPut, auth, y.body("external-auth.json", "{}"))
	uid := y.documents().externals[0].Value.UID
	h.awaitGeneration(t, uid, 1)
	y.mustDo(http.StatusAccepted, http.MethodDelete, auth, "")
	h.awaitDeleted(t, uid)
	must.Do(t, y.finishOperations(context.Background()))
	y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"tags":{"a":"b"}}`)
	h.awaitGeneration(t, first, 2)
	y.mustDo(http.StatusAccepted, http.MethodDelete, y.cluster("cluster"), "")
	h.awaitDeleted(t, first)
	must.Do(t, y.finishOperations(context.Background()))
	y.createCluster("cluster")
	if second := y.documents().clusters[0].Value.UID; second == first {
		t.Errorf("the second incarnation has the uid of the first, %s", first)
	}
}

// TestReservationsRace: of concurrent creations that need the same reservation, each in another casing, one succeeds,
// and the others store nothing.
func TestReservationsRace(t *testing.T) {
	t.Parallel()
	casing := func(text string, i int) string {
		if i%2 == 0 {
			return strings.ToUpper(text)
		}
		return text
	}
	for name, share := range map[string]func(network string, i int) string{
		"subnet": func(network string, i int) string {
			return fmt.Sprintf(`"subnetId":%q,"vnetIntegrationSubnetId":%q,"networkSecurityGroupId":"%s/networkSecurityGroups/own-%d"`,
				network+casing("/virtualNetworks/vnet/subnets/shared", i), network+"/virtualNetworks/VNET/subnets/integration", network, i)
		},
		"network security group": func(network string, i int) string {
			return fmt.Sprintf(`"subnetId":"%s/virtualNetworks/vnet/subnets/own-%d","networkSecurityGroupId":%q`,
				network, i, network+casing("/networkSecurityGroups/shared", i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := newHarness(t).newSubscription(t)
			network := "/subscriptions/" + y.subscription + "/resourceGroups/network/providers/Microsoft.Network"
			counts := concurrently(8, func(i int) int {
				body := y.body("cluster.json", `{"properties":{"platform":{`+share(network, i)+`}}}`)
				status, _, _ := y.do(http.MethodPut, y.cluster(fmt.Sprintf("cluster-%d", i)), body)
				return status
			})
			if counts[http.StatusCreated] != 1 || counts[http.StatusBadRequest] != 7 {
				t.Errorf("responses: %v", counts)
			}
			found := y.documents()
			found.check(t)
			if len(found.clusters) != 1 || len(found.operations) != 1 {
				t.Errorf("%d clusters and %d operations remain", len(found.clusters), len(found.operations))
			}
		})
	}
}

// TestConcurrentPairsForOneManagedGroup: of each pair of concurrent creations with the same managed resource group, one succeeds
// and the other gets an error for the field. Pairs do not affect each other.
func TestConcurrentPairsForOneManagedGroup(t *testing.T) {
	t.Parallel()
	const pairs = 24
	y := newHarness(t).newSubscription(t)
	network := "/subscriptions/" + y.subscription + "/resourceGroups/network/providers/Microsoft.Network"
	group := func(i int) string {
		if i%2 == 1 {
			return fmt.Sprintf("MANAGED-%d", i/2)
		}
		return fmt.Sprintf("managed-%d", i/2)
	}
	statuses, answers := make([]int, 2*pairs), make([]string, 2*pairs)
	counts := concurrently(2*pairs, func(i int) int {
		body := y.body("cluster.json", fmt.Sprintf(`{"properties":{"platform":{"managedResourceGroup":%q,"subnetId":"%s/virtualNetworks/vnet/subnets/own-%d","networkSecurityGroupId":"%s/networkSecurityGroups/own-%d"}}}`,
			group(i), network, i, network, i))
		statuses[i], _, answers[i] = y.do(http.MethodPut, y.cluster(fmt.Sprintf("cluster-%d", i)), body)
		return statuses[i]
	})
	if counts[http.StatusCreated] != pairs || counts[http.StatusBadRequest] != pairs {
		t.Errorf("responses: %v", counts)
	}
	for i := 0; i < 2*pairs; i += 2 {
		lost := i
		if statuses[i] == http.StatusCreated {
			lost = i + 1
		}
		if statuses[i]+statuses[i+1] != http.StatusCreated+http.StatusBadRequest {
			t.Errorf("pair %d got status %d and %d", i/2, statuses[i], statuses[i+1])
			continue
		}
		got := decode[errorAnswer](t, answers[lost])
		if want := fmt.Sprintf("Invalid value: %q: is in use by another cluster of the subscription", group(lost)); got.Error.Code != "InvalidRequestContent" ||
			got.Error.Target != "properties.platform.managedResourceGroup" || got.Error.Message != want {
			t.Errorf("the loser of pair %d got %+v, want %q", i/2, got.Error, want)
		}
	}
	found := y.documents()
	found.check(t)
	if len(found.clusters) != pairs || len(found.operations) != pairs {
		t.Errorf("%d clusters and %d operations remain of %d pairs", len(found.clusters), len(found.operations), pairs)
	}
	held := map[string]int{}
	for _, c := range found.clusters {
		held[strings.ToLower(c.Value.Cluster.Properties.Platform.ManagedResourceGroup)]++
	}
	for name, clusters := range held {
		if clusters != 1 {
			t.Errorf("%d clusters have the managed resource group %s", clusters, name)
		}
	}
}

// TestOneNameInAnyCasing: of concurrent PUTs of one new name, in any casing, one creates the cluster, and the others
// are conflicts.
func TestOneNameInAnyCasing(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	counts := concurrently(8, func(i int) int {
		name := []string{"cluster", "Cluster", "CLUSTER", "cLUSTER"}[i%4]
		status, _, _ := y.do(http.MethodPut, y.cluster(name), y.body("cluster.json", "{}"))
		return status
	})
	if counts[http.StatusCreated] != 1 || counts[http.StatusConflict] != 7 {
		t.Errorf("responses: %v", counts)
	}
	y.documents().check(t)
}

// TestReservationsDuringDeletion: while a cluster is being deleted, others request its reservations. None succeeds before the
// cluster is gone; then exactly one does, possibly with the same name.
func TestReservationsDuringDeletion(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	body := y.body("cluster.json", `{"properties":{"platform":{"managedResourceGroup":"managed"}}}`)
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), body)
	must.Do(t, y.finishOperations(context.Background()))
	y.mustDo(http.StatusAccepted, http.MethodDelete, y.cluster("cluster"), "")
	first := y.documents().clusters[0].Value.UID

	var stop atomic.Bool
	gone := make(chan error, 1)
	go func() {
		gone <- y.finishOperations(context.Background())
		stop.Store(true)
	}()
	counts := concurrently(6, func(i int) int {
		name := fmt.Sprintf("cluster-%d", i)
		if i == 0 {
			name = "cluster"
		}
		for {
			// The result after the end of the deletion is final.
			last := stop.Load()
			status, _, answer := y.do(http.MethodPut, y.cluster(name), body)
			if status == http.StatusCreated || last {
				return status
			}
			if status != http.StatusBadRequest && status != http.StatusConflict {
				t.Errorf("the PUT of %s got status %d: %s", name, status, answer)
				return status
			}
		}
	})
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if counts[http.StatusCreated] != 1 {
		t.Errorf("responses: %v", counts)
	}
	found := y.documents()
	found.check(t)
	if len(found.clusters) != 1 || found.clusters[0].Value.UID == first {
		t.Errorf("%d clusters remain, the first is %s", len(found.clusters), first)
	}
	for _, reservation := range found.reservations {
		if reservation.Value.OwnerUID != found.clusters[0].Value.UID {
			t.Errorf("the reservation of %s belongs to %s", reservation.Value.Name, reservation.Value.OwnerUID)
		}
	}
}

// TestNoClusterInAManagedGroup: no cluster may be in the managed resource group of another one, whichever is created
// first, because the group is deleted with its cluster.
func TestNoClusterInAManagedGroup(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	in := func(group, name string) string {
		return strings.Replace(y.cluster(name), "/resourceGroups/group/", "/resourceGroups/"+group+"/", 1)
	}
	managed := func(name, group string) string {
		network := "/subscriptions/" + y.subscription + "/resourceGroups/network/providers/Microsoft.Network"
		return fmt.Sprintf(`{"properties":{"platform":{"managedResourceGroup":%q,"subnetId":"%s/virtualNetworks/vnet/subnets/%s","networkSecurityGroupId":"%s/networkSecurityGroups/%s"}}}`,
			group, network, name, network, name)
	}
	y.mustDo(http.StatusCreated, http.MethodPut, in("one", "first"), y.body("cluster.json", managed("first", "managed-by-first")))
	y.mustDo(http.StatusBadRequest, http.MethodPut, in("two", "second"), y.body("cluster.json", managed("second", "ONE")))
	y.mustDo(http.StatusConflict, http.MethodPut, in("Managed-By-First", "third"), y.body("cluster.json", managed("third", "three")))
	y.mustDo(http.StatusCreated, http.MethodPut, in("two", "second"), y.body("cluster.json", managed("second", "managed-by-second")))
	y.documents().check(t)
}
