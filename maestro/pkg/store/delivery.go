package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Lane separates new work from the deliveries of a resync, so that a resync never delays new work.
type Lane int16

const (
	NewWork Lane = iota
	Resync
)

// Delivery is an unconfirmed version of a resource that must be sent to its agent.
type Delivery struct {
	Resource *resource.Resource
	Position int64
	Lane     Lane
	Attempts int
	DueAt    time.Time
}

// Due returns the due deliveries of a consumer in a lane, in order.
func (s *Store) Due(ctx context.Context, consumer string, lane Lane, limit int) ([]*Delivery, error) {
	rows, err := s.pool.Query(ctx, `select q.position, q.lane, q.attempts, q.due_at, `+resourceColumns+`, r.spec
		from deliveries q join resources r on r.id = q.resource_id
		where q.consumer = $1 and q.lane = $2 and q.parked is null and q.due_at <= now()
		order by q.position limit $3`, consumer, int16(lane), limit)
	if err != nil {
		return nil, fmt.Errorf("listing the due deliveries of consumer %s: %w", consumer, err)
	}
	due, err := pgx.CollectRows(rows, func(cr pgx.CollectableRow) (*Delivery, error) {
		var d Delivery
		r, err := row(func(dest ...any) error {
			return cr.Scan(append([]any{&d.Position, (*int16)(&d.Lane), &d.Attempts, &d.DueAt}, dest...)...)
		}, true)
		d.Resource = r
		return &d, err
	})
	return due, wrap(err, "listing the due deliveries of consumer %s", consumer)
}

// Waiting counts the deliveries of a consumer that are not parked.
type Waiting struct {
	// Due is the number of deliveries that are due, by lane.
	Due [2]int
	// Resyncing is the number of deliveries in the resync lane that were sent and are neither confirmed nor due again.
	Resyncing int
	// Next is when the next delivery of either lane is due. Zero means that none waits.
	Next time.Time
}

// Waiting counts the deliveries of a consumer.
func (s *Store) Waiting(ctx context.Context, consumer string) (w Waiting, err error) {
	var next *time.Time
	err = s.pool.QueryRow(ctx, `select count(*) filter (where lane = 0 and due_at <= now()), count(*) filter (where lane = 1 and due_at <= now()),
			count(*) filter (where lane = 1 and attempts > 0 and due_at > now()), min(due_at) filter (where due_at > now())
		from deliveries where consumer = $1 and parked is null`, consumer).Scan(&w.Due[NewWork], &w.Due[Resync], &w.Resyncing, &next)
	if next != nil {
		w.Next = *next
	}
	return w, wrap(err, "counting the deliveries of consumer %s", consumer)
}

