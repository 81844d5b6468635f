package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

const upgradeColumns = "uid::text, cluster_uid::text, spec, status, revision, create_time, gone_time"

// upgradeChanges queues the writes of an aggregate's upgrades that changed.
func upgradeChanges(old, aggregate *fleet.ClusterAggregate) []func(batch *pgx.Batch, behind int64) {
	var changed []func(batch *pgx.Batch, behind int64)
	for _, u := range aggregate.Upgrades {
		if before := old.Upgrade(u.UID); before == nil || !before.GoneTime.Equal(u.GoneTime) || !proto.Equal(before.Status, u.Status) {
			changed = append(changed, func(batch *pgx.Batch, behind int64) { queueUpgrade(batch, u, behind) })
		}
	}
	return changed
}

// wakesUpgrader reports whether an upgrade that counts against a limit ended, or the time that an upgrade waits for changed.
func wakesUpgrader(old, aggregate *fleet.ClusterAggregate) bool {
	for _, u := range aggregate.Upgrades {
		before := old.Upgrade(u.UID)
		if u.Gone() && u.Policy() != "" && (before == nil || !before.Gone()) {
			return true
		}
		if due := u.DueTime(); !due.IsZero() && (before == nil || !before.DueTime().Equal(due)) {
			return true
		}
	}
	return false
}

func queueUpgrade(batch *pgx.Batch, u *fleet.Upgrade, behind int64) {
	batch.Queue(`INSERT INTO upgrades (uid, cluster_uid, spec, status, state, policy, create_time, due_time, gone_time, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, (SELECT revision FROM revision_clock) - $10)
		ON CONFLICT (uid) DO UPDATE SET status = $4, state = $5, due_time = $8, gone_time = $9, revision = excluded.revision
		RETURNING revision`,
		u.UID, u.ClusterUID, encode(u.Spec), encode(u.Status), int16(u.State()), u.Policy(), u.CreateTime, nullTime(u.DueTime()), nullTime(u.GoneTime), behind).
		QueryRow(func(row pgx.Row) error { return row.Scan(&u.Revision) })
}

func scanUpgrade(row pgx.CollectableRow) (*fleet.Upgrade, error) {
	u := &fleet.Upgrade{Spec: &csv1.UpgradeSpec{}, Status: &csv1.UpgradeStatus{}}
	var spec, status []byte
	var gone *time.Time
	if err := row.Scan(&u.UID, &u.ClusterUID, &spec, &status, &u.Revision, &u.CreateTime, &gone); err != nil {
		return nil, err
	}
	u.CreateTime, u.GoneTime = u.CreateTime.UTC(), notNull(gone)
	if err := proto.Unmarshal(spec, u.Spec); err != nil {
		return nil, fmt.Errorf("decoding the spec of upgrade %s: %w", u.UID, err)
	}
	if err := proto.Unmarshal(status, u.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of upgrade %s: %w", u.UID, err)
	}
	return u, nil
}

// Upgrade returns an upgrade.
func (s *Store) Upgrade(ctx context.Context, uid string) (*fleet.Upgrade, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+upgradeColumns+" FROM upgrades WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading an upgrade: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanUpgrade))
}

// ListUpgrades returns a page of all recorded upgrades and the revision up to which the page is complete.
func (s *Store) ListUpgrades(ctx context.Context, f Filter) ([]*fleet.Upgrade, int64, error) {
	f.Records = true
	query, args := where(f, "cluster_uid", f.ClusterUID).query("upgrades", upgradeColumns, f.Limit)
	return list(ctx, s, query, args, scanUpgrade)
}

// AdmitUpgrade reports whether a policy may start one more upgrade, given the limit of the policy and the limit of the
// region; 0 means no limit. The result holds until the end of the transaction: no other transaction can admit an upgrade
// until then.
func (t *Tx) AdmitUpgrade(ctx context.Context, policy string, policyLimit, regionLimit int) (bool, error) {
	batch := &pgx.Batch{}
	batch.Queue("SELECT pg_advisory_xact_lock($1, 2)", lockClassTasks)
	var own, all int
	batch.Queue("SELECT count(*) FILTER (WHERE policy = $1), count(*) FROM upgrades WHERE gone_time IS NULL AND policy <> ''", policy).
		QueryRow(func(row pgx.Row) error { return row.Scan(&own, &all) })
	if err := t.conn.SendBatch(ctx, batch).Close(); err != nil {
		return false, fmt.Errorf("counting upgrades: %w", err)
	}
	return (policyLimit == 0 || own < policyLimit) && (regionLimit == 0 || all < regionLimit), nil
}

