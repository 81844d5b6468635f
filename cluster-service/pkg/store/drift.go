package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// WorkDrift is a work that differs from the layers below Cluster Service.
type WorkDrift struct {
	*fleet.Work
	// Drift is one of the kinds of package clusterstatus.
	Drift string
	// ResourceID is the ARM resource ID of the cluster.
	ResourceID string
}

// WorkDrifts returns works that differ from the layers below, in order of ID, at most limit. It uses an index of these works only.
func (s *Store) WorkDrifts(ctx context.Context, limit int) ([]WorkDrift, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+workColumns+`, drift, (SELECT resource_id FROM clusters WHERE uid = cluster_uid)
		FROM works WHERE drift <> '' ORDER BY id LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("listing works that differ: %w", err)
	}
	return pgx.CollectRows(rows, scanWorkDrift)
}

func scanWorkDrift(row pgx.CollectableRow) (WorkDrift, error) {
	var d WorkDrift
	var resourceID *string
	var err error
	d.Work, err = scanWorkWith(row, &d.Drift, &resourceID)
	if resourceID != nil {
		d.ResourceID = *resourceID
	}
	return d, err
}

// PermanentlyRefusedWorks returns the number of works that Maestro or a management cluster refuses until a person acts. It uses the index of
// works that differ from the layers below.
func (s *Store) PermanentlyRefusedWorks(ctx context.Context) (count int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM works WHERE drift <> '' AND drift IN ($1, $2)", clusterstatus.DriftRefused, clusterstatus.DriftApplyRefused).Scan(&count)
	if err != nil {
		return 0, fmt.Errorf("counting refused works: %w", err)
	}
	return count, nil
}
