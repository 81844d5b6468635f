package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Lane separates new work from what a resync brought up again, so that the second never delays the first.
type Lane int16

const (
	NewWork Lane = iota
	Resync
)

// Delivery is an unconfirmed version of a resource, due to be sent to its agent.
type Delivery struct {
	Resource *resource.Resource
	Position int64
	Lane     Lane
	Attempts int
	DueAt    time.Time
}

// Due lists a lane's deliveries that are due for a consumer, in their order.
func (s *Store) Due(ctx context.Context, consumer string, lane Lane, limit int) ([]*Delivery, error) {
	rows, err := s.pool.Query(ctx, `select q.position, q.lane, q.attempts, q.due_at, `+resourceColumns+`, r.spec
		from deliveries q join resources r on r.id = q.resource_id
		where q.consumer = $1 and q.lane = $2 and q.parked is null and q.due_at <= now()
		order by q.position limit $3`, consumer, int16(lane), limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries due for consumer %s: %w", consumer, err)
	}
	due, err := pgx.CollectRows(rows, func(cr pgx.CollectableRow) (*Delivery, error) {
		var d Delivery
		r, err := row(func(dest ...any) error {
			return cr.Scan(append([]any{&d.Position, (*int16)(&d.Lane), &d.Attempts, &d.DueAt}, dest...)...)
		}, true)
		d.Resource = r
		return &d, err
	})
	return due, wrap(err, "list deliveries due for consumer %s", consumer)
}

// Outstanding counts what was sent in a lane, is not confirmed and not yet due again; and says when the next delivery
// of either lane falls due (zero: none waits).
func (s *Store) Outstanding(ctx context.Context, consumer string, lane Lane) (count int, next time.Time, err error) {
	var at *time.Time
	err = s.pool.QueryRow(ctx, `select count(*) filter (where lane = $2 and attempts > 0 and due_at > now()), min(due_at) filter (where due_at > now())
		from deliveries where consumer = $1 and parked is null`, consumer, int16(lane)).Scan(&count, &at)
	if at != nil {
		next = *at
	}
	return count, next, wrap(err, "count outstanding deliveries of consumer %s", consumer)
}

// Sent notes that deliveries have been published. One that is not confirmed by then falls due again after its delay. A
// delivery that was ordered anew meanwhile is left as it is.
func (s *Store) Sent(ctx context.Context, sent []*Delivery, delay func(attempts int) time.Duration) error {
	ids, positions, delays := make([]string, len(sent)), make([]int64, len(sent)), make([]float64, len(sent))
	for i, d := range sent {
		ids[i], positions[i], delays[i] = d.Resource.ID, d.Position, delay(d.Attempts).Seconds()
	}
	_, err := s.pool.Exec(ctx, `
		with sent as (
			select d.resource_id, s.seconds from deliveries d
			join unnest($1::text[], $2::bigint[], $3::float8[]) as s (id, position, seconds) on d.resource_id = s.id and d.position = s.position
			order by d.resource_id for update of d)
		update deliveries d set attempts = attempts + 1, due_at = now() + make_interval(secs => sent.seconds)
		from sent where d.resource_id = sent.resource_id`, ids, positions, delays)
	return wrap(err, "note %d deliveries as sent", len(sent))
}

