package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
)

// RowsRead is how many rows of tables PostgreSQL looks at to list clusters, with its statistics up to date.
func (s *Store) RowsRead(ctx context.Context, f Filter) (rows float64, plan string, err error) {
	query, args := clustersQuery(f)
	var answer []struct{ Plan node }
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "ANALYZE clusters, cluster_identifiers"); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+query, args...).Scan(&plan); err != nil {
			return err
		}
		return json.Unmarshal([]byte(plan), &answer)
	})
	if err != nil {
		return 0, plan, err
	}
	return answer[0].Plan.rows(), plan, nil
}

// node is a step of a plan that was carried out.
type node struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Joined   float64 `json:"Rows Removed by Join Filter"`
	Plans    []node
}

func (n node) rows() float64 {
	read := 0.0
	if n.Relation != "" {
		read = (n.Rows + n.Filtered + n.Joined) * n.Loops
	}
	for _, inner := range n.Plans {
		read += inner.rows()
	}
	return read
}

// ForgetIdentifiers leaves the database as a release without identifiers would have written it.
func (s *Store) ForgetIdentifiers(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "DELETE FROM cluster_identifiers")
	return err
}

// Setting is what a session of the store has a run-time parameter set to.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	return value, s.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
}

// LockRow has somebody else be at a row until release is called.
func (s *Store) LockRow(ctx context.Context, table, uid string) (release func(), err error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "SELECT FROM "+pgx.Identifier{table}.Sanitize()+" WHERE uid = $1 FOR UPDATE", uid); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, nil
}
