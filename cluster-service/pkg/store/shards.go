package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// Actor is the person who requested a change, with the reason. Its JSON form is stored.
type Actor struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Ticket string `json:"ticket,omitempty"`
}

// Offer is the capacity and the properties of a shard. In an override, nil means that the value of the shards file applies.
type Offer struct {
	Capacity    *int32
	Zones       []string
	SizeClasses []string
	Labels      map[string]string
}

// Shard is the row of a provision shard.
type Shard struct {
	Name string
	// Base is the offer of the shards file or of the registration. Override is the offer that an operator set, and takes
	// precedence.
	Base, Override Offer
	// Clusters is the number of clusters on the shard.
	Clusters int32
	// Configured reports that the shards file lists the shard, Registered that an operator registered it.
	Configured, Registered, Deregistered bool
	// Cordoned and Draining are set by an operator. A draining shard is also cordoned.
	Cordoned, Draining bool
	// StateActor changed the state last; nil if the configuration did.
	StateActor *Actor
	StateTime  time.Time
	Version    int64
	// LastReport is the time of the last new report of the shard's agent. UnansweredSince is the time since which
	// Unanswered works wait for a report; zero if none waits.
	LastReport, UnansweredSince time.Time
	Unanswered                  int32
	// LastHeartbeat is the time of the last heartbeat of the shard's agent, which it sends even if it has nothing to report.
	LastHeartbeat time.Time
}

// Capacity returns the effective capacity.
func (s *Shard) Capacity() int32 {
	if s.Override.Capacity != nil {
		return *s.Override.Capacity
	}
	if s.Base.Capacity == nil {
		return 0
	}
	return *s.Base.Capacity
}

// Zones returns the effective zones.
func (s *Shard) Zones() []string {
	if s.Override.Zones != nil {
		return s.Override.Zones
	}
	return s.Base.Zones
}

// SizeClasses returns the effective size classes.
func (s *Shard) SizeClasses() []string {
	if s.Override.SizeClasses != nil {
		return s.Override.SizeClasses
	}
	return s.Base.SizeClasses
}

// Labels returns the effective labels.
func (s *Shard) Labels() map[string]string {
	if s.Override.Labels != nil {
		return s.Override.Labels
	}
	return s.Base.Labels
}

// Listed reports whether the shard is in the shards file or registered, and not deregistered.
func (s *Shard) Listed() bool { return (s.Configured || s.Registered) && !s.Deregistered }

// State returns the state of the shard for new clusters.
func (s *Shard) State() placement.State {
	switch {
	case s.Deregistered:
		return placement.Retired
	case s.Draining:
		return placement.Draining
	case s.Cordoned:
		return placement.Cordoned
	case !s.Listed():
		return placement.Retired
	}
	return placement.Active
}

// Unresponsive reports whether the shard's agent has left works unanswered for longer than patience.
func (s *Shard) Unresponsive(now time.Time, patience time.Duration) bool {
	return !s.UnansweredSince.IsZero() && now.Sub(s.UnansweredSince) > patience
}

// ForPlacement returns the shard as input of a placement decision.
func (s *Shard) ForPlacement(now time.Time, rules *placement.Rules) placement.Shard {
	return placement.Shard{Name: s.Name, State: s.State(), Capacity: s.Capacity(), Clusters: s.Clusters, Zones: s.Zones(),
		SizeClasses: s.SizeClasses(), Labels: s.Labels(), Silent: s.Unresponsive(now, rules.Silence())}
}

const shardColumns = `name, capacity, capacity_override, zones, zones_override, size_classes, size_classes_override, labels, labels_override,
	clusters, configured, registered, deregistered, cordoned, draining, state_actor, state_time, version, heard_time, asked_time, unanswered, heartbeat_time`

func scanShard(row pgx.CollectableRow) (Shard, error) {
	var s Shard
	var state, heard, asked, beat *time.Time
	err := row.Scan(&s.Name, &s.Base.Capacity, &s.Override.Capacity, &s.Base.Zones, &s.Override.Zones, &s.Base.SizeClasses, &s.Override.SizeClasses,
		&s.Base.Labels, &s.Override.Labels, &s.Clusters, &s.Configured, &s.Registered, &s.Deregistered, &s.Cordoned, &s.Draining,
		&s.StateActor, &state, &s.Version, &heard, &asked, &s.Unanswered, &beat)
	s.StateTime, s.LastReport, s.UnansweredSince, s.LastHeartbeat = notNull(state), notNull(heard), notNull(asked), notNull(beat)
	return s, err
}

