// Package store keeps Maestro's consumers, resources and deliveries in PostgreSQL and is the only place that speaks SQL.
// Every change of a resource commits together with the delivery it causes; every status commits together with the
// delivery it confirms. Nothing here blocks on anything but the database, and no method writes blindly: a change names
// the version it builds on, or says that it means whichever is newest.
//
// Every transaction locks a resource before its delivery and several resources in the order of their ids, so that no two
// wait for each other. A row that refers to another locks it too: a delivery is inserted after its resource was locked.
package store

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/postgres/session"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that lets one replica at a time migrate ("maestro" in ASCII, truncated).
const migrationLock = 0x6d61657374726f

// Store is a pool of connections to Maestro's database.
type Store struct {
	pool *pgxpool.Pool
}

// Open prepares a pool for the database that the connection string names. It does not connect: a database that is down
// at start is waited for by whoever uses the store.
func Open(ctx context.Context, dsn string, maxConns int32) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The error's text can repeat the connection string, and with it the password.
		return nil, errors.New("the database URL cannot be parsed")
	}
	config.MaxConns = maxConns
	config.MinConns = 0
	config.ConnConfig.RuntimeParams["application_name"] = "maestro-server"
	connectTo(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection pool: %w", err)
	}
	return &Store{pool: pool}, nil
}

// connectTo has connections notice when an end of theirs has vanished, and be to a primary: a replica that vanished with its
// machine must not keep its consumers for as long as the server takes it to be alive. What the URL says goes before.
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

// Close ends every connection.
func (s *Store) Close() { s.pool.Close() }

// Ping asks the database for an answer.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Pool gives the pool to tests and measurements.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Migrate brings the schema up to date. Replicas that start together wait for one another.
func (s *Store) Migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	sort.Strings(files)
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return fmt.Errorf("wait for other migrations: %w", err)
		}
		if _, err := tx.Exec(ctx, `create table if not exists migrations (
			name text primary key, applied_at timestamptz not null default now())`); err != nil {
			return fmt.Errorf("create the list of migrations: %w", err)
		}
		rows, err := tx.Query(ctx, `select name from migrations`)
		if err != nil {
			return fmt.Errorf("read the list of migrations: %w", err)
		}
		applied, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("read the list of migrations: %w", err)
		}
		known := map[string]bool{}
		for _, name := range applied {
			known[name] = true
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
			if known[name] {
				delete(known, name)
				continue
			}
			sql, err := migrations.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(sql)); err != nil {
				return fmt.Errorf("migration %s: %w", name, err)
			}
			if _, err := tx.Exec(ctx, `insert into migrations (name) values ($1)`, name); err != nil {
				return fmt.Errorf("record migration %s: %w", name, err)
			}
		}
		return nil
	})
}

// ContentHash identifies what a source wants: the bundle, and of the metadata what the source decides on. Two requests
// with the same hash want the same, however their JSON is written.
func ContentHash(r *resource.Resource) ([]byte, error) {
	h := sha256.New()
	metadata := metav1.ObjectMeta{}
	if len(r.Metadata) > 0 {
		if err := json.Unmarshal(r.Metadata, &metadata); err != nil {
			return nil, resource.Errorf(resource.Malformed, "the metadata: %v", err)
		}
	}
	if err := json.NewEncoder(h).Encode([]any{metadata.Name, metadata.Namespace, metadata.Labels, metadata.Annotations}); err != nil {
		return nil, fmt.Errorf("hash the metadata: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(r.Spec)))
	decoder.UseNumber()
	var spec any
	if err := decoder.Decode(&spec); err != nil {
		return nil, resource.Errorf(resource.Malformed, "the bundle: %v", err)
	}
	if err := json.NewEncoder(h).Encode(spec); err != nil {
		return nil, fmt.Errorf("hash the bundle: %w", err)
	}
	return h.Sum(nil), nil
}

// pgCode is the SQLSTATE of an error from the database, empty for any other.
func pgCode(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
	restrictViolation   = "23001"
	untranslatableChar  = "22P05"
)
