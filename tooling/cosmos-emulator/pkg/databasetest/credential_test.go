package databasetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestPendingCredentials: only the pending credentials of the cluster are found.
func TestPendingCredentials(t *testing.T) {
	db, _ := databasetest.New(t)
	cluster, other := clusterKey(t, "Alpha"), clusterKey(t, "Alpha-2")
	states := []database.CredentialState{
		database.CredentialPending, database.CredentialIssued, database.CredentialPending, database.CredentialCanceled,
		database.CredentialFailed, database.CredentialRevoked, database.CredentialPending,
	}
	var want []string
	batch := db.NewBatch(subscription)
	for i, state := range states {
		uid := fmt.Sprint("uid-", i)
		database.Create(batch, db.Credentials(), database.CredentialKey(cluster, uid), database.CredentialDocument{UID: uid, State: state})
		database.Create(batch, db.Credentials(), database.CredentialKey(other, uid), database.CredentialDocument{UID: uid, State: state})
		if state == database.CredentialPending {
			want = append(want, uid)
		}
	}
	must.Do(t, batch.Commit(t.Context()))
	cluster.ResourceID = strings.ToUpper(cluster.ResourceID)
	pending, err := db.PendingCredentials(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range pending {
		got = append(got, item.Value.UID)
		if strings.Contains(item.Key.ResourceID, "Alpha-2") {
			t.Errorf("%s is of another cluster", item.Key.ResourceID)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The returned items can be written.
	batch = db.NewBatch(subscription)
	for _, item := range pending {
		item.Value.State = database.CredentialCanceled
		database.Replace(batch, item)
	}
	must.Do(t, batch.Commit(t.Context()))
	if pending, err = db.PendingCredentials(t.Context(), cluster); err != nil || len(pending) != 0 {
		t.Errorf("%d are still pending, %v", len(pending), err)
	}
}

// TestExternalAuthReservation: all external authentications of a cluster have the same reservation, in any casing, and
// those of another cluster have another one.
func TestExternalAuthReservation(t *testing.T) {
	of := func(id string) database.Key {
		for key := range database.ExternalAuthReservations(database.Key{SubscriptionID: subscription, ResourceID: id}, "uid") {
			return database.Key{SubscriptionID: key.SubscriptionID, ResourceID: strings.ToLower(key.ResourceID)}
		}
		return database.Key{}
	}
	alpha := clusterKey(t, "Alpha").ResourceID
	if a, b := of(alpha+"/externalAuths/a"), of(strings.ToUpper(alpha)+"/externalAuths/b"); a != b {
		t.Errorf("%v and %v can both be reserved", a, b)
	}
	if a, b := of(alpha+"/externalAuths/a"), of(clusterKey(t, "Beta").ResourceID+"/externalAuths/a"); a == b {
		t.Errorf("two clusters have the same reservation %v", a)
	}
}
