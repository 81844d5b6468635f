package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// maxDecisions bounds the stored decisions of one cluster.
const maxDecisions = 20

// RecordedDecision is a stored placement decision.
type RecordedDecision struct {
	placement.Decision
	First, Last time.Time
	// Count is the number of times in a row that the decision was made.
	Count    int32
	sequence int64
}

// PolicyOverride is the placement policy of one cluster.
type PolicyOverride struct {
	Policy placement.Policy
	Actor  Actor
	Time   time.Time
}

// placing is a decision that the transaction writes.
type placing struct {
	clusterUID string
	decision   placement.Decision
	// last is the previous decision, or nil.
	last *RecordedDecision
}

const (
	selectDecisions = "SELECT sequence, decision, first_time, last_time, count FROM placement_decisions WHERE cluster_uid = $1 ORDER BY sequence DESC LIMIT $2"
	selectOverride  = "SELECT policy, actor, time FROM placement_policies WHERE cluster_uid = $1"
)

func scanDecided(row pgx.CollectableRow) (RecordedDecision, error) {
	var d RecordedDecision
	err := row.Scan(&d.sequence, &d.Decision, &d.First, &d.Last, &d.Count)
	d.First, d.Last = d.First.UTC(), d.Last.UTC()
	return d, err
}

func queueOverride(batch *pgx.Batch, clusterUID string, found *PolicyOverride) {
	batch.Queue(selectOverride, clusterUID).Query(func(rows pgx.Rows) error {
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (any, error) {
			return nil, row.Scan(&found.Policy, &found.Actor, &found.Time)
		})
		found.Time = found.Time.UTC()
		return err
	})
}

// Place chooses a provision shard for a cluster, takes a place on it and records the decision. If no shard accepts the
// cluster, its Shard stays empty and its PlacementMessage states the reason. The shards stay locked until the end of the
// transaction, so two clusters never get the same place.
func (t *Tx) Place(ctx context.Context, c *fleet.Cluster, needs placement.Needs, rules *placement.Rules) (placement.Decision, error) {
	var override PolicyOverride
	var last *RecordedDecision
	batch := &pgx.Batch{}
	// Shards that this transaction locked before already include its changes.
	if t.shards == nil {
		batch.Queue(lockShards).Query(func(rows pgx.Rows) (err error) {
			t.shards, err = pgx.CollectRows(rows, scanShard)
			return err
		})
	}
	queueOverride(batch, c.UID, &override)
	batch.Queue(selectDecisions, c.UID, 1).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanDecided)
		if len(found) > 0 {
			last = &found[0]
		}
		return err
	})
	if err := t.conn.SendBatch(ctx, batch).Close(); err != nil {
		return placement.Decision{}, fmt.Errorf("placing a cluster: %w", err)
	}
	decision := placement.Decide(facts(t.shards, t.store.Now(), rules), needs, rules, override.Policy)
	if i := slices.IndexFunc(t.shards, func(s Shard) bool { return s.Name == decision.Shard }); i >= 0 {
		t.shards[i].Clusters++
		t.taken[decision.Shard]++
	}
	c.Shard, c.PlacementMessage = decision.Shard, ""
	if c.Shard == "" {
		c.PlacementMessage = decision.Message()
	}
	t.placings = append(t.placings, placing{clusterUID: c.UID, decision: decision, last: last})
	return decision, nil
}

// AssignShard gives a cluster that this database lost the shard on which it runs, regardless of policy and capacity. It
// reports whether the shard exists.
func (t *Tx) AssignShard(ctx context.Context, c *fleet.Cluster, shard string) (bool, error) {
	if t.shards == nil {
		rows, err := t.conn.Query(ctx, lockShards)
		if err == nil {
			t.shards, err = pgx.CollectRows(rows, scanShard)
		}
		if err != nil {
			return false, fmt.Errorf("locking the provision shards: %w", err)
		}
	}
	i := slices.IndexFunc(t.shards, func(s Shard) bool { return s.Name == shard })
	if i < 0 {
		return false, nil
	}
	t.shards[i].Clusters++
	t.taken[shard]++
	c.Shard, c.PlacementMessage = shard, ""
	return true, nil
}

// facts returns the shards that are not deregistered as input of a decision.
func facts(shards []Shard, now time.Time, rules *placement.Rules) []placement.Shard {
	var list []placement.Shard
	for _, s := range shards {
		if !s.Deregistered {
			list = append(list, s.ForPlacement(now, rules))
		}
	}
	return list
}

// queuePlacings queues the decisions of a transaction after the rows of their clusters.
func (t *Tx) queuePlacings(batch *pgx.Batch, now time.Time) {
	for _, p := range t.placings {
		encoded, _ := json.Marshal(p.decision) // a struct of strings and numbers
		switch {
		case p.last == nil:
			batch.Queue("INSERT INTO placement_decisions (cluster_uid, sequence, decision, first_time, last_time, count) VALUES ($1, 1, $2, $3, $3, 1)", p.clusterUID, encoded, now)
			continue
		case sameDecision(p.last.Decision, encoded):
			batch.Queue("UPDATE placement_decisions SET last_time = $3, count = count + 1 WHERE cluster_uid = $1 AND sequence = $2", p.clusterUID, p.last.sequence, now)
			continue
		}
		next := p.last.sequence + 1
		batch.Queue("INSERT INTO placement_decisions (cluster_uid, sequence, decision, first_time, last_time, count) VALUES ($1, $2, $3, $4, $4, 1)", p.clusterUID, next, encoded, now)
		batch.Queue("DELETE FROM placement_decisions WHERE cluster_uid = $1 AND sequence <= $2", p.clusterUID, next-maxDecisions)
	}
}

