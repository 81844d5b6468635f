package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// maxClusterChanges is the number of changes that are stored of a cluster.
const maxClusterChanges = 500

// changesKept is the time beyond that of tombstones for which changes are stored. Purge deletes older ones.
const changesKept = 7 * 24 * time.Hour

// queueClusterChanges queues the changes of an aggregate, which has a cluster. The row of the cluster is written before.
func queueClusterChanges(batch *pgx.Batch, uid string, now time.Time, old, aggregate *fleet.ClusterAggregate) {
	changes := fleet.Changes(old, aggregate, now)
	if len(changes) == 0 {
		return
	}
	encoded := make([][]byte, len(changes))
	for i, change := range changes {
		encoded[i] = encode(change)
	}
	// The statement does not see the rows that it adds.
	batch.Queue(`WITH added AS (INSERT INTO cluster_changes (cluster_uid, time, change)
			SELECT $1, $2, change FROM unnest($3::bytea[]) WITH ORDINALITY AS changes (change, position) ORDER BY position)
		DELETE FROM cluster_changes WHERE cluster_uid = $1 AND sequence <=
			(SELECT sequence FROM cluster_changes WHERE cluster_uid = $1 ORDER BY sequence DESC OFFSET $4 LIMIT 1)`,
		uid, now, encoded, max(0, maxClusterChanges-len(changes)))
}

// ClusterChanges returns the stored changes of a cluster and its children, newest first. It returns none for an unknown UID.
func (s *Store) ClusterChanges(ctx context.Context, clusterUID string) ([]*csv1.ClusterChange, error) {
	rows, err := s.pool.Query(ctx, "SELECT change FROM cluster_changes WHERE cluster_uid = $1 ORDER BY sequence DESC LIMIT $2", clusterUID, maxClusterChanges)
	if err != nil {
		return nil, fmt.Errorf("listing changes of cluster %s: %w", clusterUID, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*csv1.ClusterChange, error) {
		var content []byte
		if err := row.Scan(&content); err != nil {
			return nil, err
		}
		change := &csv1.ClusterChange{}
		if err := proto.Unmarshal(content, change); err != nil {
			return nil, fmt.Errorf("decoding a change of cluster %s: %w", clusterUID, err)
		}
		return change, nil
	})
}
