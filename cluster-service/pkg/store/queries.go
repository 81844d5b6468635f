package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// ErrUnknown is returned for a UID that is not stored.
var ErrUnknown = errors.New("unknown uid")

// Cluster returns a cluster.
func (s *Store) Cluster(ctx context.Context, uid string) (*fleet.Cluster, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+clusterColumns+" FROM clusters WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading a cluster: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanCluster))
}

// NodePool returns a node pool.
func (s *Store) NodePool(ctx context.Context, uid string) (*fleet.NodePool, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+poolColumns+" FROM node_pools WHERE uid = $1", uid)
	if err != nil {
		return nil, fmt.Errorf("reading a node pool: %w", err)
	}
	return unknown(pgx.CollectExactlyOneRow(rows, scanPool))
}

func unknown[T any](row *T, err error) (*T, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrUnknown
	}
	return row, err
}

// Filter selects rows for a list.
type Filter struct {
	// After is the UID after which the page begins.
	After string
	Limit int
	// Phases are the selected phases or states. Empty selects all rows that are not gone, or all rows with Records.
	Phases  []int16
	Records bool
	// Shard, UIDs and Identifiers select clusters. ClusterUID selects children of a cluster.
	Shard, ClusterUID string
	UIDs              []string
	// Version selects clusters by their release: a full version, or its first two parts.
	Version     string
	Identifiers Identifiers
}

// ListClusters returns a page of clusters and the revision up to which the page is complete.
func (s *Store) ListClusters(ctx context.Context, f Filter) ([]*fleet.Cluster, int64, error) {
	query, args := clustersQuery(f)
	return list(ctx, s, query, args, scanCluster)
}

// clustersQuery first finds the UIDs by the identifiers, the version or the phases, if there are any, and then each cluster by its UID.
// OFFSET 0 keeps PostgreSQL from scanning all clusters instead, which it estimates to be cheaper for a small fleet.
func clustersQuery(f Filter) (string, []any) {
	w := where(f, "shard", f.Shard)
	if len(f.UIDs) > 0 {
		w.add("uid = ANY ($%d)", f.UIDs)
	}
	var table string
	var choose func()
	switch {
	case f.Identifiers != (Identifiers{}):
		if f.Version != "" {
			w.add(versionCondition("release_version"), f.Version)
		}
		table, choose = "cluster_identifiers", func() { f.Identifiers.where(func(condition, arg string) { w.add(condition, arg) }) }
	case f.Version != "":
		table, choose = "cluster_filters", func() { w.add(versionColumn(f.Version)+" = $%d", f.Version) }
	case len(f.Phases) == 1: // rows of one phase are in order of UID
		table, choose = "cluster_filters", func() { w.add("phase = $%d", f.Phases[0]) }
	case len(f.Phases) > 1:
		table, choose = "cluster_filters", func() { w.add("phase = ANY ($%d)", f.Phases) }
	default:
		return w.query("clusters", clusterColumns, f.Limit)
	}
	w.conditions = append(w.conditions, "uid = cluster_uid")
	each := fmt.Sprintf("SELECT %s FROM clusters WHERE %s OFFSET 0", clusterColumns, strings.Join(w.conditions, " AND "))
	w.conditions = nil
	choose()
	if f.After != "" {
		w.add("cluster_uid > $%d", f.After)
	}
	chosen, limited := strings.Join(w.conditions, " AND "), w.arg("LIMIT $%d", f.Limit)
	return fmt.Sprintf("SELECT found.* FROM %s CROSS JOIN LATERAL (%s) found WHERE %s ORDER BY cluster_uid %s", table, each, chosen, limited), w.args
}

// versionColumn returns the column of cluster_filters that a version is compared with.
func versionColumn(version string) string {
	if strings.Count(version, ".") == 1 {
		return "minor"
	}
	return "version"
}

// versionCondition returns the condition, with a %d, that a column is a version or begins with its parts.
func versionCondition(column string) string {
	return "(" + column + " = $%[1]d OR starts_with(" + column + ", $%[1]d || '.'))"
}

// ListNodePools returns a page of node pools and the revision up to which the page is complete.
func (s *Store) ListNodePools(ctx context.Context, f Filter) ([]*fleet.NodePool, int64, error) {
	query, args := where(f, "cluster_uid", f.ClusterUID).query("node_pools", poolColumns, f.Limit)
	return list(ctx, s, query, args, scanPool)
}

// conditions are the conditions of a query with their arguments.
type conditions struct {
	conditions []string
	args       []any
}

