package databasetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestUnreadableOperationHidesNoOthers: a scan of a region returns all documents that can be decoded, and reports the
// others.
func TestUnreadableOperationHidesNoOthers(t *testing.T) {
	db, server := databasetest.New(t)
	want := map[string]bool{"first": true, "last": true}
	add := func(id string) {
		t.Helper()
		batch := db.NewBatch(subscription)
		database.Create(batch, db.Operations(), database.OperationKey(subscription, "westus3", id), database.OperationDocument{OperationID: id, Status: hub.Accepted, StartTime: time.Now().UTC()})
		must.Do(t, batch.Commit(t.Context()))
	}
	add("first")
	server.PutDocument(t, subscription, `{"id":"of-another-release","partitionKey":"`+subscription+`","kind":"operation","resourceId":"/x","key":"/x","properties":{"generation":{"major":2}}}`)
	add("last")
	err := db.ActiveOperations(t.Context(), func(item *database.Item[database.OperationDocument]) error {
		delete(want, item.Value.OperationID)
		return nil
	})
	var unreadable *database.UnreadableError
	if !errors.As(err, &unreadable) || unreadable.Count != 1 || !strings.Contains(err.Error(), "of-another-release") {
		t.Errorf("the error about the skipped document is %v", err)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	stopped := errors.New("enough")
	if err := db.ActiveOperations(t.Context(), func(*database.Item[database.OperationDocument]) error { return stopped }); !errors.Is(err, stopped) {
		t.Errorf("the callback returned another error: %v", err)
	}
}

// TestFeedSkipsUnreadableDocuments: a document of another program must not stop the change feed.
func TestFeedSkipsUnreadableDocuments(t *testing.T) {
	db, server := databasetest.New(t)
	w := newWitness()
	start(t, func(ctx context.Context) error {
		return db.Tail(ctx, time.Now().Add(-time.Minute), database.FeedOptions{IdleInterval: 50 * time.Millisecond}, w.handle(db))
	})
	server.PutDocument(t, subscription, `{"id":"stray","partitionKey":"`+subscription+`","kind":7}`)
	create(t, db, "a", "uid-1")
	w.await(t, "uid-1", "1")
}