func sameDecision(last placement.Decision, encoded []byte) bool {
	before, _ := json.Marshal(last)
	return string(before) == string(encoded)
}

// Placement is the stored state of a cluster's placement.
type Placement struct {
	Aggregate *fleet.ClusterAggregate
	// Override is nil if the cluster has no policy of its own.
	Override *PolicyOverride
	// Decisions are ordered from newest to oldest.
	Decisions []RecordedDecision
	Shards    []Shard
}

// Placement returns the state of a cluster's placement.
func (s *Store) Placement(ctx context.Context, clusterUID string) (*Placement, error) {
	e := &Placement{}
	var override PolicyOverride
	err := s.snapshot(ctx, func(batch *pgx.Batch) {
		e.Aggregate = queueAggregate(batch, clusterUID, s.Now())
		queueOverride(batch, clusterUID, &override)
		batch.Queue(selectDecisions, clusterUID, maxDecisions).Query(func(rows pgx.Rows) (err error) {
			e.Decisions, err = pgx.CollectRows(rows, scanDecided)
			return err
		})
		batch.Queue("SELECT " + shardColumns + " FROM provision_shards ORDER BY name").Query(func(rows pgx.Rows) (err error) {
			e.Shards, err = pgx.CollectRows(rows, scanShard)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading a cluster's placement: %w", err)
	}
	if e.Aggregate.Cluster == nil {
		return nil, ErrUnknown
	}
	if override.Actor.Name != "" {
		e.Override = &override
	}
	return e, nil
}

// Decide returns the decision that would be made for the cluster now. The place that the cluster has counts as free.
func (e *Placement) Decide(now time.Time, rules *placement.Rules) placement.Decision {
	var override placement.Policy
	if e.Override != nil {
		override = e.Override.Policy
	}
	shards := facts(e.Shards, now, rules)
	for i := range shards {
		if shards[i].Name == e.Aggregate.Cluster.Shard {
			shards[i].Clusters--
		}
	}
	return placement.Decide(shards, e.Aggregate.PlacementNeeds(), rules, override)
}

// SetPolicyOverride stores the placement policy of a cluster in the transaction; nil deletes it. The aggregate of the
// cluster must be locked.
func (t *Tx) SetPolicyOverride(clusterUID string, override *PolicyOverride) {
	t.overrides = append(t.overrides, func(batch *pgx.Batch) {
		if override == nil {
			batch.Queue("DELETE FROM placement_policies WHERE cluster_uid = $1", clusterUID)
			return
		}
		batch.Queue(`INSERT INTO placement_policies (cluster_uid, policy, actor, time) VALUES ($1, $2, $3, $4)
			ON CONFLICT (cluster_uid) DO UPDATE SET policy = $2, actor = $3, time = $4`, clusterUID, override.Policy, override.Actor, override.Time)
	})
}

// ListUnplaced returns a page of the clusters without a shard, oldest first, after a given cluster; nil begins.
func (s *Store) ListUnplaced(ctx context.Context, after *fleet.Cluster, limit int) ([]*fleet.Cluster, error) {
	var since time.Time
	uid := "00000000-0000-0000-0000-000000000000"
	if after != nil {
		since, uid = after.CreateTime, after.UID
	}
	rows, err := s.pool.Query(ctx, "SELECT "+clusterColumns+` FROM clusters WHERE shard IS NULL AND delete_time IS NULL AND (create_time, uid) > ($1, $2::uuid)
		ORDER BY create_time, uid LIMIT $3`, since, uid, limit)
	if err != nil {
		return nil, fmt.Errorf("listing clusters without a place: %w", err)
	}
	return pgx.CollectRows(rows, scanCluster)
}

// ClustersOnShard returns the clusters of a shard with their node pools, and the placement policies of those that have one,
// by UID.
func (s *Store) ClustersOnShard(ctx context.Context, shard string) (aggregates []*fleet.ClusterAggregate, overrides map[string]placement.Policy, err error) {
	overrides = map[string]placement.Policy{}
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		const of = " FROM clusters c WHERE c.shard = $1 AND c.gone_time IS NULL"
		byUID := map[string]*fleet.ClusterAggregate{}
		batch.Queue("SELECT "+clusterColumns+" FROM clusters WHERE shard = $1 AND gone_time IS NULL ORDER BY uid", shard).Query(func(rows pgx.Rows) error {
			clusters, err := pgx.CollectRows(rows, scanCluster)
			for _, c := range clusters {
				byUID[c.UID] = &fleet.ClusterAggregate{Cluster: c}
				aggregates = append(aggregates, byUID[c.UID])
			}
			return err
		})
		batch.Queue("SELECT "+poolColumns+" FROM node_pools WHERE gone_time IS NULL AND cluster_uid IN (SELECT c.uid"+of+")", shard).Query(func(rows pgx.Rows) error {
			pools, err := pgx.CollectRows(rows, scanPool)
			for _, p := range pools {
				if t := byUID[p.ClusterUID]; t != nil {
					t.Pools = append(t.Pools, p)
				}
			}
			return err
		})
		batch.Queue("SELECT cluster_uid::text, policy FROM placement_policies WHERE cluster_uid IN (SELECT c.uid"+of+")", shard).Query(func(rows pgx.Rows) error {
			_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (any, error) {
				var uid string
				var policy placement.Policy
				err := row.Scan(&uid, &policy)
				overrides[uid] = policy
				return nil, err
			})
			return err
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the clusters of a provision shard: %w", err)
	}
	return aggregates, overrides, nil
}

// CountUnplaced returns the number of clusters without a shard.
func (s *Store) CountUnplaced(ctx context.Context) (count int32, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM clusters WHERE shard IS NULL AND delete_time IS NULL").Scan(&count)
	return count, err
}
