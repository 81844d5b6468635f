package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

const (
	clusterColumns    = "uid::text, resource_id, generation, spec, status, coalesce(shard, ''), release_version, release_image, signing_key, revision, create_time, delete_time, gone_time, overrides, trace, accepted"
	poolColumns       = "uid::text, cluster_uid::text, resource_id, generation, spec, status, release_version, release_image, revision, create_time, delete_time, gone_time, trace, accepted"
	authColumns       = "uid::text, cluster_uid::text, resource_id, generation, spec, status, revision, create_time, delete_time, gone_time, accepted"
	credentialColumns = "uid::text, cluster_uid::text, spec, status, revision, create_time, gone_time"
	revocationColumns = "uid::text, cluster_uid::text, class, requester, reason, status, revision, create_time, gone_time, elevation"
	workColumns       = "id::text, cluster_uid::text, coalesce(owner_uid::text, ''), kind, name, shard, desired, published, digest, generation, delete_time, delete_published, maestro_version, sequence, status_hash, observed, attempts, due_time, error, refused, delete_asks, release_finalizers"

	// The rows of unnest are in the order of the array, and so are the locks.
	lockAggregates = "SELECT pg_advisory_xact_lock(hashtextextended(uid, 0)) FROM unnest($1::text[]) AS uid"

	// There may be many records, and they are stored for days. A request that finds no record of a UID before it locks the
	// aggregate must find one that ended in the meantime. So the records that ended in the last hour belong to the
	// aggregate.
	recent = " WHERE cluster_uid = $1 AND (gone_time IS NULL OR gone_time > $2"
	// selectAggregate reads the rows of an aggregate: the kind of the row, and its columns as a record. It is one statement, because
	// reading most of these tables costs less than a statement. It reads one aggregate, because PostgreSQL plans a statement with an
	// array of UIDs at each execution: it assumes that arrays are long, and so that a plan for any array is worse.
	selectAggregate = "SELECT part, content FROM (" +
		"SELECT 1 AS part, 0 AS kind, '' AS name, ROW (" + clusterColumns + ") AS content FROM clusters WHERE uid = $1" +
		" UNION ALL SELECT 2, 0, uid::text, ROW (" + poolColumns + ") FROM node_pools WHERE cluster_uid = $1" +
		" UNION ALL SELECT 3, 0, uid::text, ROW (" + authColumns + ") FROM external_auths WHERE cluster_uid = $1" +
		// A credential that was revoked alone prevents others until its elevation ends, also as a record.
		" UNION ALL SELECT 4, 0, uid::text, ROW (" + credentialColumns + ") FROM break_glass_credentials" + recent + " OR expire_time > $3)" +
		" UNION ALL SELECT 5, 0, uid::text, ROW (" + revocationColumns + ") FROM break_glass_revocations" + recent + ")" +
		" UNION ALL SELECT 6, 0, '', ROW (state) FROM azure_resources WHERE cluster_uid = $1" +
		" UNION ALL SELECT 7, 0, uid::text, ROW (" + upgradeColumns + ") FROM upgrades" + recent + ")" +
		" UNION ALL SELECT 8, kind, name, ROW (" + workColumns + ") FROM works WHERE cluster_uid = $1" +
		") AS parts ORDER BY part, kind, name"
)

// Tx is a transaction over locked cluster aggregates.
type Tx struct {
	conn  *pgxpool.Conn
	store *Store
	// Aggregates are the locked aggregates, by cluster UID.
	Aggregates map[string]*fleet.ClusterAggregate
	before     map[string]*fleet.ClusterAggregate

	// shards are locked after the first placement. taken counts the places that the transaction took on each shard, and
	// placings are its decisions.
	shards    []Shard
	taken     map[string]int32
	placings  []placing
	overrides []func(batch *pgx.Batch)
}

// Update locks and reads the aggregates of clusters, calls change to modify them, and writes the differences, all in one
// transaction. After the commit it publishes the event of the transaction. If the database reports a serialization failure,
// Update calls change again on freshly read aggregates. It deletes the rows of works that change removed, and frees the
// place of a cluster that became a tombstone.
//
// If ctx has an action that is audited (audit.WithAction), Update waits before the commit until its beginning is durable.
func (s *Store) Update(ctx context.Context, clusterUIDs []string, change func(ctx context.Context, tx *Tx) error) error {
	uids := slices.Clone(clusterUIDs)
	slices.Sort(uids)
	uids = slices.Compact(uids)
	for attempt := 1; ; attempt++ {
		event, err := s.update(ctx, uids, change)
		if attempt < maxAttempts && isSerialization(err) {
			continue
		}
		if err != nil {
			return err
		}
		s.publish(ctx, *event)
		return s.fault("after-commit")
	}
}

