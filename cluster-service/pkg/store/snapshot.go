package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// snapshot sends queries that all see the same state of the database, in one round trip. Without a transaction each query
// of a batch would see what was committed before that query, and the results might never have existed together.
func (s *Store) snapshot(ctx context.Context, queue func(batch *pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	queue(batch)
	batch.Queue("COMMIT")
	return s.pool.SendBatch(ctx, batch).Close()
}