// arg returns a condition with the number of its argument.
func (w *conditions) arg(condition string, arg any) string {
	w.args = append(w.args, arg)
	return fmt.Sprintf(condition, len(w.args))
}

func (w *conditions) add(condition string, arg any) {
	w.conditions = append(w.conditions, w.arg(condition, arg))
}

// where returns the conditions of a filter for a table, and for one column if value is not empty.
func where(f Filter, column, value string) *conditions {
	w := &conditions{}
	if f.After != "" {
		w.add("uid > $%d", f.After)
	}
	switch {
	case len(f.Phases) > 0 && f.Records:
		w.add("state = ANY ($%d)", f.Phases)
	case len(f.Phases) > 0:
		w.add("phase = ANY ($%d)", f.Phases)
	case f.Records:
		w.conditions = append(w.conditions, "true")
	default:
		w.conditions = append(w.conditions, "gone_time IS NULL")
	}
	if value != "" {
		w.add(column+" = $%d", value)
	}
	return w
}

// query returns the query for a page of a table in order of UID.
func (w *conditions) query(table, columns string, limit int) (string, []any) {
	conditions := strings.Join(w.conditions, " AND ")
	limited := w.arg("LIMIT $%d", limit)
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s.uid %s", columns, table, conditions, table, limited), w.args
}

func list[T any](ctx context.Context, s *Store, query string, args []any, scan pgx.RowToFunc[*T]) (rows []*T, revision int64, err error) {
	batch := &pgx.Batch{}
	// The revision is read before the rows. A change that a row misses has a later revision.
	batch.Queue("SELECT revision FROM revision_clock").QueryRow(func(row pgx.Row) error { return row.Scan(&revision) })
	batch.Queue(query, args...).Query(func(r pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(r, scan)
		return err
	})
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, fmt.Errorf("listing: %w", err)
	}
	return rows, revision, nil
}

// Change is the newest state of one resource. Exactly one field is set besides the revision.
type Change struct {
	Revision     int64
	Cluster      *fleet.Cluster
	NodePool     *fleet.NodePool
	ExternalAuth *fleet.ExternalAuth
	Credential   *fleet.Credential
	Revocation   *fleet.Revocation
	Upgrade      *fleet.Upgrade
}

// UID returns the UID of the resource.
func (c Change) UID() string {
	switch {
	case c.Cluster != nil:
		return c.Cluster.UID
	case c.NodePool != nil:
		return c.NodePool.UID
	case c.ExternalAuth != nil:
		return c.ExternalAuth.UID
	case c.Credential != nil:
		return c.Credential.UID
	case c.Revocation != nil:
		return c.Revocation.UID
	case c.Upgrade != nil:
		return c.Upgrade.UID
	}
	return ""
}

// Clock is the state of the revision clock.
type Clock struct {
	// Revision is the newest revision.
	Revision int64
	// Compacted is the revision up to which tombstones may have been removed.
	Compacted int64
	// RestartedAt is the revision at which the current history began. Earlier revisions may belong to changes that were
	// lost.
	RestartedAt int64
}

// clockColumns are the columns of a Clock, and whether its revisions must be restarted.
const clockColumns = "revision, compacted, began, " + foreign

// selectChanges reads the revision clock and then at most $2 rows of each table that changed after revision $1: the kind of the
// row, its revision, and its columns as a record. It is one statement, so that all rows are of one snapshot. The first $2 rows of all
// tables together are among the first $2 rows of each table.
const (
	selectChanges = "SELECT 0, revision, ROW (" + clockColumns + ") FROM revision_clock" +
		" UNION ALL (SELECT 1, revision, ROW (" + clusterColumns + ") FROM clusters" + sinceRevision +
		" UNION ALL (SELECT 2, revision, ROW (" + poolColumns + ") FROM node_pools" + sinceRevision +
		" UNION ALL (SELECT 3, revision, ROW (" + authColumns + ") FROM external_auths" + sinceRevision +
		" UNION ALL (SELECT 4, revision, ROW (" + credentialColumns + ") FROM break_glass_credentials" + sinceRevision +
		" UNION ALL (SELECT 5, revision, ROW (" + revocationColumns + ") FROM break_glass_revocations" + sinceRevision +
		" UNION ALL (SELECT 6, revision, ROW (" + upgradeColumns + ") FROM upgrades" + sinceRevision
	sinceRevision = " WHERE revision > $1 ORDER BY revision LIMIT $2)"
)