// rollbackTimeout bounds a rollback.
const rollbackTimeout = 5 * time.Second

// maxAttempts bounds the attempts of a transaction that the database aborts because of a deadlock.
const maxAttempts = 5

func isSerialization(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

func (s *Store) update(ctx context.Context, uids []string, change func(ctx context.Context, tx *Tx) error) (event *Event, err error) {
	if err := s.fault("before-begin"); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	defer conn.Release()
	committed := false
	defer func() {
		if !committed {
			// A server that does not respond must not block a caller that gave up. After the timeout the connection is
			// closed, which also ends the transaction.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_, _ = conn.Exec(ctx, "ROLLBACK")
		}
	}()
	tx := &Tx{conn: conn, store: s, Aggregates: map[string]*fleet.ClusterAggregate{}, before: map[string]*fleet.ClusterAggregate{}, taken: map[string]int32{}}
	if err := tx.load(ctx, uids); err != nil {
		return nil, err
	}
	done, err := s.noteCall(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := change(ctx, tx); err != nil {
		return nil, err
	}
	event, batch := tx.writes(ctx, uids)
	if err := audit.BeforeEffect(ctx); err != nil {
		return nil, err
	}
	if err := s.fault("before-commit"); err != nil {
		return nil, err
	}
	batch.Queue("COMMIT")
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("writing aggregates: %w", err)
	}
	committed = true
	done()
	return event, nil
}

func (t *Tx) load(ctx context.Context, uids []string) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	// The locks come before the reads: each statement sees what was committed before the statement began.
	batch.Queue(lockAggregates, uids)
	for _, uid := range uids {
		t.Aggregates[uid] = queueAggregate(batch, uid, t.store.Now())
	}
	if err := t.conn.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("reading aggregates: %w", err)
	}
	for uid, aggregate := range t.Aggregates {
		t.before[uid] = aggregate.Clone()
	}
	return nil
}

// queueAggregate queues the reading of an aggregate, and returns what will be the aggregate.
func queueAggregate(batch *pgx.Batch, uid string, now time.Time) *fleet.ClusterAggregate {
	aggregate := &fleet.ClusterAggregate{}
	batch.Queue(selectAggregate, uid, now.Add(-time.Hour), now).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var part int
			if err := rows.Scan(&part, nil); err != nil {
				return err
			}
			if err := addPart(aggregate, part, record{rows}); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return aggregate
}

// addPart adds a row of selectAggregate to its aggregate.
func addPart(a *fleet.ClusterAggregate, part int, row record) (err error) {
	switch part {
	case 1:
		a.Cluster, err = scanCluster(row)
	case 2:
		a.Pools, err = appendRow(a.Pools, row, scanPool)
	case 3:
		a.ExternalAuths, err = appendRow(a.ExternalAuths, row, scanAuth)
	case 4:
		a.Credentials, err = appendRow(a.Credentials, row, scanCredential)
	case 5:
		a.Revocations, err = appendRow(a.Revocations, row, scanRevocation)
	case 6:
		a.Azure, err = scanAzure(row)
	case 7:
		a.Upgrades, err = appendRow(a.Upgrades, row, scanUpgrade)
	case 8:
		a.Works, err = appendRow(a.Works, row, scanWork)
	}
	return err
}

func appendRow[T any](rows []*T, row record, scan pgx.RowToFunc[*T]) ([]*T, error) {
	scanned, err := scan(row)
	return append(rows, scanned), err
}

// record is a row whose last column is a record. Scan reads the columns of the record.
type record struct{ pgx.CollectableRow }

func (r record) Scan(columns ...any) error {
	fields := make([]any, len(r.FieldDescriptions()))
	fields[len(fields)-1] = pgtype.CompositeFields(columns)
	return r.CollectableRow.Scan(fields...)
}

