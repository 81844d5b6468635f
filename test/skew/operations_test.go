package skew

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// TestOperationsInProgressStartAgain checks that only operations that have not ended get another start, and that their other members stay,
// also those that no release knows.
func TestOperationsInProgressStartAgain(t *testing.T) {
	ctx := t.Context()
	config := local.Config{StateDir: t.TempDir()}
	must.Do(t, os.Mkdir(filepath.Join(config.StateDir, "cosmos"), 0o700))
	open := func() (*store.Store, *store.Container) {
		t.Helper()
		data := must.Get(store.Open(store.Options{Path: filepath.Join(config.StateDir, "cosmos", "cosmos.db")}))(t)
		t.Cleanup(func() { _ = data.Close() })
		container, err := data.Container(database.DatabaseName, resourcesContainer)
		if err == nil {
			return data, container
		}
		must.Get(data.CreateDatabase(ctx, database.DatabaseName))(t)
		container = must.Get(data.CreateContainer(ctx, database.DatabaseName, parse(t, `{"id":"Resources","partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2}}`)))(t)
		return data, container
	}
	documents := map[string]string{
		"running": `{"id":"running","partitionKey":"s","kind":"operation","properties":{"status":"Updating","startTime":"2026-01-01T00:00:00Z","later":{"a":1}}}`,
		"ended":   `{"id":"ended","partitionKey":"s","kind":"operation","properties":{"status":"Failed","startTime":"2026-01-01T00:00:00Z"}}`,
		"cluster": `{"id":"cluster","partitionKey":"s","kind":"cluster","properties":{"status":"x","startTime":"2026-01-01T00:00:00Z"}}`,
	}
	key := partition.Key("s")
	data, container := open()
	for _, text := range documents {
		if _, _, err := data.Transact(ctx, container, key, []store.Operation{{Verb: store.Create, Body: parse(t, text)}}); err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, data.Close())
	now := time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)
	must.Do(t, renewOperations(ctx, config, now))
	documents["running"] = `{"id":"running","partitionKey":"s","kind":"operation","properties":{"status":"Updating","startTime":"2026-11-24T01:02:03Z","later":{"a":1}}}`
	data, container = open()
	for id, want := range documents {
		item, _, err := data.Get(container, key, id)
		if err != nil {
			t.Fatal(err)
		}
		got := parse(t, string(item.Body)).Without("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")
		if !document.Equal(parse(t, want), got) {
			t.Errorf("%s is %s, want %s", id, got.JSON(), want)
		}
	}
}

func parse(t *testing.T, text string) document.Value {
	t.Helper()
	return must.Get(document.Parse([]byte(text)))(t)
}
