package databasetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// earlier returns an admin operation as releases before the container Admin stored it.
func earlier(t *testing.T, id string, state database.AdminOperationState) (partition, document string) {
	t.Helper()
	properties := must.Get(json.Marshal(database.AdminOperationDocument{OperationID: id, SortKey: database.AdminSortKey(time.Now(), id), Action: "clusters.pause", State: state}))(t)
	key := database.AdminOperationKey(id)
	return database.AdminPartition, fmt.Sprintf(`{"id": %q, "partitionKey": "admin", "kind": "adminOperation", "resourceId": %q, "key": %q, "ttl": 34560000, "later": true, "properties": %s}`,
		uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.ToLower(key.ResourceID))).String(), key.ResourceID, strings.ToLower(key.ResourceID), properties)
}

// moved returns the IDs of the admin operations.
func moved(t *testing.T, db *database.DB) []string {
	t.Helper()
	records, _, err := db.AdminRecords(t.Context(), database.AdminFilter{}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, record := range records {
		ids = append(ids, record.Operation.Value.OperationID)
	}
	slices.Sort(ids)
	return ids
}

// TestAdminRecordsAreMoved crashes before and after each write of the move. Each time a complete move follows.
func TestAdminRecordsAreMoved(t *testing.T) {
	crashed := 0
	for point := 1; ; point++ {
		db, server := New(t)
		for _, id := range []string{"a", "b", "c"} {
			partition, document := earlier(t, id, database.AdminSucceeded)
			server.PutDocument(t, partition, document)
		}
		injector := crashsweep.NewInjector(point)
		crashing := *server
		crashing.Options.Transport = injector.Transport(func(r *http.Request) string {
			if r.Method == http.MethodPost && r.Header.Get("X-Ms-Documentdb-Query") == "" || r.Method == http.MethodPut {
				return "write"
			}
			return ""
		})
		crashing.Options.RetryBudget = time.Millisecond
		_ = crashing.Open(t).MoveAdminRecords(t.Context(), slog.New(slog.DiscardHandler))
		if err := db.MoveAdminRecords(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("after a crash at point %d: %v", point, err)
		}
		if got := moved(t, db); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("after a crash at point %d: %v", point, got)
		}
		if !injector.Crashed() {
			break
		}
		crashed++
	}
	if crashed < 7 {
		t.Errorf("%d crash points, want at least one for each of three copies, the record of the move, and three tombstones", crashed)
	}
}

// TestForgedAdminRecordsAreNotMoved writes an admin operation to the container of customers' resources after the move.
func TestForgedAdminRecordsAreNotMoved(t *testing.T) {
	db, server := New(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	must.Do(t, db.MoveAdminRecords(t.Context(), logger))
	partition, document := earlier(t, "forged", database.AdminAccepted)
	server.PutDocument(t, partition, document)
	must.Do(t, db.MoveAdminRecords(t.Context(), logger))
	if got := moved(t, db); len(got) != 0 {
		t.Errorf("moved %v", got)
	}
	if !strings.Contains(log.String(), "a document of admin is in the container of customers' resources") {
		t.Errorf("log: %s", log.String())
	}
}
