package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// RecordHeartbeat stores that the agent of a consumer sent a heartbeat now.
func (s *Store) RecordHeartbeat(ctx context.Context, consumer string) error {
	_, err := s.pool.Exec(ctx, `insert into heartbeats (consumer, time) select name, now() from consumers where name = $1
		on conflict (consumer) do update set time = excluded.time`, consumer)
	if err != nil {
		return fmt.Errorf("storing a heartbeat of consumer %s: %w", consumer, err)
	}
	return nil
}

// Heartbeats returns the time of the last heartbeat of each agent, by consumer. It omits agents that have never sent one.
func (s *Store) Heartbeats(ctx context.Context) (map[string]time.Time, error) {
	rows, err := s.pool.Query(ctx, `select consumer, time from heartbeats`)
	if err != nil {
		return nil, fmt.Errorf("reading the heartbeats: %w", err)
	}
	last := map[string]time.Time{}
	var consumer string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&consumer, &at}, func() error { last[consumer] = at.UTC(); return nil }); err != nil {
		return nil, fmt.Errorf("reading the heartbeats: %w", err)
	}
	return last, nil
}