// Sent records that deliveries were published. An unconfirmed delivery is due again after its delay. In the resync lane it moves to the
// end, so that deliveries that stay unconfirmed for long, such as deletions, do not occupy the window before those that were never sent.
// Sent does not change a delivery that was ordered again meanwhile.
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
		update deliveries d set attempts = attempts + 1, due_at = now() + make_interval(secs => sent.seconds),
			position = case when d.lane = 1 then nextval('delivery_order') else d.position end
		from sent where d.resource_id = sent.resource_id`, ids, positions, delays)
	return wrap(err, "recording %d sent deliveries", len(sent))
}

// Park postpones a delivery for a pause or, if that is 0, until its resource changes, and stores the status that reports the
// reason to the source.
func (s *Store) Park(ctx context.Context, d *Delivery, reason string, pause time.Duration, status *resource.Status) error {
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
			_, err = tx.Exec(ctx, `update deliveries set parked = $3 where resource_id = $1 and position = $2`, d.Resource.ID, d.Position, reason)
		}
		return err
	})
	return wrap(err, "parking the delivery of resource %s", d.Resource.ID)
}

// Difference is the result of comparing the works of an agent with the stored resources.
type Difference struct {
	// Ordered is the number of deliveries that were ordered.
	Ordered int64
	// Confirmed is the number of deliveries that had arrived.
	Confirmed int64
	// Unwanted are works of the agent whose deletion was confirmed before.
	Unwanted []*resource.Resource
	// Unknown are works without a resource or a tombstone.
	Unknown []string
	// Hashes are the stored status hashes of the works that the agent has in their newest version.
	Hashes map[string]string
}

// maxNewAttempts is how often new work may have been sent when a resync begins and still be new work.
const maxNewAttempts = 1

// CompareHeld compares the versions of an agent's works with the stored resources. It orders deliveries in the resync lane for
// resources that the agent lacks, has in an older version or must delete, and confirms deliveries that have arrived. newRun means
// that the agent lost its state, so that its sequence IDs start again.
//
// New work that was sent at most maxNewAttempts times stays new work. It may have been sent shortly before the agent subscribed, or be in
// transit. New work that was sent more often becomes part of the resync, before all resources that have not changed: after a long outage,
// the window of the resync then bounds the burst. So does new work that was sent in several resyncs, in case that it makes the agent fail.
func (s *Store) CompareHeld(ctx context.Context, consumer string, held map[string]int64, newRun bool) (*Difference, error) {
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
			left join deliveries waiting on waiting.resource_id = r.id
			where r.id = any($3) and (r.deleted_at is not null or h.id is null or h.version < r.version)
			-- The order of the new positions. lockAll has locked the rows. Deliveries that an earlier resync has sent come last, in case
			-- that one of them makes the agent fail.
			order by coalesce(waiting.lane = 1 and waiting.attempts > 0, false), waiting.position nulls last, r.id
			on conflict (resource_id) do update set
				lane = case when d.attempts > $4 then 1 else d.lane end,
				-- Sent recognizes by its position that a delivery is being sent at this time, and does not delay it.
				position = nextval('delivery_order'),
				due_at = now(),
				attempts = case when d.lane = 1 or d.attempts > $4 then 0 else d.attempts end
			where d.parked is null`, ids, versions, known, maxNewAttempts)
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
		return findUnknown(ctx, tx, consumer, ids, diff)
	})
	if err != nil {
		return nil, wrap(err, "comparing the works of consumer %s", consumer)
	}
	return diff, nil
}

// lockAll locks the resources of a consumer and their deliveries, in the order of the package, and returns the IDs of the
// resources. Resources that are created afterwards are not part of the comparison: their deliveries are new work.
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

// findUnknown sets diff.Unwanted and diff.Unknown.
func findUnknown(ctx context.Context, tx pgx.Tx, consumer string, ids []string, diff *Difference) error {
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
	deleted := map[string]bool{}
	for _, r := range diff.Unwanted {
		deleted[r.ID] = true
	}
	for _, id := range unknown {
		if !deleted[id] {
			diff.Unknown = append(diff.Unknown, id)
		}
	}
	return nil
}

// Hashes returns the stored status hash of each resource of a consumer by ID; "" for resources without a status.
func (s *Store) Hashes(ctx context.Context, consumer string) (map[string]string, error) {
	rows, err := s.pool.Query(ctx, `select id, coalesce(status_hash, '') from resources where consumer = $1`, consumer)
	if err != nil {
		return nil, fmt.Errorf("listing the statuses of consumer %s: %w", consumer, err)
	}
	hashes := map[string]string{}
	var id, hash string
	_, err = pgx.ForEachRow(rows, []any{&id, &hash}, func() error { hashes[id] = hash; return nil })
	return hashes, wrap(err, "listing the statuses of consumer %s", consumer)
}

// Backlog contains the figures of one lane of a consumer's outbox.
type Backlog struct {
	Consumer      string
	Lane          Lane
	Waiting       int64
	Parked        int64
	OldestSeconds float64
	MaxAttempts   int64
}

// Backlogs returns the figures of the outbox by consumer and lane.
func (s *Store) Backlogs(ctx context.Context) ([]Backlog, error) {
	rows, err := s.pool.Query(ctx, `select d.consumer, d.lane, count(*) filter (where d.parked is null), count(d.parked),
			coalesce(extract(epoch from now() - min(r.updated_at)), 0)::float8, coalesce(max(d.attempts), 0)
		from deliveries d join resources r on r.id = d.resource_id group by 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("counting the outbox: %w", err)
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (b Backlog, err error) {
		return b, r.Scan(&b.Consumer, (*int16)(&b.Lane), &b.Waiting, &b.Parked, &b.OldestSeconds, &b.MaxAttempts)
	})
}
