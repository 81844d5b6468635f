package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

// News is what one replica tells the others after a commit. It only makes them look sooner: whoever misses it finds the
// same with the next periodic look.
type News struct {
	// Consumers have deliveries due.
	Consumers []string `json:"c,omitempty"`
	// Resources have a new status, or their deletion was confirmed.
	Resources []string `json:"r,omitempty"`
	// From is the replica that tells.
	From string `json:"f"`
}

const newsChannel = "maestro_news"

// newsLimit keeps a notification under PostgreSQL's limit of 8000 bytes.
const newsLimit = 7000

// Tell sends news to every replica. It is a statement of its own on purpose: a NOTIFY inside a transaction makes all
// commits of the database wait for one another.
func (s *Store) Tell(ctx context.Context, news News) error {
	for len(news.Consumers)+len(news.Resources) > 0 {
		part, size := News{From: news.From}, 0
		for size < newsLimit && len(news.Consumers) > 0 {
			size += len(news.Consumers[0]) + 3
			part.Consumers, news.Consumers = append(part.Consumers, news.Consumers[0]), news.Consumers[1:]
		}
		for size < newsLimit && len(news.Resources) > 0 {
			size += len(news.Resources[0]) + 3
			part.Resources, news.Resources = append(part.Resources, news.Resources[0]), news.Resources[1:]
		}
		payload, err := json.Marshal(part)
		if err != nil {
			return err
		}
		if _, err := s.pool.Exec(ctx, `select pg_notify($1, $2)`, newsChannel, string(payload)); err != nil {
			return fmt.Errorf("notify the other replicas: %w", err)
		}
	}
	return nil
}

// Listen calls hear with the other replicas' news until the context ends or the connection breaks. listening is called
// once it hears everything from then on.
func (s *Store) Listen(ctx context.Context, self string, listening func(), hear func(News)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	// The connection goes on listening, so it must not return to the pool.
	raw := conn.Hijack()
	defer raw.Close(context.WithoutCancel(ctx))
	if _, err := raw.Exec(ctx, "listen "+newsChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	listening()
	for {
		n, err := raw.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		var news News
		if json.Unmarshal([]byte(n.Payload), &news) == nil && news.From != self {
			hear(news)
		}
	}
}

// Classes of the advisory locks: one says that a replica lives, the other that it serves a consumer.
const (
	replicaLocks  = 0x6d61
	consumerLocks = 0x6d62
)

// Membership is a replica's place among the replicas: a database session whose advisory locks say that it lives and
// which consumers it serves. The locks end with the session, so a replica that dies leaves nothing to wait for.
type Membership struct {
	conn *pgxpool.Conn
	self int32
}

// Join opens a membership.
func (s *Store) Join(ctx context.Context) (*Membership, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the replicas: %w", err)
	}
	for {
		m := &Membership{conn: conn, self: rand.Int32()}
		var alone bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1, $2)`, replicaLocks, m.self).Scan(&alone); err != nil {
			m.Leave()
			return nil, fmt.Errorf("join the replicas: %w", err)
		}
		if alone {
			return m, nil
		}
	}
}

// Leave ends the membership and with it all its locks.
func (m *Membership) Leave() {
	raw := m.conn.Hijack()
	_ = raw.Close(context.Background())
}

// Share lists those of the consumers that fall to this replica. Each consumer falls to one of the living replicas,
// chosen by highest random weight, so that a replica's coming or going moves only what it must.
func (m *Membership) Share(ctx context.Context, consumers []string) (map[string]bool, error) {
	rows, err := m.conn.Query(ctx, `select l.objid::bigint from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.granted and l.classid = $1 and d.datname = current_database()`, replicaLocks)
	if err != nil {
		return nil, fmt.Errorf("list the replicas: %w", err)
	}
	replicas, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("list the replicas: %w", err)
	}
	mine := map[string]bool{}
	for _, consumer := range consumers {
		var best int64
		var weight uint64
		for _, replica := range replicas {
			if w := mix(uint64(uint32(replica)), uint64(uint32(lockKey(consumer)))); w >= weight {
				best, weight = replica, w
			}
		}
		if int32(uint32(best)) == m.self {
			mine[consumer] = true
		}
	}
	return mine, nil
}

// Claim tries to become the one that serves a consumer.
func (m *Membership) Claim(ctx context.Context, consumer string) (ok bool, err error) {
	err = m.conn.QueryRow(ctx, `select pg_try_advisory_lock($1, $2)`, consumerLocks, lockKey(consumer)).Scan(&ok)
	return ok, wrap(err, "claim consumer %s", consumer)
}

// Release lets another replica serve the consumer.
func (m *Membership) Release(ctx context.Context, consumer string) error {
	_, err := m.conn.Exec(ctx, `select pg_advisory_unlock($1, $2)`, consumerLocks, lockKey(consumer))
	return wrap(err, "release consumer %s", consumer)
}

// lockKey is also what the share is computed from, so that consumers whose keys collide fall to the same replica.
func lockKey(consumer string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(consumer))
	return int32(h.Sum32())
}

// mix is the finaliser of splitmix64 over both values.
func mix(a, b uint64) uint64 {
	x := a<<32 | b&0xffffffff
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// IsUnavailable tells a database that could not be reached, or refused for now, from one that answered with an error.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	return postgres.Code(err) == "" || postgres.IsUnavailable(err)
}
