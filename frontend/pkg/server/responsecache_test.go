package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRepeatedReads: repeated reads of an unchanged resource return the same response without a document from the store.
// Every change is visible at once at every api-version, and so is the deletion.
func TestRepeatedReads(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	older := "?api-version=2025-12-23-preview"
	get := func(query string) (etag, body string, sent int64) {
		t.Helper()
		before := y.read.Load()
		status, header, body := y.do(http.MethodGet, y.cluster("Cluster")+query, "")
		if status != http.StatusOK {
			t.Fatalf("GET status %d %s", status, body)
		}
		return header.Get("ETag"), body, y.read.Load() - before
	}
	etag, body, sent := get("")
	if sent < int64(len(body)) {
		t.Errorf("the first read received %d bytes from the store, less than the %d of the response", sent, len(body))
	}
	_, olderBody, _ := get(older)
	for range 2 {
		if again, same, sent := get(""); again != etag || same != body || sent >= int64(len(body)) {
			t.Errorf("the second read received %d bytes from the store; ETag %s after %s; response\n%s\nafter\n%s", sent, again, etag, same, body)
		}
		if _, same, _ := get(older); same != olderBody {
			t.Errorf("the second read at another api-version returned\n%s\nafter\n%s", same, olderBody)
		}
	}

	y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"tags":{"colour":"green"}}`)
	changed, body, _ := get("")
	if changed == etag || !strings.Contains(body, `"colour":"green"`) {
		t.Errorf("the change is not visible: ETag %s after %s; response\n%s", changed, etag, body)
	}
	if _, body, _ := get(older); !strings.Contains(body, `"colour":"green"`) {
		t.Errorf("the change is not visible at another api-version; response\n%s", body)
	}

	must.Do(t, y.finishOperations(t.Context()))
	y.mustDo(http.StatusAccepted, http.MethodDelete, y.cluster("cluster"), "")
	must.Do(t, y.finishOperations(t.Context()))
	for range 2 {
		y.mustDo(http.StatusNotFound, http.MethodGet, y.cluster("cluster"), "")
	}
}
