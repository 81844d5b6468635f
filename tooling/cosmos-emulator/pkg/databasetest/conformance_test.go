package databasetest_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

const subscription = "00000000-0000-0000-0000-0000000000aa"

func clusterKey(t testing.TB, name string) database.Key {
	t.Helper()
	return must.Get(database.ResourceKey("/subscriptions/" + strings.ToUpper(subscription) + "/resourceGroups/RG/providers/" + hub.ClusterResourceType + "/" + name))(t)
}

func cluster(uid string) database.ClusterDocument {
	return database.ClusterDocument{
		UID: uid, Generation: 1, ProvisioningState: hub.Accepted,
		Cluster: hub.Cluster{Resource: hub.Resource{Location: "westus3", Tags: map[string]string{"a": "b"}}},
	}
}

func create(t testing.TB, db *database.DB, name, uid string) *database.Item[database.ClusterDocument] {
	t.Helper()
	batch := db.NewBatch(subscription)
	item := database.Create(batch, db.Clusters(), clusterKey(t, name), cluster(uid))
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatalf("creating %s: %v", name, err)
	}
	return item
}

func TestSchemaIsIdempotent(t *testing.T) {
	db, server := databasetest.New(t)
	if err := db.EnsureSchema(t.Context()); err != nil {
		t.Errorf("EnsureSchema again: %v", err)
	}
	if err := server.Open(t).EnsureSchema(t.Context()); err != nil {
		t.Errorf("EnsureSchema of another process: %v", err)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func TestReadReturnsWrittenDocument(t *testing.T) {
	db, _ := databasetest.New(t)
	made := create(t, db, "Alpha", "uid-1")
	key := clusterKey(t, "aLPHA")
	got, err := db.Clusters().Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get in another casing: %v", err)
	}
	if diff := cmp.Diff(cluster("uid-1"), got.Value); diff != "" {
		t.Errorf("value (-want +got):\n%s", diff)
	}
	if got.ETag == "" || got.ETag != made.ETag {
		t.Errorf("ETag read is %q, after the commit %q", got.ETag, made.ETag)
	}
	if got.Key.ResourceID != clusterKey(t, "Alpha").ResourceID {
		t.Errorf("the resource ID %q does not have the casing of the create", got.Key.ResourceID)
	}
	if _, err := db.Clusters().Get(t.Context(), clusterKey(t, "beta")); apierror.KindOf(err) != apierror.ResourceNotFound {
		t.Errorf("Get of a missing document: %v", err)
	}
}

// TestFindIfChanged: a known document is not read again until it is changed, removed or created again.
func TestFindIfChanged(t *testing.T) {
	db, _ := databasetest.New(t)
	key := clusterKey(t, "a")
	read := func(etag string) (*database.Item[database.ClusterDocument], bool) {
		t.Helper()
		item, changed, err := db.Clusters().FindIfChanged(t.Context(), key, etag)
		if err != nil {
			t.Fatal(err)
		}
		return item, changed
	}
	write := func(add func(*database.Batch)) {
		t.Helper()
		batch := db.NewBatch(subscription)
		add(batch)
		must.Do(t, batch.Commit(t.Context()))
	}
	for _, etag := range []string{"", `"another"`} {
		if item, changed := read(etag); item != nil || !changed {
			t.Errorf("with the ETag %q a missing document is %+v, changed: %v", etag, item, changed)
		}
	}
	made := create(t, db, "a", "uid-1")
	item, changed := read("")
	if item == nil || !changed || item.ETag != made.ETag {
		t.Fatalf("without an ETag the document is %+v, changed: %v", item, changed)
	}
	if again, changed := read(made.ETag); again != nil || changed {
		t.Errorf("an unchanged document is %+v, changed: %v", again, changed)
	}
	write(func(batch *database.Batch) { item.Value.Generation = 2; database.Replace(batch, item) })
	if now, changed := read(made.ETag); now == nil || !changed || now.Value.Generation != 2 || now.ETag != item.ETag {
		t.Errorf("a changed document is %+v, changed: %v", now, changed)
	}
	write(func(batch *database.Batch) { database.Remove(batch, item) })
	if now, changed := read(made.ETag); now == nil || !changed || now.Removed == nil {
		t.Errorf("a removed document is %+v, changed: %v", now, changed)
	}
	if again := create(t, db, "a", "uid-2"); again.ETag == made.ETag {
		t.Errorf("another incarnation has the same ETag %s", again.ETag)
	}
	if now, changed := read(made.ETag); now == nil || !changed || now.Value.UID != "uid-2" {
		t.Errorf("a recreated document is %+v, changed: %v", now, changed)
	}
}

func TestCompareAndSwap(t *testing.T) {
	db, _ := databasetest.New(t)
	create(t, db, "a", "uid-1")
	first, err := db.Clusters().Get(t.Context(), clusterKey(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	second := must.Get(db.Clusters().Get(t.Context(), clusterKey(t, "a")))(t)
	batch := db.NewBatch(subscription)
	first.Value.Generation = 2
	database.Replace(batch, first)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatalf("the first writer: %v", err)
	}

	batch = db.NewBatch(subscription)
	second.Value.Generation = 3
	database.Replace(batch, second)
	other := database.Create(batch, db.Operations(), database.OperationKey(subscription, "westus3", "11111111-1111-1111-1111-111111111111"), database.OperationDocument{})
	err = batch.Commit(t.Context())
	race, lost := database.AsWriteConflict(err)
	if !lost || race.Exists || race.Kind != database.ClusterKind || apierror.KindOf(err) != apierror.PreconditionFailed {
		t.Errorf("the second writer: %v", err)
	}
	if _, err := db.Operations().Get(t.Context(), other.Key); apierror.KindOf(err) != apierror.ResourceNotFound {
		t.Errorf("the rest of a failed batch was written: %v", err)
	}

	// The first writer's item has its new ETag and can be written again.
	batch = db.NewBatch(subscription)
	first.Value.Generation = 4
	database.Replace(batch, first)
	if err := batch.Commit(t.Context()); err != nil {
		t.Errorf("the first writer again: %v", err)
	}
}

func TestCreateExistingFails(t *testing.T) {
	db, _ := databasetest.New(t)
	create(t, db, "a", "uid-1")
	batch := db.NewBatch(subscription)
	database.Create(batch, db.Clusters(), clusterKey(t, "A"), cluster("uid-2"))
	err := batch.Commit(t.Context())
	if race, lost := database.AsWriteConflict(err); !lost || !race.Exists || apierror.KindOf(err) != apierror.Conflict {
		t.Errorf("creating it again: %v", err)
	}
}

func TestCreateReplacesTombstone(t *testing.T) {
	db, _ := databasetest.New(t)
	item := create(t, db, "a", "uid-1")
	batch := db.NewBatch(subscription)
	database.Remove(batch, item)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatalf("removing: %v", err)
	}
	if _, err := db.Clusters().Get(t.Context(), item.Key); apierror.KindOf(err) != apierror.ResourceNotFound {
		t.Errorf("Get of a tombstone: %v", err)
	}
	tombstone, err := db.Clusters().Find(t.Context(), item.Key)
	if err != nil || tombstone == nil || tombstone.Removed == nil {
		t.Fatalf("Find of a tombstone: %v, %v", tombstone, err)
	}
	items, _, err := db.Clusters().List(t.Context(), subscription, "", "", 10)
	if err != nil || len(items) != 0 {
		t.Errorf("List shows %d items (%v), want none", len(items), err)
	}

	again := create(t, db, "a", "uid-2")
	got, err := db.Clusters().Get(t.Context(), item.Key)
	if err != nil || got.Value.UID != "uid-2" || got.ETag != again.ETag {
		t.Errorf("after creating it again: %+v, %v", got, err)
	}
	// A writer of the first incarnation is late.
	late := *item
	late.Removed = nil
	batch = db.NewBatch(subscription)
	database.Replace(batch, &late)
	if _, lost := database.AsWriteConflict(batch.Commit(t.Context())); !lost {
		t.Error("a writer that read the first incarnation replaced the second")
	}
}

func TestListPages(t *testing.T) {
	db, _ := databasetest.New(t)
	var want []string
	for i := range 23 {
		name := fmt.Sprintf("c%02d", i)
		create(t, db, name, "uid")
		want = append(want, clusterKey(t, name).ResourceID)
	}
	batch := db.NewBatch(subscription)
	database.Create(batch, db.NodePools(), database.Key{SubscriptionID: subscription, ResourceID: want[3] + "/nodePools/np"}, database.NodePoolDocument{})
	database.Create(batch, db.ExternalAuths(), database.Key{SubscriptionID: subscription, ResourceID: want[3] + "/externalAuths/ea"}, database.ExternalAuthDocument{})
	must.Do(t, batch.Commit(t.Context()))
	for reason, limit := range map[string]int{"one by one": 1, "uneven last page": 10, "exact last page": 23, "one page": 100} {
		t.Run(reason, func(t *testing.T) {
			var got []string
			continuation := ""
			for {
				items, next, err := db.Clusters().List(t.Context(), subscription, "/subscriptions/"+subscription+"/RESOURCEGROUPS/rg/", continuation, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range items {
					got = append(got, item.Key.ResourceID)
				}
				if next == "" {
					break
				}
				if len(items) == 0 {
					t.Fatal("an empty page is not the last")
				}
				continuation = next
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
	items, _, err := db.Clusters().List(t.Context(), subscription, want[3], "", 10)
	if err != nil || len(items) != 1 {
		t.Errorf("prefix of one cluster: %d items, %v", len(items), err)
	}
}

// TestExternalAuths: a child of a cluster is found by its ID in any casing, and by the prefix of its cluster.
func TestExternalAuths(t *testing.T) {
	db, _ := databasetest.New(t)
	cluster := clusterKey(t, "Alpha")
	key, err := database.ResourceKey(cluster.ResourceID + "/externalAuths/Entra")
	if err != nil {
		t.Fatal(err)
	}
	want := database.ExternalAuthDocument{
		UID: "ea", ClusterUID: "uid-1", Generation: 1, ProvisioningState: hub.AwaitingSecret, ActiveOperationID: "op",
		ExternalAuth: hub.ExternalAuth{Resource: hub.Resource{ID: key.ResourceID, Name: "Entra", Type: hub.ExternalAuthResourceType},
			Properties: hub.ExternalAuthProperties{
				Issuer:  hub.TokenIssuer{URL: "https://issuer.example", Audiences: []string{"a"}},
				Clients: []hub.ExternalAuthClient{{Component: hub.ExternalAuthComponent{Name: "console", AuthClientNamespace: "openshift-console"}, ClientID: "a", Type: "Confidential"}},
			}},
	}
	batch := db.NewBatch(subscription)
	database.Create(batch, db.ExternalAuths(), key, want)
	must.Do(t, batch.Commit(t.Context()))
	var found []database.ExternalAuthDocument
	err = db.ExternalAuths().ForEach(t.Context(), subscription, strings.ToUpper(cluster.ResourceID)+"/", func(item *database.Item[database.ExternalAuthDocument]) error {
		found = append(found, item.Value)
		return nil
	})
	if diff := cmp.Diff([]database.ExternalAuthDocument{want}, found); err != nil || diff != "" {
		t.Errorf("under the cluster: %v (-want +got):\n%s", err, diff)
	}
	if _, err := db.NodePools().Find(t.Context(), key); err == nil {
		t.Error("an external auth was read as a node pool")
	}
}

func TestActiveOperations(t *testing.T) {
	db, _ := databasetest.New(t)
	end := time.Now().UTC()
	for i, status := range []hub.ProvisioningState{hub.Accepted, hub.Succeeded, hub.Deleting, hub.Failed} {
		sub := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
		batch := db.NewBatch(sub)
		operation := database.OperationDocument{OperationID: fmt.Sprint(i), Status: status}
		if status.Terminal() {
			operation.EndTime = &end
		}
		database.Create(batch, db.Operations(), database.OperationKey(sub, "westus3", fmt.Sprintf("11111111-1111-1111-1111-11111111111%d", i)), operation)
		must.Do(t, batch.Commit(t.Context()))
	}
	var got []string
	must.Do(t, db.ActiveOperations(t.Context(), func(item *database.Item[database.OperationDocument]) error {
		got = append(got, item.Value.OperationID)
		return nil
	}))
	slices.Sort(got)
	if diff := cmp.Diff([]string{"0", "2"}, got); diff != "" {
		t.Errorf("active operations (-want +got):\n%s", diff)
	}
}

// TestCommitUnderFaults commits while Cosmos DB has faults. A commit that returns nil happened once; one that returns a
// conflict did not happen.
func TestCommitUnderFaults(t *testing.T) {
	for reason, rule := range map[string]faults.Rule{
		"throttled":                          {Status: http.StatusTooManyRequests, RetryAfterMS: 5, Count: 3},
		"retry with":                         {Status: 449, Count: 3},
		"unavailable":                        {Status: http.StatusServiceUnavailable, Count: 3},
		"the request is lost":                {DropRequest: true, Count: 2},
		"the response is lost":               {DropResponse: true, Count: 1},
		"the responses are lost again":       {DropResponse: true, Count: 3},
		"the response is lost, then retried": {DropResponse: true, Count: 1, Skip: 0},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			db, server := databasetest.New(t)
			existing := create(t, db, "existing", "uid-0")
			removed := create(t, db, "removed", "uid-1")
			rule.Operations = []string{"batch"}
			server.InjectFault(t, rule)

			batch := db.NewBatch(subscription)
			made := database.Create(batch, db.Clusters(), clusterKey(t, "made"), cluster("uid-2"))
			existing.Value.Generation = 2
			database.Replace(batch, existing)
			database.Remove(batch, removed)
			if err := batch.Commit(t.Context()); err != nil {
				t.Fatalf("Commit: %v", err)
			}
			if server.FaultCount() == 0 {
				t.Fatal("no fault was injected")
			}
			if removed.Removed == nil {
				t.Error("Removed is not set")
			}
			// Every item can be written again, so its ETag is that of the commit.
			batch = db.NewBatch(subscription)
			made.Value.Generation, existing.Value.Generation = 7, 7
			database.Replace(batch, made)
			database.Replace(batch, existing)
			if err := batch.Commit(t.Context()); err != nil {
				t.Errorf("writing on: %v", err)
			}
		})
	}
}

// TestUnknownOutcomeIsNotAConflict: if the outcome of a commit cannot be found out, the error has the kind Unavailable. It is not a
// conflict, although the repeated batch conflicts with the first one: a creator that decides again would find its own
// document.
func TestUnknownOutcomeIsNotAConflict(t *testing.T) {
	db, server := databasetest.New(t)
	key := clusterKey(t, "a")
	batch := db.NewBatch(subscription)
	database.Create(batch, db.Clusters(), key, database.ClusterDocument{UID: "uid-1"})
	server.InjectFault(t, faults.Rule{Operations: []string{"batch"}, DropResponse: true, Count: 1})
	restore := server.InjectFault(t, faults.Rule{Operations: []string{"read"}, Status: http.StatusServiceUnavailable})
	err := batch.Commit(t.Context())
	if _, lost := database.AsWriteConflict(err); lost || apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("the outcome is unknown, but was reported as: %v", err)
	}
	restore()
	if item, err := db.Clusters().Get(t.Context(), key); err != nil || item.Value.UID != "uid-1" {
		t.Errorf("the commit was reported as: %v", err)
	}
}

// TestLostResponseAndLaterWrite: another writer writes before the first has found out that its commit happened.
func TestLostResponseAndLaterWrite(t *testing.T) {
	db, server := databasetest.New(t)
	item := create(t, db, "a", "uid-1")
	server.InjectFault(t, faults.Rule{Operations: []string{"batch"}, DropResponse: true, Count: 1})
	server.InjectFault(t, faults.Rule{Operations: []string{"batch"}, Status: http.StatusServiceUnavailable, Count: 4})

	overtaken := make(chan error, 1)
	other := server.Open(t)
	ctx, cancel := eventually.Context(t)
	defer cancel()
	go func() {
		overtaken <- database.Retry(ctx, func(ctx context.Context) error {
			read, err := other.Clusters().Get(ctx, item.Key)
			if err != nil {
				return err
			}
			if read.Value.Generation != 2 {
				return &database.WriteConflict{Kind: database.ClusterKind, Key: item.Key}
			}
			read.Value.Generation = 3
			batch := other.NewBatch(subscription)
			database.Replace(batch, read)
			return batch.Commit(ctx)
		})
	}()
	item.Value.Generation = 2
	batch := db.NewBatch(subscription)
	database.Replace(batch, item)
	if err := batch.Commit(ctx); err != nil {
		t.Fatalf("the commit happened, but was reported as: %v", err)
	}
	// In either order nothing is lost and nothing is written twice.
	if err := <-overtaken; err != nil && apierror.KindOf(err) != apierror.Conflict {
		t.Fatal(err)
	}
}

func TestRetryRepeatsDecision(t *testing.T) {
	db, server := databasetest.New(t)
	create(t, db, "a", "uid-1")
	const writers, increments = 4, 5
	var wg sync.WaitGroup
	for range writers {
		db := server.Open(t)
		wg.Go(func() {
			for done := 0; done < increments; {
				err := database.Retry(t.Context(), func(ctx context.Context) error {
					item, err := db.Clusters().Get(ctx, clusterKey(t, "a"))
					if err != nil {
						return err
					}
					item.Value.Generation++
					batch := db.NewBatch(subscription)
					database.Replace(batch, item)
					return batch.Commit(ctx)
				})
				switch {
				case err == nil:
					done++
				case apierror.KindOf(err) != apierror.Conflict:
					t.Errorf("incrementing: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, err := db.Clusters().Get(t.Context(), clusterKey(t, "a"))
	if err != nil || got.Value.Generation != 1+writers*increments {
		t.Errorf("generation is %d (%v), want %d", got.Value.Generation, err, 1+writers*increments)
	}
}

func TestClientStartsBeforeCosmos(t *testing.T) {
	server := databasetest.NewServer(t)
	server.InjectFault(t, faults.Rule{Status: http.StatusServiceUnavailable, Count: 3})
	if err := server.Open(t).EnsureSchema(t.Context()); err != nil {
		t.Errorf("EnsureSchema with an account that is unavailable at first: %v", err)
	}
}

func TestBatchRejectsInvalidWrites(t *testing.T) {
	db, _ := databasetest.New(t)
	item := create(t, db, "a", "uid-1")
	for reason, add := range map[string]func(b *database.Batch){
		"another subscription": func(b *database.Batch) {
			database.Create(b, db.Subscriptions(), database.SubscriptionKey("11111111-0000-0000-0000-000000000000"), database.SubscriptionDocument{})
		},
		"twice":    func(b *database.Batch) { database.Replace(b, item); database.Replace(b, item) },
		"not read": func(b *database.Batch) { database.Replace(b, &database.Item[database.ClusterDocument]{Key: item.Key}) },
		"over the limit": func(b *database.Batch) {
			for i := range database.MaxBatchDocuments + 1 {
				database.Create(b, db.Clusters(), clusterKey(t, fmt.Sprint("c", i)), cluster("uid"))
			}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			batch := db.NewBatch(subscription)
			add(batch)
			if err := batch.Commit(t.Context()); err == nil {
				t.Error("the commit was accepted")
			}
		})
	}
}