// lockShards locks all shards in the order that every transaction uses.
const lockShards = "SELECT " + shardColumns + " FROM provision_shards ORDER BY name FOR UPDATE"

// ConfigureShards stores the shards of the shards file. A shard that is no longer in the file keeps its clusters and gets
// no new ones, unless an operator registered it. What an operator set is kept.
func (s *Store) ConfigureShards(ctx context.Context, shards []config.Shard) error {
	var names []string
	for _, shard := range shards {
		names = append(names, shard.Name)
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1 FROM provision_shards ORDER BY name FOR UPDATE")
		for _, shard := range shards {
			batch.Queue(`INSERT INTO provision_shards (name, capacity, zones, size_classes, labels) VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (name) DO UPDATE SET capacity = $2, zones = $3, size_classes = $4, labels = $5, configured = true`,
				shard.Name, shard.Capacity, notNil(shard.Zones), notNil(shard.SizeClasses), labels(shard.Labels))
		}
		batch.Queue("UPDATE provision_shards SET configured = false WHERE NOT name = ANY ($1)", names)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("storing the provision shards: %w", err)
		}
		return nil
	})
	if err == nil {
		s.publish(ctx, Event{PlacementChanged: true})
	}
	return err
}

func labels(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// Shards returns all provision shards in order of name, including deregistered ones.
func (s *Store) Shards(ctx context.Context) ([]Shard, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+shardColumns+" FROM provision_shards ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("listing the provision shards: %w", err)
	}
	return pgx.CollectRows(rows, scanShard)
}

// ShardChange is an entry of a shard's history.
type ShardChange struct {
	Time    time.Time
	Actor   Actor
	Action  string
	Changes []string
	Version int64
}

// maxShardChanges bounds the history of a shard.
const maxShardChanges = 100

// ChangeShard locks all shards and calls change with one of them, or nil if it does not exist, and with the others. It
// stores the shard and the history entry that change returns; with a nil entry it stores nothing.
func (s *Store) ChangeShard(ctx context.Context, name string, change func(shard *Shard, others []Shard) (*Shard, *ShardChange, error)) (*Shard, error) {
	if err := s.fault("before-begin"); err != nil {
		return nil, err
	}
	var changed *Shard
	var done func()
	stored := false
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if done, err = s.noteCall(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lockShards)
		if err != nil {
			return fmt.Errorf("locking the provision shards: %w", err)
		}
		shards, err := pgx.CollectRows(rows, scanShard)
		if err != nil {
			return fmt.Errorf("reading the provision shards: %w", err)
		}
		var known *Shard
		if i := slices.IndexFunc(shards, func(shard Shard) bool { return shard.Name == name }); i >= 0 {
			shard := shards[i]
			known, shards = &shard, slices.Delete(shards, i, i+1)
		}
		var entry *ShardChange
		if changed, entry, err = change(known, shards); err != nil {
			return err
		}
		if stored = entry != nil; !stored {
			return nil
		}
		changed.Version++
		entry.Version = changed.Version
		batch := &pgx.Batch{}
		queueShard(batch, changed)
		batch.Queue("INSERT INTO provision_shard_changes (shard, version, time, actor, action, changes) VALUES ($1, $2, $3, $4, $5, $6)",
			changed.Name, entry.Version, entry.Time, entry.Actor, entry.Action, notNil(entry.Changes))
		batch.Queue("DELETE FROM provision_shard_changes WHERE shard = $1 AND version <= $2", changed.Name, changed.Version-maxShardChanges)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("storing a provision shard: %w", err)
		}
		if err := audit.BeforeEffect(ctx); err != nil {
			return err
		}
		return s.fault("before-commit")
	})
	if err != nil {
		return nil, err
	}
	done()
	if stored {
		s.publish(ctx, Event{PlacementChanged: true})
	}
	return changed, s.fault("after-commit")
}

