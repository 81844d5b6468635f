package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
)

// RowsRead returns the number of table rows that PostgreSQL reads to list clusters, with up-to-date statistics.
func (s *Store) RowsRead(ctx context.Context, f Filter) (rows float64, plan string, err error) {
	query, args := clustersQuery(f)
	return s.rowsRead(ctx, query, args)
}

// ConcernRowsRead is RowsRead for a list of concerns.
func (s *Store) ConcernRowsRead(ctx context.Context, f ConcernFilter) (rows float64, plan string, err error) {
	query, args := f.query()
	return s.rowsRead(ctx, query, args)
}

func (s *Store) rowsRead(ctx context.Context, query string, args []any) (rows float64, plan string, err error) {
	var answer []struct{ Plan node }
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "ANALYZE clusters, cluster_identifiers, cluster_filters, cluster_concerns"); err != nil {
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

// node is a node of an executed query plan.
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

// ForgetConcerns leaves the database as a release without concerns would have written it.
func (s *Store) ForgetConcerns(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "DELETE FROM cluster_concerns")
	return err
}

// Setting returns the value of a run-time parameter in a session of the store.
func (s *Store) Setting(ctx context.Context, name string) (value string, err error) {
	return value, s.pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
}

// LockRow locks a row in another transaction until release is called.
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

// AggregatePlans returns how often PostgreSQL planned the statement that reads an aggregate. The store must have one session.
func (s *Store) AggregatePlans(ctx context.Context) (count int, err error) {
	return count, s.pool.QueryRow(ctx, "SELECT custom_plans FROM pg_prepared_statements WHERE statement = $1", selectAggregate).Scan(&count)
}
