package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// A replica polls every migrationLockSeconds for the lock that another one holds while it migrates, and gives up after
// migrationLockPolls.
const (
	migrationLockSeconds = 1
	migrationLockPolls   = 300
)

// Migrate applies the migrations that a database does not have yet, in order of their numbers, each in a transaction of its
// own. The files are named NNNN_name.sql and carry the annotations of goose. One replica migrates at a time; the others wait
// and then find nothing to do.
//
// A released migration must never change, because a database that has it does not apply it again. A database may be newer
// than the program: during a rollout, replicas of the release before restart on the new schema.
func Migrate(ctx context.Context, pool *pgxpool.Pool, migrations fs.FS, log *slog.Logger) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(migrationLockSeconds, migrationLockPolls))
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	applied, err := provider.Up(ctx)
	partial, failed := errors.AsType[*goose.PartialError](err)
	if failed {
		applied = partial.Applied
	}
	for _, migration := range applied {
		log.InfoContext(ctx, "database migrated", logkey.Migration, migration.Source.Path, logkey.Duration, migration.Duration.String())
	}
	if failed {
		return fmt.Errorf("applying migration %s: %w", partial.Failed.Source.Path, partial.Err)
	}
	if err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	version, newest, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading the version of the schema: %w", err)
	}
	if version > newest {
		log.InfoContext(ctx, "database schema is newer than this program", logkey.Version, version)
	}
	return nil
}