func queueShard(batch *pgx.Batch, s *Shard) {
	// A typed nil in an interface would be stored as JSON null.
	var actor any
	if s.StateActor != nil {
		actor = s.StateActor
	}
	var overridden any
	if s.Override.Labels != nil {
		overridden = s.Override.Labels
	}
	batch.Queue(`INSERT INTO provision_shards (name, capacity, capacity_override, zones, zones_override, size_classes, size_classes_override,
			labels, labels_override, configured, registered, deregistered, cordoned, draining, state_actor, state_time, version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
		ON CONFLICT (name) DO UPDATE SET capacity = $2, capacity_override = $3, zones = $4, zones_override = $5, size_classes = $6,
			size_classes_override = $7, labels = $8, labels_override = $9, registered = $11, deregistered = $12, cordoned = $13, draining = $14,
			state_actor = $15, state_time = $16, version = $17`,
		s.Name, s.Base.Capacity, s.Override.Capacity, notNil(s.Base.Zones), s.Override.Zones, notNil(s.Base.SizeClasses), s.Override.SizeClasses,
		labels(s.Base.Labels), overridden, s.Configured, s.Registered, s.Deregistered, s.Cordoned, s.Draining, actor, nullTime(s.StateTime), s.Version)
}

// ShardChanges returns the history of a shard, newest first.
func (s *Store) ShardChanges(ctx context.Context, name string) ([]ShardChange, error) {
	rows, err := s.pool.Query(ctx, "SELECT time, actor, action, changes, version FROM provision_shard_changes WHERE shard = $1 ORDER BY version DESC", name)
	if err != nil {
		return nil, fmt.Errorf("reading a provision shard's history: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (ShardChange, error) {
		var c ShardChange
		err := row.Scan(&c.Time, &c.Actor, &c.Action, &c.Changes, &c.Version)
		return c, err
	})
}

// RecordAgentReports stores the time of the last report and of the last heartbeat of each agent, which of them leave works
// unanswered, and since when. It returns all shards. Shards whose agents report again can get clusters again.
func (s *Store) RecordAgentReports(ctx context.Context, heard, beats map[string]time.Time) (all []Shard, err error) {
	now, answering := s.Now(), false
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		answering, all = false, nil
		// A work is unanswered until a report covers the version that Maestro gave to its newest content. Deletions are
		// excluded, because an agent may take long without a report.
		rows, err := tx.Query(ctx, `SELECT shard, count(*)::integer FROM works WHERE delete_time IS NULL AND published > 0 AND NOT refused
			AND maestro_version > coalesce(nullif(split_part(sequence, ' ', 1), '')::bigint, 0) GROUP BY shard`)
		if err != nil {
			return err
		}
		unanswered := map[string]int32{}
		var shard string
		var count int32
		if _, err := pgx.ForEachRow(rows, []any{&shard, &count}, func() error { unanswered[shard] = count; return nil }); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, lockShards); err != nil {
			return err
		}
		shards, err := pgx.CollectRows(rows, scanShard)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, row := range shards {
			next := row
			if at := heard[row.Name]; at.After(row.LastReport) {
				next.LastReport = at
			}
			if at := beats[row.Name]; at.After(row.LastHeartbeat) {
				next.LastHeartbeat = at
			}
			next.Unanswered = unanswered[row.Name]
			switch {
			case next.Unanswered == 0:
				next.UnansweredSince = time.Time{}
			case row.UnansweredSince.IsZero() || next.LastReport.After(row.UnansweredSince):
				next.UnansweredSince = now
			}
			if !row.UnansweredSince.IsZero() && !next.UnansweredSince.Equal(row.UnansweredSince) {
				answering = true
			}
			if !next.LastReport.Equal(row.LastReport) || !next.UnansweredSince.Equal(row.UnansweredSince) || next.Unanswered != row.Unanswered || !next.LastHeartbeat.Equal(row.LastHeartbeat) {
				batch.Queue("UPDATE provision_shards SET heard_time = $2, asked_time = $3, unanswered = $4, heartbeat_time = $5 WHERE name = $1",
					row.Name, nullTime(next.LastReport), nullTime(next.UnansweredSince), next.Unanswered, nullTime(next.LastHeartbeat))
			}
			all = append(all, next)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("storing the reports of agents: %w", err)
	}
	if answering {
		s.publish(ctx, Event{PlacementChanged: true})
	}
	return all, nil
}

// equal compares the effective values of two offers.
func (o Offer) equal(other Offer) bool {
	return (o.Capacity == nil) == (other.Capacity == nil) && (o.Capacity == nil || *o.Capacity == *other.Capacity) &&
		slices.Equal(o.Zones, other.Zones) && slices.Equal(o.SizeClasses, other.SizeClasses) && maps.Equal(o.Labels, other.Labels)
}

// Offers reports whether the shard was registered with an offer.
func (s *Shard) Offers(o Offer) bool { return s.Base.equal(o) }
