// Package store stores Maestro's consumers, resources and deliveries in PostgreSQL. It contains all SQL, also that of the
// search expressions of the REST API. A change of a resource commits together with the delivery that it causes, and a status
// together with the delivery that it confirms. Methods block on the database only. A change names the version that it is
// based on, or explicitly means the newest.
//
// To avoid deadlocks, a transaction locks a resource before its delivery, and several resources in the order of their IDs.
// A foreign key locks the referenced row too, but with the weak "for key share": a delivery is inserted only after its resource was
// locked with "for no key update" or a stronger lock.
package store

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store accesses Maestro's database through a pool of connections.
type Store struct {
	pool *pgxpool.Pool
	log  *slog.Logger
}

// Open returns a store with a pool of connections to the database of a URL. It does not connect, so it succeeds while the
// database is unreachable.
func Open(ctx context.Context, url string, authentication postgres.Authentication, maxConnections int32, log *slog.Logger) (*Store, error) {
	pool, err := postgres.Open(ctx, postgres.Options{URL: url, Application: "maestro-server", MaxConnections: maxConnections, Authentication: authentication})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, log: log}, nil
}

// Close closes all connections.
func (s *Store) Close() { s.pool.Close() }

// Ping checks that the database responds and that its disk is not full.
func (s *Store) Ping(ctx context.Context) error { return postgres.Ping(ctx, s.pool) }

// Pool returns the pool, for tests and benchmarks.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Migrations returns the files of the migrations.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return files
}

// Migrate brings the schema up to date, which only the owner of the database can. Replicas that start together do so one after the
// other.
func (s *Store) Migrate(ctx context.Context) error {
	return postgres.Migrate(ctx, s.pool, Migrations(), s.log)
}

// CheckMigrated returns a postgres.OutdatedError unless the schema is up to date.
func (s *Store) CheckMigrated(ctx context.Context) error {
	return postgres.CheckMigrated(ctx, s.pool, Migrations())
}

// ContentHash returns a hash of the desired state: the bundle, and the fields of the metadata that the source sets. Requests with
// the same hash have the same content, independent of the form of their JSON.
func ContentHash(r *resource.Resource) ([]byte, error) {
	h := sha256.New()
	metadata := metav1.ObjectMeta{}
	if len(r.Metadata) > 0 {
		if err := json.Unmarshal(r.Metadata, &metadata); err != nil {
			return nil, resource.Errorf(maestroapi.ReasonMalformed, "metadata: %v", err)
		}
	}
	if err := json.NewEncoder(h).Encode([]any{metadata.Name, metadata.Namespace, metadata.Labels, metadata.Annotations}); err != nil {
		return nil, fmt.Errorf("hashing the metadata: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(r.Spec)))
	decoder.UseNumber()
	var spec any
	if err := decoder.Decode(&spec); err != nil {
		return nil, resource.Errorf(maestroapi.ReasonMalformed, "bundle: %v", err)
	}
	if err := json.NewEncoder(h).Encode(spec); err != nil {
		return nil, fmt.Errorf("hashing the bundle: %w", err)
	}
	return h.Sum(nil), nil
}
