package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// revisioned are the tables whose rows have revisions.
var revisioned = []string{"clusters", "node_pools", "external_auths", "break_glass_credentials", "break_glass_revocations", "upgrades"}

// foreign says, in a query of the revision clock, that the revisions are of another run of the database server than this, or of
// another database: one that was restored, or that lost its last commits, is a new run or a copy, and most others are restarts
// that lost nothing.
const foreign = "(server_started IS DISTINCT FROM pg_postmaster_start_time() OR database_oid IS DISTINCT FROM " + thisDatabase + ")"

const thisDatabase = "(SELECT oid FROM pg_database WHERE datname = current_database())"

// RestartRevisions begins the revisions anew if they are of another run of the database server, or lower than one that was seen: from
// then on every resource counts as changed, at revisions that were never given before, and watches that began earlier have
// to list first. Without it, changes after a restoration would have revisions that watchers have passed, and reports of them
// would count as older than those of what was lost. Revisions leap to the time in microseconds: more than were ever given.
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
		return fmt.Errorf("beginning the revisions anew: %w", err)
	}
	return nil
}
