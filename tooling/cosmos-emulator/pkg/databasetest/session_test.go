package databasetest_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestSessionsArePartitionsOfTheirOwn checks that sessions are stored, replaced and removed apart from each other and from the documents of
// admin.
func TestSessionsArePartitionsOfTheirOwn(t *testing.T) {
	db, _ := databasetest.New(t)
	key := database.SessionKey("aa11")
	now := time.Now().UTC()
	stored := database.SessionDocument{Name: "alice@example.com", ObjectID: "alice", LastSeen: now, ExpirationTime: now.Add(time.Hour), Sealed: []byte{0, 1, 2}}
	write := func(item *database.Item[database.SessionDocument]) {
		t.Helper()
		batch := db.NewBatch(key.SubscriptionID)
		switch {
		case item == nil:
			database.Create(batch, db.Sessions(), key, stored)
		case item.Value.Sealed == nil:
			database.Remove(batch, item)
		default:
			database.Replace(batch, item)
		}
		must.Do(t, batch.Commit(t.Context()))
	}
	write(nil)
	item, err := db.Sessions().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if item.Value.ObjectID != "alice" || !bytes.Equal(item.Value.Sealed, stored.Sealed) {
		t.Errorf("the session is %+v", item.Value)
	}
	item.Value.LastSeen = now.Add(time.Minute)
	write(item)
	if other, err := db.Sessions().Find(t.Context(), database.SessionKey("aa12")); other != nil || err != nil {
		t.Errorf("another session: %v, %v", other, err)
	}
	item.Value.Sealed = nil
	write(item)
	if item, err = db.Sessions().Find(t.Context(), key); err != nil || item == nil || item.Removed == nil || len(item.Value.Sealed) > 0 {
		t.Errorf("the ended session is %+v, %v", item, err)
	}
}
