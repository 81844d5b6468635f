package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// listedInterventions is how many of a cluster are listed at most.
const listedInterventions = 200

// Intervention reads an intervention by its uid; nil when there is none.
func (t *Tx) Intervention(ctx context.Context, uid string) (*csv1.Intervention, error) {
	rows, err := t.conn.Query(ctx, "SELECT intervention FROM interventions WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading an intervention: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanIntervention)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return found, err
}

// Intervene keeps what was done, with what it changes: the tenancy of its cluster is locked, so that nobody else has the uid.
func (t *Tx) Intervene(ctx context.Context, i *csv1.Intervention) error {
	_, err := t.conn.Exec(ctx, "INSERT INTO interventions (uid, cluster_uid, time, intervention) VALUES ($1, $2, $3, $4)",
		i.GetUid(), i.GetClusterUid(), i.GetTime().AsTime(), encode(i))
	if err != nil {
		return fmt.Errorf("storing an intervention: %w", err)
	}
	return nil
}

// IsInterventionTaken says that another cluster's intervention has the uid.
func IsInterventionTaken(err error) bool { return violates(err, "interventions_pkey") }

// Interventions lists what was done to a cluster, newest first.
func (s *Store) Interventions(ctx context.Context, clusterUID string) ([]*csv1.Intervention, error) {
	rows, err := s.pool.Query(ctx, "SELECT intervention FROM interventions WHERE cluster_uid = $1 ORDER BY time DESC, uid LIMIT $2", clusterUID, listedInterventions)
	if err != nil {
		return nil, fmt.Errorf("listing interventions: %w", err)
	}
	return pgx.CollectRows(rows, scanIntervention)
}

func scanIntervention(row pgx.CollectableRow) (*csv1.Intervention, error) {
	var content []byte
	if err := row.Scan(&content); err != nil {
		return nil, err
	}
	i := &csv1.Intervention{}
	if err := proto.Unmarshal(content, i); err != nil {
		return nil, fmt.Errorf("decoding an intervention: %w", err)
	}
	return i, nil
}
