package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Entry is a resource of the inventory: a cluster, node pool or external authentication that is not gone.
type Entry struct {
	Kind                        csv1.InventoryKind
	UID, ClusterUID, ResourceID string
	Generation                  int64
	Deleting                    bool
	CreateTime                  time.Time
	Release                     string
}

// Key returns the sort key of the inventory, which is compared by bytes.
func (e Entry) Key() string { return strings.ToLower(e.ResourceID) }

// inventory is the query for a page. The first rows of all tables together are among the first rows of each table, which
// its index returns in order.
var inventory = func() string {
	part := func(kind csv1.InventoryKind, table, clusterUID, release string) string {
		return fmt.Sprintf(`(SELECT %d AS kind, uid::text AS uid, %s::text AS cluster_uid, resource_id, resource_key, generation, delete_time IS NOT NULL AS deleting, create_time, %s AS release
			FROM %s WHERE gone_time IS NULL AND resource_key COLLATE "C" > $1 ORDER BY resource_key COLLATE "C" LIMIT $2)`, kind, clusterUID, release, table)
	}
	return "SELECT kind, uid, cluster_uid, resource_id, generation, deleting, create_time, release FROM (" + strings.Join([]string{
		part(csv1.InventoryKind_INVENTORY_KIND_CLUSTER, "clusters", "uid", "release_version"),
		part(csv1.InventoryKind_INVENTORY_KIND_NODE_POOL, "node_pools", "cluster_uid", "''"),
		part(csv1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH, "external_auths", "cluster_uid", "''"),
	}, " UNION ALL ") + `) found ORDER BY resource_key COLLATE "C" LIMIT $2`
}()

// Inventory returns a page of the resources that are not gone, after a key, and the revision up to which the page is
// complete.
func (s *Store) Inventory(ctx context.Context, after string, limit int) ([]Entry, int64, error) {
	entries, revision, err := list(ctx, s, inventory, []any{after, limit}, func(row pgx.CollectableRow) (*Entry, error) {
		e := &Entry{}
		err := row.Scan(&e.Kind, &e.UID, &e.ClusterUID, &e.ResourceID, &e.Generation, &e.Deleting, &e.CreateTime, &e.Release)
		return e, err
	})
	page := make([]Entry, len(entries))
	for i, e := range entries {
		page[i] = *e
	}
	return page, revision, err
}
