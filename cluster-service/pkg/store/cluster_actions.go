package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// maxListedClusterActions bounds the response of ClusterActions.
const maxListedClusterActions = 200

// ClusterAction returns the action with a uid, or nil if there is none.
func (t *Tx) ClusterAction(ctx context.Context, uid string) (*csv1.ClusterAction, error) {
	rows, err := t.conn.Query(ctx, "SELECT action FROM cluster_actions WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading cluster action %s: %w", uid, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanClusterAction)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return found, err
}

// InsertClusterAction stores an action in the transaction of what it changes. The aggregate of its cluster is locked, so
// only an action on another cluster can already have its uid; see IsClusterActionUIDUsed.
func (t *Tx) InsertClusterAction(ctx context.Context, a *csv1.ClusterAction) error {
	_, err := t.conn.Exec(ctx, "INSERT INTO cluster_actions (uid, cluster_uid, time, action) VALUES ($1, $2, $3, $4)",
		a.GetUid(), a.GetClusterUid(), a.GetTime().AsTime(), encode(a))
	if err != nil {
		return fmt.Errorf("storing cluster action %s: %w", a.GetUid(), err)
	}
	return nil
}

// IsClusterActionUIDUsed reports whether InsertClusterAction failed because an action on another cluster has the uid.
func IsClusterActionUIDUsed(err error) bool { return violates(err, "cluster_actions_pkey") }

// ClusterActions returns the newest actions on a cluster, newest first.
func (s *Store) ClusterActions(ctx context.Context, clusterUID string) ([]*csv1.ClusterAction, error) {
	rows, err := s.pool.Query(ctx, "SELECT action FROM cluster_actions WHERE cluster_uid = $1 ORDER BY time DESC, uid LIMIT $2",
		clusterUID, maxListedClusterActions)
	if err != nil {
		return nil, fmt.Errorf("listing actions of cluster %s: %w", clusterUID, err)
	}
	return pgx.CollectRows(rows, scanClusterAction)
}

func scanClusterAction(row pgx.CollectableRow) (*csv1.ClusterAction, error) {
	var content []byte
	if err := row.Scan(&content); err != nil {
		return nil, err
	}
	a := &csv1.ClusterAction{}
	if err := proto.Unmarshal(content, a); err != nil {
		return nil, fmt.Errorf("decoding a cluster action: %w", err)
	}
	return a, nil
}
