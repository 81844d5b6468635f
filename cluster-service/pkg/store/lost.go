package store

import (
	"context"
	"fmt"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// LostControlPlanes returns the number of clusters whose control plane is lost. It uses an index of these clusters only.
func (s *Store) LostControlPlanes(ctx context.Context) (count int, err error) {
	// The index is partial, so the condition must be a constant.
	err = s.pool.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM clusters WHERE phase = %d", csv1.ClusterPhase_CLUSTER_PHASE_LOST)).Scan(&count)
	if err != nil {
		return 0, fmt.Errorf("counting lost control planes: %w", err)
	}
	return count, nil
}
