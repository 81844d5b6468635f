package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// versionTable is the table in which goose records the applied migrations.
const versionTable = goose.DefaultTablename

// grantLock is the advisory lock of the transaction that grants rights: PostgreSQL does not serialize concurrent grants, but fails.
const grantLock = 0x6863706d67

// undefinedTable is the SQLSTATE of a query of a table that does not exist.
const undefinedTable = "42P01"

// OutdatedError reports that a database lacks migrations that the program needs.
type OutdatedError struct {
	// Version is the newest migration of the database, 0 for none; Needed is that of the program.
	Version, Needed int64
}

// Error returns the two versions and what has to be done.
func (e *OutdatedError) Error() string {
	return fmt.Sprintf("the schema of the database has version %d, and this program needs %d: run its command migrate", e.Version, e.Needed)
}

// IsOutdated reports whether err is due to a database without the newest migrations, so that the same request may succeed later.
func IsOutdated(err error) bool {
	_, outdated := errors.AsType[*OutdatedError](err)
	return outdated
}

// CheckMigrated returns an OutdatedError unless the database has the newest of the migrations. It changes nothing, and needs only the
// right to read.
func CheckMigrated(ctx context.Context, pool *pgxpool.Pool, migrations fs.FS) error {
	needed, err := newestMigration(migrations)
	if err != nil {
		return err
	}
	var version int64
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&version)
	if err != nil && Code(err) != undefinedTable {
		return fmt.Errorf("reading the version of the schema: %w", err)
	}
	if version < needed {
		return &OutdatedError{Version: version, Needed: needed}
	}
	return nil
}

func newestMigration(migrations fs.FS) (int64, error) {
	files, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, file := range files {
		number, err := goose.NumericComponent(path.Base(file))
		if err != nil {
			return 0, fmt.Errorf("reading the migrations: %s: %w", file, err)
		}
		newest = max(newest, number)
	}
	return newest, nil
}

// Grant lets a role read and change the rows of all tables, and use all sequences, of a database whose owner calls it. The role can
// neither create, change nor empty a table, and cannot change the record of migrations.
func Grant(ctx context.Context, pool *pgxpool.Pool, role string) error {
	name := pgx.Identifier{role}.Sanitize()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(grantLock)); err != nil {
			return err
		}
		for _, statement := range []string{
			"GRANT USAGE ON SCHEMA public TO " + name,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + name,
			"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + name,
			"REVOKE INSERT, UPDATE, DELETE ON " + versionTable + " FROM " + name,
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("granting rights to the role %s: %w", role, err)
	}
	return nil
}
