// Package store keeps the fleet in PostgreSQL. A tenancy (a cluster with its node pools and works) is locked, read, changed
// and written as a whole in one transaction, with the revision of the change and the wake-up of whoever watches; what
// must happen next is part of the same rows, so a commit is never without its job. Nothing here knows the state machine:
// the change is a function that the caller gives.
//
// Lock order, everywhere: tenancies in order of uid, provision shards in order of name, the revision clock.
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/postgres/session"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Advisory locks: classes of the two-key form are apart from the one-key locks of tenancies.
const (
	lockClassMigrations = 0x6863706d
	lockClassTasks      = 0x68637074
)

// Channel is what a commit with new revisions notifies.
const Channel = "hcpmesh_revisions"

// Store is a database.
type Store struct {
	pool  *pgxpool.Pool
	now   func() time.Time
	lease time.Duration
	// wake is called after a commit of this process that gave revisions, with the last of them.
	wake func(revision int64)
	// azureLease is how long a taken cluster's steps in Azure are another's, azureDue whoever takes those that become due.
	azureLease time.Duration
	azureDue   func(clusterUIDs []string)
	// access is told what happened to the access to clusters.
	access func(ctx context.Context, records []fleet.AccessRecord)
	// fault is called with the name of each point at which a process may die; tests make it fail.
	fault func(point string) error
}

// Options of a store.
type Options struct {
	URL            string
	MaxConnections int32
	Now            func() time.Time
	// Lease is how long whoever made or took a due work has to publish it before another may; 0 means DefaultLease. Two
	// who publish the same do no harm, so it can be short: it bounds how long a crash delays a work.
	Lease time.Duration
	// Wake is called after each commit that gave revisions, with the last of them; it must not block.
	Wake func(revision int64)
	// AzureLease is how long whoever takes a cluster's due steps in Azure has to try them; 0 means DefaultAzureLease.
	AzureLease time.Duration
	// Fault is for crash tests: an error of it stands for the process's death at that point.
	Fault func(point string) error
}

// DefaultLease is many times what a publish takes.
const DefaultLease = 5 * time.Second

// Open prepares the connections; it does not connect.
func Open(options Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(options.URL)
	if err != nil {
		// The parser's error could quote the password.
		return nil, errors.New("the database URL is malformed")
	}
	if options.MaxConnections > 0 {
		config.MaxConns = options.MaxConnections
	}
	config.ConnConfig.RuntimeParams["application_name"] = "cluster-service"
	connectTo(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, now: options.Now, wake: options.Wake, fault: options.Fault}
	s.azureDue = func([]string) {}
	s.access = func(context.Context, []fleet.AccessRecord) {}
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
	if s.wake == nil {
		s.wake = func(int64) {}
	}
	if s.fault == nil {
		s.fault = func(string) error { return nil }
	}
	return s, nil
}

// connectTo has connections notice when an end of theirs has vanished, and be to a primary: a standby knows only what was, and
// would show revisions that go back. What the URL says goes before.
func connectTo(config *pgx.ConnConfig) {
	config.ConnectTimeout = 5 * time.Second
	config.DialFunc = session.Dial
	for name, value := range session.Parameters() {
		if _, given := config.RuntimeParams[name]; !given {
			config.RuntimeParams[name] = value
		}
	}
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
}

// Close ends the connections.
func (s *Store) Close() { s.pool.Close() }

// Lease is how long a taken work is another's.
func (s *Store) Lease() time.Duration { return s.lease }

// Now is the store's clock, in the resolution that the database keeps.
func (s *Store) Now() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "SELECT 1")
	return err
}

// Migrate brings the schema up to date. Of several replicas one does it and the others wait. What was applied is known by the whole
// name of its file: one that was released is never renamed nor changed, for it would be applied again, or not at all. Two therefore
// stay the third; their names order them. A new one takes the next number that is free.
func (s *Store) Migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	slices.Sort(files)
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockClassMigrations); err != nil {
			return fmt.Errorf("locking the schema: %w", err)
		}
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS schema_migrations (name text PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"); err != nil {
			return fmt.Errorf("reading the schema's version: %w", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
			tag, err := tx.Exec(ctx, "INSERT INTO schema_migrations (name) VALUES ($1) ON CONFLICT DO NOTHING", name)
			if err != nil {
				return fmt.Errorf("recording migration %s: %w", name, err)
			}
			if tag.RowsAffected() == 0 {
				continue
			}
			text, err := migrations.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(text)); err != nil {
				return fmt.Errorf("migration %s: %w", name, err)
			}
			slog.Info("migrated the database", "migration", name)
		}
		return identify(ctx, tx)
	})
}

// Listen calls wake with the revision of every notification, and with 0 after each (re)connect, until ctx is over.
func (s *Store) Listen(ctx context.Context, wake func(revision int64)) {
	for ctx.Err() == nil {
		err := s.listen(ctx, wake)
		if ctx.Err() != nil {
			return
		}
		slog.Warn("listening for changes was interrupted", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *Store) listen(ctx context.Context, wake func(revision int64)) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+Channel); err != nil {
		return err
	}
	wake(0)
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		revision, _ := strconv.ParseInt(notification.Payload, 10, 64)
		wake(revision)
	}
}

// violates says whether err is the violation of a unique index.
func violates(err error, index string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "23505" && pgErr.ConstraintName == index
}

// IsResourceIDTaken says that another uid holds the resource id of a row that was to be written.
func IsResourceIDTaken(err error) bool {
	return violates(err, "clusters_resource_key") || violates(err, "node_pools_resource_key") || violates(err, "external_auths_resource_key")
}

// IsExternalAuthTaken says that the cluster has another external auth that is wanted.
func IsExternalAuthTaken(err error) bool { return violates(err, "external_auths_wanted") }

// IsPrefixTaken says that another cluster has the base domain prefix.
func IsPrefixTaken(err error) bool { return violates(err, "clusters_prefix") }

// IsUnavailable says that the database could not be reached, ended the connection, or takes no writes: the same request may
// succeed later.
func IsUnavailable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return session.Unavailable(pgErr.Code)
	}
	var connectErr *pgconn.ConnectError
	return errors.As(err, &connectErr) || pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, new(net.Error))
}