// Park takes a delivery out of circulation, for a pause or, without one, until its resource changes; and writes the
// status that tells the source why.
func (s *Store) Park(ctx context.Context, d *Delivery, why string, pause time.Duration, status *resource.Status) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update resources set status_version = $2, status_agent = $3, status_epoch = null, status_sequence = 0,
				status_hash = $4, status_body = $5, status_revision = nextval('status_revision'), status_xid = pg_current_xact_id()
			where id = $1 and version = $2`, d.Resource.ID, d.Resource.Version, status.Agent, status.Hash, []byte(status.Body))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if pause > 0 {
			_, err = tx.Exec(ctx, `update deliveries set due_at = now() + $3::interval, attempts = attempts + 1, position = nextval('delivery_order') where resource_id = $1 and position = $2`,
				d.Resource.ID, d.Position, pause)
		} else {
			_, err = tx.Exec(ctx, `update deliveries set parked = $3 where resource_id = $1 and position = $2`, d.Resource.ID, d.Position, why)
		}
		return err
	})
	return wrap(err, "park the delivery of resource %s", d.Resource.ID)
}

// Difference is what a spec resync found out about what an agent holds.
type Difference struct {
	// Ordered deliveries will bring the agent up to date.
	Ordered int64
	// Confirmed deliveries turned out to have arrived.
	Confirmed int64
	// Unwanted works were deleted and confirmed once, and yet the agent has them.
	Unwanted []*resource.Resource
	// Unknown works have no resource and never had one that this database remembers.
	Unknown []string
	// Hashes are the known statuses of the works the agent has in their newest version.
	Hashes map[string]string
}

// Compare works through the versions an agent holds: what is missing, older or to be deleted is ordered in the resync
// lane; what has arrived is confirmed. newRun tells that the agent started anew, so that its sequence ids do too.
func (s *Store) Compare(ctx context.Context, consumer string, held map[string]int64, newRun bool) (*Difference, error) {
	ids, versions := make([]string, 0, len(held)), make([]int64, 0, len(held))
	for id, version := range held {
		ids, versions = append(ids, id), append(versions, version)
	}
	diff := &Difference{Hashes: map[string]string{}}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if newRun {
			if _, err := tx.Exec(ctx, `update consumers set agent_epoch = agent_epoch + 1 where name = $1`, consumer); err != nil {
				return err
			}
		}
		known, err := lockAll(ctx, tx, consumer)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			insert into deliveries as d (resource_id, consumer, lane)
			select r.id, r.consumer, 1 from resources r
			left join unnest($1::text[], $2::bigint[]) as h (id, version) on h.id = r.id
			where r.id = any($3) and (r.deleted_at is not null or h.id is null or h.version < r.version)
			order by r.id
			on conflict (resource_id) do update set
				-- What was sent before the agent lost it is a resync now; what was never sent is still new work.
				lane = case when d.attempts > 0 then 1 else d.lane end,
				position = case when d.attempts > 0 then nextval('delivery_order') else d.position end,
				due_at = now(), attempts = 0
			where d.parked is null`, ids, versions, known)
		if err != nil {
			return err
		}
		diff.Ordered = tag.RowsAffected()
		if len(ids) == 0 {
			return nil
		}
		tag, err = tx.Exec(ctx, `
			delete from deliveries d using resources r, unnest($1::text[], $2::bigint[]) as h (id, version)
			where d.resource_id = r.id and r.id = h.id and r.id = any($3) and r.deleted_at is null and h.version = r.version`,
			ids, versions, known)
		if err != nil {
			return err
		}
		diff.Confirmed = tag.RowsAffected()
		rows, err := tx.Query(ctx, `select r.id, coalesce(r.status_hash, '') from resources r join unnest($2::text[], $3::bigint[]) as h (id, version) on h.id = r.id
			where r.consumer = $1 and h.version = r.version and r.deleted_at is null`, consumer, ids, versions)
		if err != nil {
			return err
		}
		var id, hash string
		if _, err = pgx.ForEachRow(rows, []any{&id, &hash}, func() error { diff.Hashes[id] = hash; return nil }); err != nil {
			return err
		}
		return unknownTo(ctx, tx, consumer, ids, diff)
	})
	if err != nil {
		return nil, wrap(err, "compare what consumer %s holds", consumer)
	}
	return diff, nil
}

// lockAll locks a consumer's resources and their deliveries, in the order that package store keeps, and lists the
// resources. One that is created afterwards is none of the comparison's business: its delivery is new work.
func lockAll(ctx context.Context, tx pgx.Tx, consumer string) ([]string, error) {
	rows, err := tx.Query(ctx, `select id from resources where consumer = $1 order by id for no key update`, consumer)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `select from deliveries where resource_id = any($1) order by resource_id for update`, ids)
	return ids, err
}

func unknownTo(ctx context.Context, tx pgx.Tx, consumer string, ids []string, diff *Difference) error {
	rows, err := tx.Query(ctx, `select h.id from unnest($2::text[]) as h (id)
		where not exists (select 1 from resources r where r.id = h.id and r.consumer = $1)`, consumer, ids)
	if err != nil {
		return err
	}
	unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(unknown) == 0 {
		return err
	}
	rows, err = tx.Query(ctx, `select `+tombstoneColumns+` from tombstones t where t.consumer = $1 and t.resource_id = any($2)`, consumer, unknown)
	if err != nil {
		return err
	}
	diff.Unwanted, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (*resource.Resource, error) { return tombstone(r.Scan) })
	if err != nil {
		return err
	}
	dead := map[string]bool{}
	for _, r := range diff.Unwanted {
		dead[r.ID] = true
	}
	for _, id := range unknown {
		if !dead[id] {
			diff.Unknown = append(diff.Unknown, id)
		}
	}
	return nil
}

// Hashes lists the newest known status of each of a consumer's resources that was ever delivered, by id.
func (s *Store) Hashes(ctx context.Context, consumer string) (map[string]string, error) {
	rows, err := s.pool.Query(ctx, `select id, coalesce(status_hash, '') from resources where consumer = $1`, consumer)
	if err != nil {
		return nil, fmt.Errorf("list the statuses of consumer %s: %w", consumer, err)
	}
	hashes := map[string]string{}
	var id, hash string
	_, err = pgx.ForEachRow(rows, []any{&id, &hash}, func() error { hashes[id] = hash; return nil })
	return hashes, wrap(err, "list the statuses of consumer %s", consumer)
}

// Backlog is a consumer's outbox in figures.
type Backlog struct {
	Consumer      string
	Lane          Lane
	Waiting       int64
	Parked        int64
	OldestSeconds float64
	MaxAttempts   int64
}

// Backlogs lists the outbox per consumer and lane.
func (s *Store) Backlogs(ctx context.Context) ([]Backlog, error) {
	rows, err := s.pool.Query(ctx, `select d.consumer, d.lane, count(*) filter (where d.parked is null), count(d.parked),
			coalesce(extract(epoch from now() - min(r.updated_at)), 0)::float8, coalesce(max(d.attempts), 0)
		from deliveries d join resources r on r.id = d.resource_id group by 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("count the outbox: %w", err)
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (b Backlog, err error) {
		return b, r.Scan(&b.Consumer, (*int16)(&b.Lane), &b.Waiting, &b.Parked, &b.OldestSeconds, &b.MaxAttempts)
	})
}
