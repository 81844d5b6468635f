package skew

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// renewOperations makes the operations in Cosmos DB that have not ended start now. Their deadlines have passed otherwise, because the snapshot
// is older. It changes no other member of the documents.
func renewOperations(ctx context.Context, config local.Config, now time.Time) error {
	data, err := store.Open(store.Options{Path: filepath.Join(config.StateDir, "cosmos", "cosmos.db")})
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	container, err := data.Container(database.DatabaseName, resourcesContainer)
	if err != nil {
		return err
	}
	started := document.FromString(now.UTC().Format(time.RFC3339Nano))
	type operation struct {
		key  partition.Key
		item document.Value
	}
	var running []operation
	_, err = data.Scan(container, store.Scope{}, nil, func(_ store.Position, item store.Item) (bool, error) {
		parsed, err := document.Parse(item.Body)
		if err != nil {
			return false, err
		}
		if parsed.Get("kind").Str == "operation" && !terminal[parsed.Get("properties").Get("status").Str] {
			key, err := container.PK.Extract(parsed)
			if err != nil {
				return false, err
			}
			running = append(running, operation{key, parsed.With("properties", parsed.Get("properties").With("startTime", started))})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, o := range running {
		if _, _, err := data.Transact(ctx, container, o.key, []store.Operation{{Verb: store.Upsert, Body: o.item}}); err != nil {
			return fmt.Errorf("operation %s: %w", o.item.Get("id").Str, err)
		}
	}
	return nil
}

// resourcesContainer is the container with the documents of customers' resources and their operations.
const resourcesContainer = "Resources"

// terminal are the states of operations that have ended.
var terminal = map[string]bool{"Succeeded": true, "Failed": true, "Canceled": true}
