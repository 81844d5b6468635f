package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// UpdateGraphs returns the last known update graphs by channel.
func (s *Store) UpdateGraphs(ctx context.Context) (map[string][]byte, error) {
	rows, err := s.pool.Query(ctx, "SELECT channel, body FROM update_graphs")
	if err != nil {
		return nil, fmt.Errorf("reading update graphs: %w", err)
	}
	graphs := map[string][]byte{}
	var channel string
	var body []byte
	if _, err := pgx.ForEachRow(rows, []any{&channel, &body}, func() error {
		graphs[channel] = slices.Clone(body)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("reading update graphs: %w", err)
	}
	return graphs, nil
}

// SaveUpdateGraphs replaces the last known update graphs.
func (s *Store) SaveUpdateGraphs(ctx context.Context, graphs map[string][]byte) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		// Two replicas that store the same change must not interleave.
		batch.Queue("SELECT pg_advisory_xact_lock($1, 1)", lockClassTasks)
		batch.Queue("DELETE FROM update_graphs")
		for _, channel := range slices.Sorted(maps.Keys(graphs)) {
			batch.Queue("INSERT INTO update_graphs (channel, body) VALUES ($1, $2)", channel, graphs[channel])
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("writing update graphs: %w", err)
	}
	return nil
}
