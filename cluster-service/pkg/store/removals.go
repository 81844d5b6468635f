package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// queueRemovals queues the time of new removals of a cluster's objects. The row of the cluster is written before.
func queueRemovals(batch *pgx.Batch, uid string, now time.Time, old, aggregate *fleet.ClusterAggregate) {
	if len(fleet.NewRemovals(old.Cluster.Removals(), aggregate.Cluster)) > 0 {
		batch.Queue("INSERT INTO cluster_removals (cluster_uid, time) VALUES ($1, $2) ON CONFLICT (cluster_uid) DO UPDATE SET time = $2", uid, now)
	}
}

// RepairedRemovals returns the removals after a time whose objects existed again, of clusters that are not gone, newest first, at most limit.
func (s *Store) RepairedRemovals(ctx context.Context, after time.Time, limit int) ([]*csv1.RepairedRemoval, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+clusterColumns+` FROM cluster_removals JOIN clusters ON uid = cluster_uid
		WHERE time > $1 AND gone_time IS NULL ORDER BY time DESC LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("listing removals: %w", err)
	}
	clusters, err := pgx.CollectRows(rows, scanCluster)
	if err != nil {
		return nil, fmt.Errorf("listing removals: %w", err)
	}
	var found []*csv1.RepairedRemoval
	for _, c := range clusters {
		for _, r := range c.Removals() {
			if r.GetAppliedAgainTime() != nil && r.GetRemoveTime().AsTime().After(after) {
				found = append(found, &csv1.RepairedRemoval{ClusterUid: c.UID, ClusterResourceId: c.ResourceID, Removal: r})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *csv1.RepairedRemoval) int {
		return b.GetRemoval().GetRemoveTime().AsTime().Compare(a.GetRemoval().GetRemoveTime().AsTime())
	})
	return found[:min(len(found), limit)], nil
}
