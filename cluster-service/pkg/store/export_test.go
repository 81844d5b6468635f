package store

import (
	"context"
	"encoding/json"

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