// Read returns a consistent snapshot of an aggregate without locking it.
func (s *Store) Read(ctx context.Context, clusterUID string) (*fleet.ClusterAggregate, error) {
	batch := &pgx.Batch{}
	aggregate := queueAggregate(batch, clusterUID, s.Now())
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("reading an aggregate: %w", err)
	}
	return aggregate, nil
}

// writes queues the writes of all changes, and returns the event of the transaction. All of it is one round trip, and a
// statement of it locks the row of the revision clock. So the next committer waits for no longer than this commit. A resource with a new
// generation, or whose deletion is new, gets the trace of ctx.
func (t *Tx) writes(ctx context.Context, uids []string) (*Event, *pgx.Batch) {
	event, now := &Event{PlacementChanged: len(t.overrides) > 0}, t.store.Now()
	var clusters []*fleet.Cluster
	// changed queues the write of each changed row other than clusters. behind is the distance of the row's revision from
	// the newest one.
	var changed []func(batch *pgx.Batch, behind int64)
	rows := &pgx.Batch{}
	// taken is the change of the number of taken places on each shard.
	taken := maps.Clone(t.taken)
	for _, uid := range uids {
		old, aggregate := t.before[uid], t.Aggregates[uid]
		setTraces(tracing.Recorded(ctx), old, aggregate)
		event.Waits = append(event.Waits, fleet.EndedWaits(old, aggregate, now)...)
		if c := aggregate.Cluster; c != nil && clusterChanged(old.Cluster, c) {
			clusters = append(clusters, c)
			if identifiersChanged(old.Cluster, c) {
				queueIdentifiers(rows, c)
			}
			if c.Gone() && c.Shard != "" && old.Cluster != nil && !old.Cluster.Gone() {
				taken[c.Shard]--
				event.PlacementChanged = true
			}
		}
		if concernChanged(old, aggregate) {
			queueConcern(rows, uid, aggregate.Concern())
		}
		if aggregate.Cluster != nil {
			queueClusterChanges(rows, uid, now, old, aggregate)
			queueRemovals(rows, uid, now, old, aggregate)
		}
		for _, p := range aggregate.Pools {
			if poolChanged(old.Pool(p.UID), p) {
				changed = append(changed, func(batch *pgx.Batch, behind int64) { queuePool(batch, p, behind) })
			}
		}
		changed = append(changed, accessChanges(old, aggregate)...)
		event.Access = append(event.Access, fleet.AccessRecords(old, aggregate)...)
		changed = append(changed, upgradeChanges(old, aggregate)...)
		event.UpgradesChanged = event.UpgradesChanged || wakesUpgrader(old, aggregate)
		if queueDeletion(rows, now, uid, old, aggregate) {
			event.DeletionsUnblocked = true
		}
		if t.queueAzure(rows, uid, now, old, aggregate) {
			event.AzureStepsDue = append(event.AzureStepsDue, uid)
		}
		if t.queueWorks(rows, now, old, aggregate) {
			event.WorksDue = append(event.WorksDue, uid)
		}
	}

	batch := &pgx.Batch{}
	for _, shard := range slices.Sorted(maps.Keys(taken)) {
		batch.Queue("UPDATE provision_shards SET clusters = clusters + $2 WHERE name = $1", shard, taken[shard])
	}
	t.queuePlacings(rows, now)
	for _, queue := range t.overrides {
		queue(rows)
	}
	n := int64(len(clusters) + len(changed))
	if n > 0 {
		batch.Queue("UPDATE revision_clock SET revision = revision + $1 RETURNING revision, pg_notify($2, revision::text)", n, Channel).
			QueryRow(func(row pgx.Row) error { return row.Scan(&event.Revision, nil) })
	}
	// The revision clock holds the newest of the n revisions. behind is the distance of a row's revision from it.
	behind := n
	for _, c := range clusters {
		behind--
		queueCluster(batch, c, behind)
	}
	for _, queue := range changed {
		behind--
		queue(batch, behind)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, rows.QueuedQueries...)
	return event, batch
}

// setTraces sets the trace of the resources of an aggregate that a request changed.
func setTraces(trace string, old, aggregate *fleet.ClusterAggregate) {
	if c, before := aggregate.Cluster, old.Cluster; c != nil && (before == nil || before.Generation != c.Generation || before.Deleting() != c.Deleting()) {
		c.Trace = trace
	}
	for _, p := range aggregate.Pools {
		if before := old.Pool(p.UID); before == nil || before.Generation != p.Generation || before.Deleting() != p.Deleting() {
			p.Trace = trace
		}
	}
}

