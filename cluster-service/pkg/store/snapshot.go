package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// snapshot sends queries that all see one state of the database, in one round trip. Sent as a batch alone each of them would
// see what was committed before it began, and what they return together may never have been so.
func (s *Store) snapshot(ctx context.Context, queue func(batch *pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	queue(batch)
	batch.Queue("COMMIT")
	return s.pool.SendBatch(ctx, batch).Close()
}
