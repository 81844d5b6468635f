package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

// Notification is a message of one replica to the others after a commit. It only speeds things up: a replica that misses it
// finds the change when it reads the database the next time.
type Notification struct {
	// Consumers are those with due deliveries.
	Consumers []string `json:"c,omitempty"`
	// Resources are those with a new status or a confirmed deletion.
	Resources []string `json:"r,omitempty"`
	// From is the sending replica.
	From string `json:"f"`
}

const notificationChannel = "maestro_notifications"

// notificationLimit is below PostgreSQL's limit of 8000 bytes.
const notificationLimit = 7000

// Notify sends a notification to all replicas. It is not part of a transaction, because a NOTIFY in a transaction serializes
// all commits of the database.
func (s *Store) Notify(ctx context.Context, notification Notification) error {
	for len(notification.Consumers)+len(notification.Resources) > 0 {
		part, size := Notification{From: notification.From}, 0
		for size < notificationLimit && len(notification.Consumers) > 0 {
			size += len(notification.Consumers[0]) + 3
			part.Consumers, notification.Consumers = append(part.Consumers, notification.Consumers[0]), notification.Consumers[1:]
		}
		for size < notificationLimit && len(notification.Resources) > 0 {
			size += len(notification.Resources[0]) + 3
			part.Resources, notification.Resources = append(part.Resources, notification.Resources[0]), notification.Resources[1:]
		}
		payload, err := json.Marshal(part)
		if err != nil {
			return err
		}
		if _, err := s.pool.Exec(ctx, `select pg_notify($1, $2)`, notificationChannel, string(payload)); err != nil {
			return fmt.Errorf("notifying the other replicas: %w", err)
		}
	}
	return nil
}

// Listen calls receive for each notification of another replica until ctx ends, the connection breaks, or its client certificate ends,
// which is postgres.ErrCertificateEnds. It calls listening when the subscription is established.
func (s *Store) Listen(ctx context.Context, self string, listening func(), receive func(Notification)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connecting for notifications: %w", err)
	}
	// The connection keeps listening, so it must not return to the pool.
	raw := conn.Hijack()
	defer raw.Close(context.WithoutCancel(ctx))
	ended, err := postgres.EndOldSessions(ctx, raw)
	if err != nil {
		return err
	}
	if ended > 0 {
		s.log.WarnContext(ctx, "ended database sessions that are older than a certificate", logkey.Count, ended)
	}
	if _, err := raw.Exec(ctx, "listen "+notificationChannel); err != nil {
		return fmt.Errorf("receiving notifications: %w", err)
	}
	listening()
	ctx, cancel := postgres.UntilCertificateEnds(ctx, raw)
	defer cancel()
	for {
		n, err := raw.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("receiving notifications: %w", cmp.Or(context.Cause(ctx), err))
		}
		var notification Notification
		if json.Unmarshal([]byte(n.Payload), &notification) == nil && notification.From != self {
			receive(notification)
		}
	}
}

// Classes of the advisory locks: a replica holds one while it runs, and one for each consumer that it serves.
const (
	replicaLocks  = 0x6d61
	consumerLocks = 0x6d62
)

// Membership makes a replica one of those that share the consumers. It is a database session whose advisory locks mark the
// replica and the consumers that it serves. The locks end with the session, so a crashed replica blocks no other.
type Membership struct {
	conn *pgxpool.Conn
	self int32
}

// Join returns a new membership.
func (s *Store) Join(ctx context.Context) (*Membership, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("joining the replicas: %w", err)
	}
	for {
		m := &Membership{conn: conn, self: rand.Int32()}
		var free bool
		if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1, $2)`, replicaLocks, m.self).Scan(&free); err != nil {
			m.Leave()
			return nil, fmt.Errorf("joining the replicas: %w", err)
		}
		if free {
			return m, nil
		}
	}
}

// UntilCertificateEnds returns a context that ends with the cause postgres.ErrCertificateEnds when the replica must join again, because
// the client certificate of its session ends soon.
func (m *Membership) UntilCertificateEnds(ctx context.Context) (context.Context, context.CancelFunc) {
	return postgres.UntilCertificateEnds(ctx, m.conn.Conn())
}

// Leave ends the membership and releases all its locks.
func (m *Membership) Leave() {
	raw := m.conn.Hijack()
	_ = raw.Close(context.Background())
}

// Share returns the consumers that are assigned to this replica. Each consumer is assigned to one of the running replicas by
// rendezvous hashing, so that a change of the replicas moves as few consumers as possible.
func (m *Membership) Share(ctx context.Context, consumers []string) (map[string]bool, error) {
	rows, err := m.conn.Query(ctx, `select l.objid::bigint from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and l.granted and l.classid = $1 and d.datname = current_database()`, replicaLocks)
	if err != nil {
		return nil, fmt.Errorf("listing the replicas: %w", err)
	}
	replicas, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("listing the replicas: %w", err)
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

// Claim reports whether this replica may serve the consumer from now on.
func (m *Membership) Claim(ctx context.Context, consumer string) (ok bool, err error) {
	err = m.conn.QueryRow(ctx, `select pg_try_advisory_lock($1, $2)`, consumerLocks, lockKey(consumer)).Scan(&ok)
	return ok, wrap(err, "claiming consumer %s", consumer)
}

// Release lets another replica claim the consumer.
func (m *Membership) Release(ctx context.Context, consumer string) error {
	_, err := m.conn.Exec(ctx, `select pg_advisory_unlock($1, $2)`, consumerLocks, lockKey(consumer))
	return wrap(err, "releasing consumer %s", consumer)
}

// lockKey returns the advisory lock of a consumer. Share uses it too, so that consumers with colliding keys have one replica.
func lockKey(consumer string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(consumer))
	return int32(h.Sum32())
}

// mix applies the finalizer of splitmix64 to both values.
func mix(a, b uint64) uint64 {
	x := a<<32 | b&0xffffffff
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// IsUnavailable reports whether err is due to the state of the database and not of the request: every error without an
// SQLSTATE counts, because the server reported none.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	return postgres.Code(err) == "" || postgres.IsUnavailable(err)
}
