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
	return s.byName(ctx, "update graphs", "SELECT channel, body FROM update_graphs")
}

// ReleaseSignatures returns the signatures of accepted releases by digest.
func (s *Store) ReleaseSignatures(ctx context.Context) (map[string][]byte, error) {
	return s.byName(ctx, "signatures of releases", "SELECT digest, message FROM release_signatures")
}

// byName returns the rows of a query of names and contents.
func (s *Store) byName(ctx context.Context, what, query string) (map[string][]byte, error) {
	rows, err := s.pool.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	all := map[string][]byte{}
	var name string
	var content []byte
	if _, err := pgx.ForEachRow(rows, []any{&name, &content}, func() error {
		all[name] = slices.Clone(content)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return all, nil
}

// SaveUpdateGraphs replaces the last known update graphs.
func (s *Store) SaveUpdateGraphs(ctx context.Context, graphs map[string][]byte) error {
	return s.replaceAll(ctx, "update graphs", "DELETE FROM update_graphs", "INSERT INTO update_graphs (channel, body) VALUES ($1, $2)", graphs)
}

// SaveReleaseSignatures replaces the signatures of accepted releases.
func (s *Store) SaveReleaseSignatures(ctx context.Context, signatures map[string][]byte) error {
	return s.replaceAll(ctx, "signatures of releases", "DELETE FROM release_signatures", "INSERT INTO release_signatures (digest, message) VALUES ($1, $2)", signatures)
}

func (s *Store) replaceAll(ctx context.Context, what, remove, insert string, all map[string][]byte) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		// Two replicas that store the same change must not interleave.
		batch.Queue("SELECT pg_advisory_xact_lock($1, 1)", lockClassTasks)
		batch.Queue(remove)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			batch.Queue(insert, name, all[name])
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", what, err)
	}
	return nil
}
