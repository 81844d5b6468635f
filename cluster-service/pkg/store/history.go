package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// revisioned are the tables with revisions.
var revisioned = []string{"clusters", "node_pools", "external_auths", "break_glass_credentials", "break_glass_revocations", "upgrades"}

// foreign is an SQL condition on the revision clock: the revisions belong to another run of the database server or to
// another database. A restored database, and a server that lost its last commits, is a new run or a copy. Most other new
// runs are restarts that lost nothing.
const foreign = "(server_started IS DISTINCT FROM pg_postmaster_start_time() OR database_oid IS DISTINCT FROM " + thisDatabase + ")"

const thisDatabase = "(SELECT oid FROM pg_database WHERE datname = current_database())"

// RestartRevisions starts a new history of revisions if the current ones belong to another run of the database server, or
// are lower than a revision that a watcher saw. All resources then count as changed, at revisions that were never used, and
// watches that began earlier must list first.
//
// Otherwise changes after a restore would have revisions that watchers already passed, and would count as older than the
// changes that were lost. New revisions start at the current time in microseconds, which is more than were ever used.
func (s *Store) RestartRevisions(ctx context.Context, seen int64) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var revision int64
		rows, err := tx.Query(ctx, `UPDATE revision_clock SET server_started = pg_postmaster_start_time(), database_oid = `+thisDatabase+`,
				revision = greatest(revision + 1, $1::bigint + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
			WHERE `+foreign+` OR revision < $1 RETURNING revision`, seen)
		if err != nil {
			return err
		}
		began, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(began) == 0 {
			return err // somebody else has done so
		}
		revision = began[0]
		for _, table := range revisioned {
			tag, err := tx.Exec(ctx, fmt.Sprintf(`WITH numbered AS (SELECT uid, row_number() OVER (ORDER BY revision) AS number FROM %[1]s)
				UPDATE %[1]s SET revision = $1 + numbered.number FROM numbered WHERE %[1]s.uid = numbered.uid`, table), revision)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			revision += tag.RowsAffected()
		}
		_, err = tx.Exec(ctx, "UPDATE revision_clock SET revision = $1, began = $2", revision, began[0])
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT pg_notify($1, $2::text)", Channel, fmt.Sprint(revision))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("restarting the revisions: %w", err)
	}
	return nil
}
