package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// DefaultAzureLease is many times the duration of a step.
const DefaultAzureLease = 30 * time.Second

func scanAzure(row pgx.CollectableRow) (*fleet.Azure, error) {
	var text []byte
	if err := row.Scan(&text); err != nil {
		return nil, err
	}
	a := &fleet.Azure{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("decoding a cluster's Azure resources: %w", err)
	}
	return a, nil
}

// queueAzure queues the write of a cluster's Azure resources. It reports whether steps are due now; the transaction
// acquires their lease.
func (t *Tx) queueAzure(batch *pgx.Batch, uid string, now time.Time, old, aggregate *fleet.ClusterAggregate) bool {
	before, _ := json.Marshal(old.Azure) // strings, numbers and times
	after, _ := json.Marshal(aggregate.Azure)
	if string(before) == string(after) {
		return false
	}
	if aggregate.Azure == nil || len(aggregate.Azure.Steps) == 0 {
		aggregate.Azure = nil
		batch.Queue("DELETE FROM azure_resources WHERE cluster_uid = $1", uid)
		return false
	}
	at, due := aggregate.Azure.DueTime()
	isNow := due && !at.After(now)
	switch {
	case isNow:
		at = now.Add(t.store.azureLease)
	case !due:
		at = time.Time{}
	}
	ends, overdue := aggregate.Azure.Expiry()
	batch.Queue(`INSERT INTO azure_resources (cluster_uid, state, due_time, ends_time, overdue_time) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (cluster_uid) DO UPDATE SET state = $2, due_time = $3, ends_time = $4, overdue_time = $5`,
		uid, after, nullTime(at), nullTime(ends), nullTime(overdue))
	return isNow
}

// CertificateExpiry returns the time at which the first certificate expires, zero if none does, and the number of clusters
// with an overdue renewal.
func (s *Store) CertificateExpiry(ctx context.Context) (first time.Time, overdue int, err error) {
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue("SELECT min(ends_time) FROM azure_resources").QueryRow(func(row pgx.Row) error {
			var at *time.Time
			err := row.Scan(&at)
			first = notNull(at)
			return err
		})
		batch.Queue("SELECT count(*) FROM azure_resources WHERE overdue_time <= $1", s.Now()).QueryRow(func(row pgx.Row) error { return row.Scan(&overdue) })
	})
	if err != nil {
		return time.Time{}, 0, fmt.Errorf("reading the expiry of certificates: %w", err)
	}
	return first, overdue, nil
}

// AcquireDueAzureSteps acquires the lease of clusters with due steps in Azure.
func (s *Store) AcquireDueAzureSteps(ctx context.Context, limit int) ([]string, error) {
	now := s.Now()
	rows, err := s.pool.Query(ctx, `UPDATE azure_resources SET due_time = $2 WHERE cluster_uid IN
		(SELECT cluster_uid FROM azure_resources WHERE due_time <= $1 ORDER BY due_time LIMIT $3 FOR UPDATE SKIP LOCKED)
		RETURNING cluster_uid::text`, now, now.Add(s.azureLease), limit)
	if err != nil {
		return nil, fmt.Errorf("acquiring due steps in Azure: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