// queueWorks queues the writes of an aggregate's works. It reports whether a work became due for publishing; the
// transaction acquires the lease of these works.
func (t *Tx) queueWorks(batch *pgx.Batch, now time.Time, old, aggregate *fleet.ClusterAggregate) bool {
	due := false
	for _, w := range aggregate.Works {
		before := old.WorkByID(w.ID)
		drift := aggregate.DriftOf(w)
		if before != nil && *workKey(before) == *workKey(w) && old.DriftOf(before) == drift {
			continue
		}
		switch {
		case !w.Due():
			w.RetryTime = time.Time{}
		case !w.RetryTime.After(now):
			w.RetryTime, due = now.Add(t.store.lease), true
		}
		queueWork(batch, w, drift)
	}
	for _, w := range old.Works {
		if aggregate.WorkByID(w.ID) == nil {
			batch.Queue("DELETE FROM works WHERE id = $1", w.ID)
			queueRemoved(batch, w, now)
		}
	}
	return due
}

func queueCluster(batch *pgx.Batch, c *fleet.Cluster, behind int64) {
	batch.Queue(`INSERT INTO clusters (uid, resource_id, resource_key, generation, spec, status, phase, prefix, shard, release_version,
			release_image, signing_key, create_time, delete_time, gone_time, revision, overrides, trace, accepted)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, (SELECT revision FROM revision_clock) - $16, $17, $18, $19)
		ON CONFLICT (uid) DO UPDATE SET generation = $4, spec = $5, status = $6, phase = $7, prefix = $8, shard = $9, release_version = $10,
			release_image = $11, signing_key = $12, delete_time = $14, gone_time = $15, revision = excluded.revision, overrides = $17, trace = $18, accepted = $19
		RETURNING revision`,
		c.UID, c.ResourceID, strings.ToLower(c.ResourceID), c.Generation, encode(c.RequestedSpec()), encode(c.Status), int16(c.Status.GetPhase()),
		c.Status.GetBaseDomainPrefix(), null(c.Shard), c.Release.Version, c.Release.Image, c.SigningKey, c.CreateTime, nullTime(c.DeleteTime),
		nullTime(c.GoneTime), behind, encode(c.Overrides), c.Trace, encodeUpdate(c.Update, c.Generation)).QueryRow(func(row pgx.Row) error { return row.Scan(&c.Revision) })
}

func queuePool(batch *pgx.Batch, p *fleet.NodePool, behind int64) {
	batch.Queue(`INSERT INTO node_pools (uid, cluster_uid, resource_id, resource_key, generation, spec, status, phase, release_version,
			release_image, create_time, delete_time, gone_time, revision, trace, accepted)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, (SELECT revision FROM revision_clock) - $14, $15, $16)
		ON CONFLICT (uid) DO UPDATE SET generation = $5, spec = $6, status = $7, phase = $8, release_version = $9, release_image = $10,
			delete_time = $12, gone_time = $13, revision = excluded.revision, trace = $15, accepted = $16
		RETURNING revision`,
		p.UID, p.ClusterUID, p.ResourceID, strings.ToLower(p.ResourceID), p.Generation, encode(p.RequestedSpec()), encode(p.Status), int16(p.Status.GetPhase()),
		p.Release.Version, p.Release.Image, p.CreateTime, nullTime(p.DeleteTime), nullTime(p.GoneTime), behind, p.Trace, encodeUpdate(p.Update, p.Generation)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&p.Revision) })
}

func queueWork(batch *pgx.Batch, w *fleet.Work, drift string) {
	observed, _ := json.Marshal(&w.Observed) // a struct of strings and numbers
	batch.Queue(`INSERT INTO works (id, cluster_uid, owner_uid, kind, name, shard, desired, published, digest, generation, delete_time,
			delete_published, maestro_version, sequence, status_hash, observed, attempts, due_time, error, refused, delete_asks, release_finalizers, drift)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
		ON CONFLICT (id) DO UPDATE SET desired = $7, published = $8, digest = $9, generation = $10, delete_time = $11, delete_published = $12,
			maestro_version = $13, sequence = $14, status_hash = $15, observed = $16, attempts = $17, due_time = $18, error = $19, refused = $20,
			delete_asks = $21, release_finalizers = $22, drift = $23`,
		w.ID, w.ClusterUID, null(w.OwnerUID), w.Kind, w.Name, w.Shard, w.Desired, w.Published, w.Digest, w.Generation, nullTime(w.DeleteTime),
		w.DeletePublished, w.Version, w.Sequence, w.StatusHash, observed, w.Attempts, nullTime(w.RetryTime), w.Error, w.Refused, w.DeleteRequests, notNil(w.ReleaseFinalizers), drift)
}

