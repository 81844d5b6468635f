package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// ClusterConcern is the concern of a cluster with what a list of them shows of the cluster.
type ClusterConcern struct {
	verdict.Concern
	UID, ResourceID, Shard, Version string
	Phase                           int16
}

// ConcernGroup counts clusters with the same concern.
type ConcernGroup struct {
	Layer, State, Shard, Version string
	Clusters                     int32
	Oldest                       time.Time
}

// maxConcernGroups is the maximum number of groups of a summary.
const maxConcernGroups = 1000

// ConcernFilter selects concerns. Zero fields select all.
type ConcernFilter struct {
	// SinceBefore selects concerns that began at this time or earlier.
	SinceBefore time.Time
	// Concerns are layers, or layers with states as in `control-plane/EtcdWaitingForQuorum`.
	Concerns []string
	Shard    string
	// Version selects clusters as Filter.Version does.
	Version string
	// AfterSince and AfterUID are those of the last concern of the previous page.
	AfterSince time.Time
	AfterUID   string
	Limit      int
}

// fromConcerns is the part of a query that joins the concerns with their clusters.
const fromConcerns = " FROM cluster_concerns k JOIN clusters c ON c.uid = k.cluster_uid WHERE k.layer <> ''"

func (f *ConcernFilter) query() (string, []any) {
	w := &conditions{}
	if !f.SinceBefore.IsZero() {
		w.add("k.since <= $%d", f.SinceBefore)
	}
	if len(f.Concerns) > 0 {
		w.add("(k.layer = ANY ($%[1]d) OR k.layer || '/' || k.state = ANY ($%[1]d))", f.Concerns)
	}
	if f.Shard != "" {
		w.add("c.shard = $%d", f.Shard)
	}
	if f.Version != "" {
		w.add(versionCondition("c.release_version"), f.Version)
	}
	if f.AfterUID != "" {
		w.args = append(w.args, f.AfterSince, f.AfterUID)
		w.conditions = append(w.conditions, fmt.Sprintf("(k.since, k.cluster_uid) > ($%d, $%d::uuid)", len(w.args)-1, len(w.args)))
	}
	chosen := strings.Join(append([]string{""}, w.conditions...), " AND ")
	limited := w.arg("LIMIT $%d", f.Limit)
	return "SELECT k.cluster_uid::text, c.resource_id, k.subject_id, k.layer, k.state, k.since, coalesce(c.shard, ''), c.release_version, c.phase" +
		fromConcerns + chosen + " ORDER BY k.since, k.cluster_uid " + limited, w.args
}

// ListConcerns returns a page of the clusters that are not in their desired state, those that have waited longest first.
func (s *Store) ListConcerns(ctx context.Context, f ConcernFilter) ([]ClusterConcern, error) {
	query, args := f.query()
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("listing concerns: %w", err)
	}
	concerns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ClusterConcern, err error) {
		err = row.Scan(&c.UID, &c.ResourceID, &c.SubjectID, &c.Layer, &c.State, &c.Since, &c.Shard, &c.Version, &c.Phase)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing concerns: %w", err)
	}
	return concerns, nil
}

// ConcernsOf returns the concerns of clusters, by UID, without those that wait for nothing.
func (s *Store) ConcernsOf(ctx context.Context, uids []string) (map[string]verdict.Concern, error) {
	rows, err := s.pool.Query(ctx, "SELECT cluster_uid::text, subject_id, layer, state, since FROM cluster_concerns WHERE cluster_uid = ANY ($1::uuid[]) AND layer <> ''", uids)
	if err != nil {
		return nil, fmt.Errorf("reading concerns: %w", err)
	}
	concerns := map[string]verdict.Concern{}
	var uid string
	var c verdict.Concern
	if _, err := pgx.ForEachRow(rows, []any{&uid, &c.SubjectID, &c.Layer, &c.State, &c.Since}, func() error {
		concerns[uid] = c
		return nil
	}); err != nil {
		return nil, fmt.Errorf("reading concerns: %w", err)
	}
	return concerns, nil
}

// SummarizeConcerns counts the clusters that are not in their desired state, of one shard or of all if it is empty. The largest
// groups come first.
func (s *Store) SummarizeConcerns(ctx context.Context, shard string) ([]ConcernGroup, error) {
	rows, err := s.pool.Query(ctx, "SELECT k.layer, k.state, coalesce(c.shard, ''), c.release_version, count(*)::int, min(k.since)"+fromConcerns+
		" AND ($1 = '' OR c.shard = $1) GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT $2", shard, maxConcernGroups)
	if err != nil {
		return nil, fmt.Errorf("counting concerns: %w", err)
	}
	groups, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g ConcernGroup, err error) {
		err = row.Scan(&g.Layer, &g.State, &g.Shard, &g.Version, &g.Clusters, &g.Oldest)
		return g, err
	})
	if err != nil {
		return nil, fmt.Errorf("counting concerns: %w", err)
	}
	return groups, nil
}

// concernChanged reports whether the concern of an aggregate must be written.
func concernChanged(old, aggregate *fleet.ClusterAggregate) bool {
	if aggregate.Cluster == nil {
		return false
	}
	before, after := old.Concern(), aggregate.Concern()
	return old.Cluster == nil || before.SubjectID != after.SubjectID || before.Layer != after.Layer || before.State != after.State || !before.Since.Equal(after.Since)
}

// queueConcern queues the write of the concern of a cluster. The row of the cluster must exist.
func queueConcern(batch *pgx.Batch, clusterUID string, c verdict.Concern) {
	batch.Queue(`INSERT INTO cluster_concerns (cluster_uid, subject_id, layer, state, since) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (cluster_uid) DO UPDATE SET subject_id = $2, layer = $3, state = $4, since = $5`, clusterUID, c.SubjectID, c.Layer, c.State, c.Since)
}

// findConcerns writes the concerns of clusters that an earlier release wrote without them.
func findConcerns(ctx context.Context, tx pgx.Tx, now time.Time) error {
	for {
		rows, err := tx.Query(ctx, "SELECT uid::text FROM clusters WHERE NOT EXISTS (SELECT FROM cluster_concerns WHERE cluster_uid = uid) LIMIT $1", identifyPage)
		if err != nil {
			return fmt.Errorf("reading clusters without concerns: %w", err)
		}
		uids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("reading clusters without concerns: %w", err)
		}
		if len(uids) == 0 {
			return nil
		}
		aggregates, reads := make([]*fleet.ClusterAggregate, len(uids)), &pgx.Batch{}
		for i, uid := range uids {
			aggregates[i] = queueAggregate(reads, uid, now)
		}
		if err := tx.SendBatch(ctx, reads).Close(); err != nil {
			return fmt.Errorf("reading clusters without concerns: %w", err)
		}
		writes := &pgx.Batch{}
		for i, uid := range uids {
			queueConcern(writes, uid, aggregates[i].Concern())
		}
		if err := tx.SendBatch(ctx, writes).Close(); err != nil {
			return fmt.Errorf("writing concerns: %w", err)
		}
	}
}
