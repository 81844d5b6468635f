package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
)

// Shard is a provision shard's row.
type Shard struct {
	Name string
	// Capacity is the one that counts: an operator's, else the configured one.
	Capacity int32
	Clusters int32
	Cordoned bool
}

const shardColumns = "name, coalesce(capacity_override, capacity), clusters, cordoned OR NOT configured"

func scanShard(row pgx.CollectableRow) (Shard, error) {
	var s Shard
	err := row.Scan(&s.Name, &s.Capacity, &s.Clusters, &s.Cordoned)
	return s, err
}

// ConfigureShards merges the configured shards into the table. A shard that is no longer configured keeps its clusters and
// gets no new ones; what an operator set stays.
func (s *Store) ConfigureShards(ctx context.Context, shards []config.Shard) error {
	var names []string
	for _, shard := range shards {
		names = append(names, shard.Name)
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1 FROM provision_shards ORDER BY name FOR UPDATE")
		for _, shard := range shards {
			batch.Queue(`INSERT INTO provision_shards (name, capacity) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET capacity = $2, configured = true`, shard.Name, shard.Capacity)
		}
		batch.Queue("UPDATE provision_shards SET configured = false WHERE NOT name = ANY ($1)", names)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("storing the provision shards: %w", err)
		}
		return nil
	})
}

// Shards lists the provision shards by name.
func (s *Store) Shards(ctx context.Context) ([]Shard, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+shardColumns+" FROM provision_shards ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("listing the provision shards: %w", err)
	}
	return pgx.CollectRows(rows, scanShard)
}

// ErrUnknownShard is returned for a shard that does not exist.
var ErrUnknownShard = errors.New("unknown provision shard")

// SetShard stores what an operator decides of a shard; nil leaves it.
func (s *Store) SetShard(ctx context.Context, name string, cordoned *bool, capacity *int32) (Shard, error) {
	rows, err := s.pool.Query(ctx, `UPDATE provision_shards SET cordoned = coalesce($2, cordoned), capacity_override = coalesce($3, capacity_override)
		WHERE name = $1 RETURNING `+shardColumns, name, cordoned, capacity)
	if err != nil {
		return Shard{}, fmt.Errorf("updating a provision shard: %w", err)
	}
	shard, err := pgx.CollectExactlyOneRow(rows, scanShard)
	if errors.Is(err, pgx.ErrNoRows) {
		return Shard{}, ErrUnknownShard
	}
	return shard, err
}

// Place takes a place for one cluster on the shard that is the least full of those with room, and returns its name; empty
// when there is none. The shards stay locked to the end of the transaction, so that two clusters never share a place.
func (t *Tx) Place(ctx context.Context) (string, error) {
	// The order of the lock is the name's; the order of the choice is how full a shard is, then its name.
	row := t.conn.QueryRow(ctx, `WITH locked AS MATERIALIZED (SELECT `+shardColumns+` FROM provision_shards ORDER BY name FOR UPDATE),
		chosen AS (SELECT name FROM locked AS l (name, capacity, clusters, closed) WHERE NOT closed AND clusters < capacity
			ORDER BY clusters::float8 / capacity, name LIMIT 1)
		UPDATE provision_shards AS p SET clusters = p.clusters + 1 FROM chosen WHERE p.name = chosen.name RETURNING p.name`)
	var name string
	err := row.Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("placing a cluster: %w", err)
	}
	return name, nil
}
