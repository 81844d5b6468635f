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

// Store is a pool of connections to Maestro's database.
type Store struct {
	pool *pgxpool.Pool
	log  *slog.Logger
}

// Open returns a store with a pool of connections to the database of a URL. It does not connect, so it succeeds while the
// database is unreachable.
func Open(ctx context.Context, url string, maxConnections int32, log *slog.Logger) (*Store, error) {
	pool, err := postgres.Open(ctx, postgres.Options{URL: url, Application: "maestro-server", MaxConnections: maxConnections})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, log: log}, nil
}

// Close ends every connection.
func (s *Store) Close() { s.pool.Close() }

// Ping asks the database for an answer.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Pool gives the pool to tests and measurements.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Migrate brings the schema up to date. Replicas that start together do so one after the other.
func (s *Store) Migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	return postgres.Migrate(ctx, s.pool, files, s.log)
}

// ContentHash identifies what a source wants: the bundle, and of the metadata what the source decides on. Two requests
// with the same hash want the same, however their JSON is written.
func ContentHash(r *resource.Resource) ([]byte, error) {
	h := sha256.New()
	metadata := metav1.ObjectMeta{}
	if len(r.Metadata) > 0 {
		if err := json.Unmarshal(r.Metadata, &metadata); err != nil {
			return nil, resource.Errorf(maestroapi.ReasonMalformed, "the metadata: %v", err)
		}
	}
	if err := json.NewEncoder(h).Encode([]any{metadata.Name, metadata.Namespace, metadata.Labels, metadata.Annotations}); err != nil {
		return nil, fmt.Errorf("hash the metadata: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(r.Spec)))
	decoder.UseNumber()
	var spec any
	if err := decoder.Decode(&spec); err != nil {
		return nil, resource.Errorf(maestroapi.ReasonMalformed, "the bundle: %v", err)
	}
	if err := json.NewEncoder(h).Encode(spec); err != nil {
		return nil, fmt.Errorf("hash the bundle: %w", err)
	}
	return h.Sum(nil), nil
}
