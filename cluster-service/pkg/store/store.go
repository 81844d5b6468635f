// Package store stores the fleet in PostgreSQL. A cluster aggregate (a cluster with its node pools, works and other
// children) is locked, read, changed and written as a whole in one transaction. The same transaction gives the changes
// their revision and notifies watchers. The rows also contain what must happen next, so a commit never loses its follow-up
// work. The package does not know the state machine: callers pass the change as a function.
//
// Locks are acquired in this order everywhere: aggregates in order of UID, provision shards in order of name, the revision
// clock.
//
// A WatchHub distributes the changes to watchers. It follows the database with one reader, which commits wake, and stores
// the newest changes in a ring. Every watcher has a cursor into the ring and reads older changes from the database. So a
// slow watcher blocks nobody, needs no memory and misses nothing. Revisions become visible in order, so a cursor is a single
// number.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Classes of advisory locks with two keys. They are separate from the locks of aggregates, which have one key.
const (
	lockClassMigrations = 0x6863706d
	lockClassTasks      = 0x68637074
)

// listenRetry is the mean pause before a broken connection for notifications is replaced.
const listenRetry = time.Second

// Channel is the channel that a commit with new revisions notifies.
const Channel = "hcpmesh_revisions"

// Store is a connection pool to the database of one region's fleet.
type Store struct {
	pool  *pgxpool.Pool
	now   func() time.Time
	lease time.Duration
	// azureLease is the duration of the lease of a cluster's steps in Azure.
	azureLease time.Duration
	// subscribers handle the events of committed transactions.
	subscribers []func(ctx context.Context, e Event)
	// fault is called with the name of each point at which the process may die. Tests inject errors with it.
	fault func(point string) error
	log   *slog.Logger
}

// Options configure a store.
type Options struct {
	URL            string
	Authentication postgres.Authentication
	MaxConnections int32
	Now            func() time.Time
	// Lease is the time that a process has to publish a due work before another process may; 0 means DefaultLease. It
	// bounds how long a crash delays a work. It can be short, because publishing the same content twice does no harm.
	Lease time.Duration
	// AzureLease is the time that a process has to try the due steps of a cluster in Azure; 0 means DefaultAzureLease.
	AzureLease time.Duration
	// Fault is for crash tests: an error that it returns stands for the death of the process at that point.
	Fault func(point string) error
	// Log receives records about migrations and interrupted connections; nil discards them.
	Log *slog.Logger
}

// DefaultLease is many times the duration of a publish.
const DefaultLease = 5 * time.Second

// Open returns a store with a pool of connections. It does not connect.
func Open(options Options) (*Store, error) {
	pool, err := postgres.Open(context.Background(), postgres.Options{URL: options.URL, Application: "cluster-service", MaxConnections: options.MaxConnections,
		Authentication: options.Authentication})
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, now: options.Now, fault: options.Fault, log: options.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.azureLease = options.AzureLease
	if s.azureLease == 0 {
		s.azureLease = DefaultAzureLease
	}
	s.lease = options.Lease
	if s.lease == 0 {
		s.lease = DefaultLease
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.fault == nil {
		s.fault = func(string) error { return nil }
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() { s.pool.Close() }

// Lease returns the duration of the lease of a work.
func (s *Store) Lease() time.Duration { return s.lease }

// Now returns the time of the store's clock in the resolution of the database.
func (s *Store) Now() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// Ping reports whether the database responds and its disk is not full.
func (s *Store) Ping(ctx context.Context) error { return postgres.Ping(ctx, s.pool) }

// Migrations returns the files of the migrations. A new migration takes the next number that is free.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return files
}

// Migrate brings the schema up to date, which only the owner of the database can, and completes the rows. One replica does so at a time.
func (s *Store) Migrate(ctx context.Context) error {
	if err := postgres.Migrate(ctx, s.pool, Migrations(), s.log); err != nil {
		return err
	}
	return s.completeRows(ctx)
}

// CheckMigrated completes the rows of a schema that is up to date. Otherwise it returns a postgres.OutdatedError.
func (s *Store) CheckMigrated(ctx context.Context) error {
	if err := postgres.CheckMigrated(ctx, s.pool, Migrations()); err != nil {
		return err
	}
	return s.completeRows(ctx)
}

// completeRows completes the rows that another release wrote. One replica does so at a time.
func (s *Store) completeRows(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockClassMigrations); err != nil {
			return fmt.Errorf("locking the identifiers of clusters: %w", err)
		}
		if err := identify(ctx, tx); err != nil {
			return err
		}
		return findConcerns(ctx, tx, s.Now())
	})
}

// Listen calls wake with the revision of every notification, and with 0 after each connection is established, until ctx is
// done.
func (s *Store) Listen(ctx context.Context, wake func(revision int64)) {
	for ctx.Err() == nil {
		err := s.listen(ctx, wake)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, postgres.ErrCertificateEnds) {
			continue
		}
		s.log.WarnContext(ctx, "listening for changes was interrupted", logkey.Error, err)
		_ = backoff.Sleep(ctx, backoff.Jitter(listenRetry))
	}
}

func (s *Store) listen(ctx context.Context, wake func(revision int64)) error {
	conn, err := postgres.Connect(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ended, err := postgres.EndOldSessions(ctx, conn)
	if err != nil {
		return err
	}
	if ended > 0 {
		s.log.WarnContext(ctx, "ended database sessions that are older than a certificate", logkey.Count, ended)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+Channel); err != nil {
		return err
	}
	wake(0)
	ctx, cancel := postgres.UntilCertificateEnds(ctx, conn)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		revision, _ := strconv.ParseInt(notification.Payload, 10, 64)
		wake(revision)
	}
}

// violates reports whether err is the violation of a unique index.
func violates(err error, index string) bool { return postgres.Constraint(err) == index }

// IsResourceIDInUse reports whether a write failed because another UID holds the resource ID.
func IsResourceIDInUse(err error) bool {
	return violates(err, "clusters_resource_key") || violates(err, "node_pools_resource_key") || violates(err, "external_auths_resource_key")
}

// IsExternalAuthInUse reports whether a write failed because the cluster has another external authentication that is not
// being deleted.
func IsExternalAuthInUse(err error) bool { return violates(err, "external_auths_wanted") }

// IsPrefixInUse reports whether a write failed because another cluster has the base domain prefix.
func IsPrefixInUse(err error) bool { return violates(err, "clusters_prefix") }

// IsUnavailable reports whether the database was not reached, ended the connection, or accepts no writes. The same request
// may succeed later.
func IsUnavailable(err error) bool { return postgres.IsUnavailable(err) }