// update is the JSON of a fleet.Update with an accepted desired state. The column spec has the requested spec.
type update struct {
	Generation int64  `json:"generation"`
	Spec       []byte `json:"spec"` // null before the creation of an external authentication
	Version    string `json:"version,omitempty"`
	Image      string `json:"image,omitempty"`
	// Refused is the generation that is refused; 0 if none is. A replica of an earlier release can have stored a newer generation since.
	Refused int64 `json:"refused,omitempty"`
}

// encodeUpdate returns the value of the column accepted. The generation is that of the resource.
func encodeUpdate(u fleet.Update, generation int64) []byte {
	if u.Accepted == nil {
		return nil
	}
	stored := update{Generation: u.Accepted.Generation, Version: u.Accepted.Release.Version, Image: u.Accepted.Release.Image}
	if u.Accepted.Spec != nil {
		stored.Spec = encode(u.Accepted.Spec)
	}
	if u.Refused != nil {
		stored.Refused = generation
	}
	b, _ := json.Marshal(stored) // a struct of strings and numbers
	return b
}

// decodeUpdate sets the update of a resource from the column accepted. Of a refused update, it also sets the spec of the resource, which is the requested one, to
// the accepted one.
func decodeUpdate[S proto.Message](encoded []byte, uid string, generation int64, u *fleet.Update, spec *S) error {
	if encoded == nil {
		return nil
	}
	var stored update
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return fmt.Errorf("decoding the accepted state of %s: %w", uid, err)
	}
	u.Accepted = &fleet.DesiredState{Generation: stored.Generation, Release: fleet.Release{Version: stored.Version, Image: stored.Image}}
	if stored.Refused == generation {
		u.Refused = *spec
	}
	if stored.Spec == nil {
		return nil
	}
	accepted := (*spec).ProtoReflect().New().Interface().(S)
	if err := proto.Unmarshal(stored.Spec, accepted); err != nil {
		return fmt.Errorf("decoding the accepted spec of %s: %w", uid, err)
	}
	if u.Accepted.Spec = accepted; u.Refused != nil {
		*spec = accepted
	}
	return nil
}

func encode(m proto.Message) []byte {
	b, _ := proto.Marshal(m) // fails for invalid UTF-8 only, which gRPC rejects
	if b == nil {
		b = []byte{}
	}
	return b
}

// workKey returns the fields of a work that are compared by value. The observed state is compared by its encoding.
func workKey(w *fleet.Work) *workComparable {
	observed, _ := json.Marshal(&w.Observed)
	return &workComparable{w.Desired, w.Published, w.Digest, w.Generation, w.DeleteTime.UnixMicro(), w.DeletePublished, w.Version,
		w.Sequence, w.StatusHash, string(observed), w.Attempts, w.RetryTime.UnixMicro(), w.Error, w.Refused, w.DeleteRequests, strings.Join(w.ReleaseFinalizers, "\n")}
}

type workComparable struct {
	desired, published int64
	digest             string
	generation         int64
	deleteTime         int64
	deletePublished    bool
	version            int64
	sequence           string
	statusHash         string
	observed           string
	attempts           int32
	retryTime          int64
	err                string
	refused            bool
	deleteAsks         int32
	release            string
}

func clusterChanged(a, b *fleet.Cluster) bool {
	return a == nil || a.Generation != b.Generation || a.Shard != b.Shard || a.Release != b.Release || !a.DeleteTime.Equal(b.DeleteTime) ||
		!a.GoneTime.Equal(b.GoneTime) || !bytes.Equal(a.SigningKey, b.SigningKey) || !proto.Equal(a.Status, b.Status) || !proto.Equal(a.Spec, b.Spec) ||
		!proto.Equal(a.Overrides, b.Overrides) || a.Update != b.Update
}

