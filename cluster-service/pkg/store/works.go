package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// WorksByID reads the works of those ids that there are, in no order.
func (s *Store) WorksByID(ctx context.Context, ids []string) ([]*fleet.Work, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+workColumns+" FROM works WHERE id = ANY ($1::uuid[])", ids)
	if err != nil {
		return nil, fmt.Errorf("reading works: %w", err)
	}
	return pgx.CollectRows(rows, scanWork)
}

// WorkInUse reports whether an id is a work's, or of one that is left of a forced deletion and still asked to go.
func (s *Store) WorkInUse(ctx context.Context, id string) (used bool, err error) {
	err = s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM works WHERE id = $1) OR EXISTS (SELECT 1 FROM deletion_leftovers WHERE work_id = $1 AND due_time IS NOT NULL)", id).Scan(&used)
	if err != nil {
		return false, fmt.Errorf("reading whether a work is in use: %w", err)
	}
	return used, nil
}