// KnownUpgrades returns the clusters with an active upgrade, and the versions of aborted and failed upgrades by cluster.
func (s *Store) KnownUpgrades(ctx context.Context) (active map[string]bool, ended map[string][]string, err error) {
	active, ended = map[string]bool{}, map[string][]string{}
	rows, err := s.pool.Query(ctx, "SELECT "+upgradeColumns+" FROM upgrades WHERE gone_time IS NULL OR state = ANY ($1)",
		[]int16{int16(csv1.UpgradeState_UPGRADE_STATE_ABORTED), int16(csv1.UpgradeState_UPGRADE_STATE_FAILED)})
	if err != nil {
		return nil, nil, fmt.Errorf("reading upgrades: %w", err)
	}
	upgrades, err := pgx.CollectRows(rows, scanUpgrade)
	if err != nil {
		return nil, nil, fmt.Errorf("reading upgrades: %w", err)
	}
	for _, u := range upgrades {
		if u.Gone() {
			ended[u.ClusterUID] = append(ended[u.ClusterUID], u.Spec.GetVersion())
			continue
		}
		active[u.ClusterUID] = true
	}
	return active, ended, nil
}

// RunningUpgrades returns the number of active upgrades of a policy and of all policies.
func (s *Store) RunningUpgrades(ctx context.Context, policy string) (own, all int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FILTER (WHERE policy = $1), count(*) FROM upgrades WHERE gone_time IS NULL AND policy <> ''", policy).Scan(&own, &all)
	if err != nil {
		err = fmt.Errorf("counting upgrades: %w", err)
	}
	return own, all, err
}

// DueUpgrades returns the clusters of upgrades whose start time has come, and the next start time; zero if there is none.
func (s *Store) DueUpgrades(ctx context.Context, limit int) (clusterUIDs []string, next time.Time, err error) {
	now := s.Now()
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		// An upgrade that is due and still waits now waits for something else.
		batch.Queue("SELECT DISTINCT cluster_uid::text FROM upgrades WHERE due_time <= $1 LIMIT $2", now, limit).
			Query(func(rows pgx.Rows) (err error) {
				clusterUIDs, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
		batch.Queue("SELECT min(due_time) FROM upgrades WHERE due_time > $1", now).QueryRow(func(row pgx.Row) error {
			var first *time.Time
			err := row.Scan(&first)
			next = notNull(first)
			return err
		})
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("looking for upgrades whose time has come: %w", err)
	}
	return clusterUIDs, next, nil
}

// UpgradePolicies returns all policies in order of name.
func (s *Store) UpgradePolicies(ctx context.Context) ([]*csv1.UpgradePolicy, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+policyColumns+" FROM upgrade_policies ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("listing upgrade policies: %w", err)
	}
	return pgx.CollectRows(rows, scanPolicy)
}

// UpgradePolicy returns a policy.
func (s *Store) UpgradePolicy(ctx context.Context, name string) (*csv1.UpgradePolicy, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+policyColumns+" FROM upgrade_policies WHERE name = $1", name)
	if err != nil {
		return nil, fmt.Errorf("reading an upgrade policy: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanPolicy))
}

const policyColumns = "name, spec, actor, create_time, update_time"

func scanPolicy(row pgx.CollectableRow) (*csv1.UpgradePolicy, error) {
	p := &csv1.UpgradePolicy{Spec: &csv1.UpgradePolicySpec{}, Actor: &csv1.Actor{}}
	var spec, actor []byte
	var created, updated time.Time
	if err := row.Scan(&p.Name, &spec, &actor, &created, &updated); err != nil {
		return nil, err
	}
	p.CreateTime, p.UpdateTime = timestamppb.New(created), timestamppb.New(updated)
	if err := errors.Join(proto.Unmarshal(spec, p.Spec), proto.Unmarshal(actor, p.Actor)); err != nil {
		return nil, fmt.Errorf("decoding upgrade policy %s: %w", p.GetName(), err)
	}
	return p, nil
}

// SaveUpgradePolicy stores a policy under its name.
func (s *Store) SaveUpgradePolicy(ctx context.Context, name string, spec *csv1.UpgradePolicySpec, actor *csv1.Actor) (*csv1.UpgradePolicy, error) {
	if err := audit.BeforeEffect(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `INSERT INTO upgrade_policies (name, spec, actor, create_time, update_time) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT (name) DO UPDATE SET spec = $2, actor = $3, update_time = $4 RETURNING `+policyColumns, name, encode(spec), encode(actor), s.Now())
	if err != nil {
		return nil, fmt.Errorf("storing an upgrade policy: %w", err)
	}
	policy, err := unknown(pgx.CollectExactlyOneRow(rows, scanPolicy))
	if err == nil {
		s.publish(ctx, Event{UpgradesChanged: true})
	}
	return policy, err
}

// DeleteUpgradePolicy deletes a policy.
func (s *Store) DeleteUpgradePolicy(ctx context.Context, name string) error {
	var done func()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if done, err = s.noteCall(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "DELETE FROM upgrade_policies WHERE name = $1", name)
		switch {
		case err != nil:
			return fmt.Errorf("removing an upgrade policy: %w", err)
		case tag.RowsAffected() == 0:
			return ErrUnknown
		}
		return audit.BeforeEffect(ctx)
	})
	if err == nil {
		done()
		s.publish(ctx, Event{UpgradesChanged: true})
	}
	return err
}