func poolChanged(a, b *fleet.NodePool) bool {
	return a == nil || a.Generation != b.Generation || a.Release != b.Release || !a.DeleteTime.Equal(b.DeleteTime) ||
		!a.GoneTime.Equal(b.GoneTime) || !proto.Equal(a.Status, b.Status) || !proto.Equal(a.Spec, b.Spec) || a.Update != b.Update
}

func null[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func notNull(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func scanCluster(row pgx.CollectableRow) (*fleet.Cluster, error) {
	c := &fleet.Cluster{Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{}}
	var spec, status, overrides, accepted []byte
	var deleted, gone *time.Time
	if err := row.Scan(&c.UID, &c.ResourceID, &c.Generation, &spec, &status, &c.Shard, &c.Release.Version, &c.Release.Image, &c.SigningKey,
		&c.Revision, &c.CreateTime, &deleted, &gone, &overrides, &c.Trace, &accepted); err != nil {
		return nil, err
	}
	c.CreateTime, c.DeleteTime, c.GoneTime = c.CreateTime.UTC(), notNull(deleted), notNull(gone)
	if err := proto.Unmarshal(spec, c.Spec); err != nil {
		return nil, fmt.Errorf("decoding the spec of cluster %s: %w", c.UID, err)
	}
	if err := proto.Unmarshal(status, c.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of cluster %s: %w", c.UID, err)
	}
	if len(overrides) > 0 {
		c.Overrides = &csv1.ClusterOverrides{}
		if err := proto.Unmarshal(overrides, c.Overrides); err != nil {
			return nil, fmt.Errorf("decoding the overrides of cluster %s: %w", c.UID, err)
		}
	}
	return c, decodeUpdate(accepted, c.UID, c.Generation, &c.Update, &c.Spec)
}

func scanPool(row pgx.CollectableRow) (*fleet.NodePool, error) {
	p := &fleet.NodePool{Spec: &csv1.NodePoolSpec{}, Status: &csv1.NodePoolStatus{}}
	var spec, status, accepted []byte
	var deleted, gone *time.Time
	if err := row.Scan(&p.UID, &p.ClusterUID, &p.ResourceID, &p.Generation, &spec, &status, &p.Release.Version, &p.Release.Image,
		&p.Revision, &p.CreateTime, &deleted, &gone, &p.Trace, &accepted); err != nil {
		return nil, err
	}
	p.CreateTime, p.DeleteTime, p.GoneTime = p.CreateTime.UTC(), notNull(deleted), notNull(gone)
	if err := proto.Unmarshal(spec, p.Spec); err != nil {
		return nil, fmt.Errorf("decoding the spec of node pool %s: %w", p.UID, err)
	}
	if err := proto.Unmarshal(status, p.Status); err != nil {
		return nil, fmt.Errorf("decoding the status of node pool %s: %w", p.UID, err)
	}
	return p, decodeUpdate(accepted, p.UID, p.Generation, &p.Update, &p.Spec)
}

func scanWork(row pgx.CollectableRow) (*fleet.Work, error) { return scanWorkWith(row) }

// scanWorkWith reads a work, and further columns into more.
func scanWorkWith(row pgx.CollectableRow, more ...any) (*fleet.Work, error) {
	w := &fleet.Work{}
	var deleted, due *time.Time
	var observed []byte
	columns := []any{&w.ID, &w.ClusterUID, &w.OwnerUID, &w.Kind, &w.Name, &w.Shard, &w.Desired, &w.Published, &w.Digest, &w.Generation,
		&deleted, &w.DeletePublished, &w.Version, &w.Sequence, &w.StatusHash, &observed, &w.Attempts, &due, &w.Error, &w.Refused,
		&w.DeleteRequests, &w.ReleaseFinalizers}
	if err := row.Scan(append(columns, more...)...); err != nil {
		return nil, err
	}
	w.DeleteTime, w.RetryTime = notNull(deleted), notNull(due)
	if !slices.Contains(fleet.WorkKinds(), w.Kind) {
		return nil, fmt.Errorf("decoding work %s: unknown kind %d: supported values: %v", w.Name, w.Kind, fleet.WorkKinds())
	}
	if err := json.Unmarshal(observed, &w.Observed); err != nil {
		return nil, fmt.Errorf("decoding the observation of work %s: %w", w.Name, err)
	}
	return w, nil
}