// Changes returns at most limit resources that changed after a revision, in order of revision, from one snapshot. Nothing
// else changed up to the last revision that it returns, or up to the revision of the clock if it returns fewer than limit.
func (s *Store) Changes(ctx context.Context, after int64, limit int) (changes []Change, clock Clock, err error) {
	rows, err := s.pool.Query(ctx, selectChanges, after, limit)
	if err != nil {
		return nil, Clock{}, fmt.Errorf("reading changes: %w", err)
	}
	defer rows.Close()
	isForeign := false
	for rows.Next() {
		var part int
		var change Change
		if err := rows.Scan(&part, &change.Revision, nil); err != nil {
			return nil, Clock{}, fmt.Errorf("reading changes: %w", err)
		}
		if part == 0 {
			err = record{rows}.Scan(&clock.Revision, &clock.Compacted, &clock.RestartedAt, &isForeign)
		} else {
			err = change.scan(part, record{rows})
			changes = append(changes, change)
		}
		if err != nil {
			return nil, Clock{}, fmt.Errorf("reading changes: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, Clock{}, fmt.Errorf("reading changes: %w", err)
	}
	if isForeign {
		if err := s.RestartRevisions(ctx, 0); err != nil {
			return nil, Clock{}, err
		}
		return s.Changes(ctx, after, limit)
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Revision, b.Revision) })
	return changes[:min(limit, len(changes))], clock, nil
}

// scan reads the record of a row of selectChanges.
func (c *Change) scan(part int, row record) (err error) {
	switch part {
	case 1:
		c.Cluster, err = scanCluster(row)
	case 2:
		c.NodePool, err = scanPool(row)
	case 3:
		c.ExternalAuth, err = scanAuth(row)
	case 4:
		c.Credential, err = scanCredential(row)
	case 5:
		c.Revocation, err = scanRevocation(row)
	case 6:
		c.Upgrade, err = scanUpgrade(row)
	}
	return err
}

// Clock returns the state of the revision clock.
func (s *Store) Clock(ctx context.Context) (clock Clock, err error) {
	isForeign := false
	err = s.pool.QueryRow(ctx, "SELECT "+clockColumns+" FROM revision_clock").Scan(&clock.Revision, &clock.Compacted, &clock.RestartedAt, &isForeign)
	if err == nil && isForeign {
		if err = s.RestartRevisions(ctx, 0); err == nil {
			return s.Clock(ctx)
		}
	}
	return clock, err
}

// AcquireDueWorks acquires the lease of works that are due and returns their clusters.
func (s *Store) AcquireDueWorks(ctx context.Context, limit int) ([]string, error) {
	now := s.Now()
	rows, err := s.pool.Query(ctx, `WITH taken AS (
			UPDATE works SET due_time = $2 WHERE id IN (
				SELECT id FROM works WHERE due_time <= $1 ORDER BY due_time LIMIT $3 FOR UPDATE SKIP LOCKED)
			RETURNING cluster_uid)
		SELECT DISTINCT cluster_uid::text FROM taken`, now, now.Add(s.lease), limit)
	if err != nil {
		return nil, fmt.Errorf("taking due works: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// RetryFailedWorks makes all works due whose publishing failed, because the cause may be gone.
func (s *Store) RetryFailedWorks(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, "UPDATE works SET due_time = $1 WHERE error <> '' AND due_time > $1", s.Now()); err != nil {
		return fmt.Errorf("making works due: %w", err)
	}
	return nil
}

// PlacedClusters returns a page of the UIDs of clusters that have a shard and are not being deleted, in order of UID after
// a given one.
func (s *Store) PlacedClusters(ctx context.Context, after string, limit int) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT uid::text FROM clusters WHERE shard IS NOT NULL AND delete_time IS NULL AND gone_time IS NULL
		AND ($1::uuid IS NULL OR uid > $1::uuid) ORDER BY uid LIMIT $2`, null(after), limit)
	if err != nil {
		return nil, fmt.Errorf("listing placed clusters: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// SigningKeys returns a page of the sealed signing keys of clusters, by UID, in order of UID after a given one. last is the UID of the
// last cluster of the page; it is empty after the last page.
func (s *Store) SigningKeys(ctx context.Context, after string, limit int) (keys map[string][]byte, last string, err error) {
	rows, err := s.pool.Query(ctx, `SELECT uid::text, signing_key FROM clusters WHERE $1::uuid IS NULL OR uid > $1::uuid ORDER BY uid LIMIT $2`, null(after), limit)
	if err != nil {
		return nil, "", fmt.Errorf("listing signing keys: %w", err)
	}
	keys = map[string][]byte{}
	var uid string
	var key []byte
	_, err = pgx.ForEachRow(rows, []any{&uid, &key}, func() error {
		last = uid
		if key != nil {
			keys[uid] = slices.Clone(key)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("listing signing keys: %w", err)
	}
	return keys, last, nil
}

// WorkRef is the part of a work that is read without its aggregate.
type WorkRef struct {
	ID, ClusterUID, Shard, StatusHash, Sequence string
	Published                                   int64
	Deleting                                    bool
}

// Works returns works by ID. It omits unknown ones.
func (s *Store) Works(ctx context.Context, ids []string) (map[string]WorkRef, error) {
	rows, err := s.pool.Query(ctx, "SELECT id::text, cluster_uid::text, shard, status_hash, sequence, published, delete_time IS NOT NULL FROM works WHERE id = ANY ($1)", ids)
	if err != nil {
		return nil, fmt.Errorf("finding works: %w", err)
	}
	return workRefs(rows)
}

// AllWorks returns all works.
func (s *Store) AllWorks(ctx context.Context) (map[string]WorkRef, error) {
	rows, err := s.pool.Query(ctx, "SELECT id::text, cluster_uid::text, shard, status_hash, sequence, published, delete_time IS NOT NULL FROM works")
	if err != nil {
		return nil, fmt.Errorf("listing works: %w", err)
	}
	return workRefs(rows)
}

func workRefs(rows pgx.Rows) (map[string]WorkRef, error) {
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (WorkRef, error) {
		var w WorkRef
		err := row.Scan(&w.ID, &w.ClusterUID, &w.Shard, &w.StatusHash, &w.Sequence, &w.Published, &w.Deleting)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading works: %w", err)
	}
	works := make(map[string]WorkRef, len(list))
	for _, w := range list {
		works[w.ID] = w
	}
	return works, nil
}

// purgePage is the number of tombstones in one transaction. Each commit holds the revision clock, which every other commit
// waits for.
const purgePage = 200

// Purge deletes tombstones that were complete before a time, a page in each transaction, and stores the revision up to
// which a watcher can no longer see them. It skips rows that another transaction has locked.
func (s *Store) Purge(ctx context.Context, before time.Time) error {
	for _, table := range []string{"upgrades", "break_glass_revocations", "break_glass_credentials", "external_auths", "node_pools", "clusters"} {
		// The rows are deleted before the revision clock is locked.
		if err := s.purge(ctx, fmt.Sprintf(`WITH removed AS (DELETE FROM %[1]s WHERE uid IN
				(SELECT uid FROM %[1]s WHERE gone_time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING revision),
			compacted AS (UPDATE revision_clock SET compacted = greatest(compacted, (SELECT max(revision) FROM removed)) WHERE EXISTS (SELECT FROM removed))
			SELECT count(*) FROM removed`, table), before); err != nil {
			return fmt.Errorf("removing tombstones of %s: %w", table, err)
		}
	}
	for table, removal := range map[string]string{
		"done_calls": `WITH removed AS (DELETE FROM done_calls WHERE id IN (SELECT id FROM done_calls WHERE time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id)
			SELECT count(*) FROM removed`,
		"deletion_leftovers": `WITH removed AS (DELETE FROM deletion_leftovers WHERE work_id IN
			(SELECT work_id FROM deletion_leftovers WHERE gone_time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING work_id) SELECT count(*) FROM removed`,
	} {
		if err := s.purge(ctx, removal, before); err != nil {
			return fmt.Errorf("removing what is old of %s: %w", table, err)
		}
	}
	if err := s.purge(ctx, `WITH removed AS (DELETE FROM removed_works WHERE id IN
			(SELECT id FROM removed_works WHERE time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id) SELECT count(*) FROM removed`, before.Add(-removedKept)); err != nil {
		return fmt.Errorf("forgetting removed works: %w", err)
	}
	if err := s.purge(ctx, `WITH removed AS (DELETE FROM cluster_changes WHERE (cluster_uid, sequence) IN
			(SELECT cluster_uid, sequence FROM cluster_changes WHERE time < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING sequence)
			SELECT count(*) FROM removed`, before.Add(-changesKept)); err != nil {
		return fmt.Errorf("removing old changes of clusters: %w", err)
	}
	// A replica of an earlier release may run at the same time and write clusters without identifiers.
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return identify(ctx, tx) })
}

// purge deletes pages until none is left.
func (s *Store) purge(ctx context.Context, query string, before time.Time) error {
	for {
		var removed int
		if err := s.pool.QueryRow(ctx, query, before, purgePage).Scan(&removed); err != nil {
			return err
		}
		if removed < purgePage {
			return nil
		}
	}
}
