package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Create stores a new resource and its delivery. If the resource exists with the same content, Create succeeds and changes
// nothing; with other content it returns an error.
func (s *Store) Create(ctx context.Context, r *resource.Resource) (version int64, err error) {
	hash, err := ContentHash(r)
	if err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, `
		with deleted as (delete from tombstones where resource_id = $1 returning version),
		created as (
			insert into resources (id, source, consumer, version, metadata, spec, tracing, content_hash, trace_parent)
			values ($1, $2, $3, coalesce((select version from deleted), 0) + 1, $4, $5, $6, $7, $8)
			on conflict (id) do nothing returning id, consumer, version),
		sent as (insert into deliveries (resource_id, consumer) select id, consumer from created)
		select version from created`,
		r.ID, r.Source, r.Consumer, nullable(r.Metadata), []byte(r.Spec), r.Tracing, hash, r.TraceParent).Scan(&version)
	switch {
	case err == nil:
		return version, nil
	case postgres.Code(err) == postgres.ForeignKeyViolation:
		return 0, resource.Errorf(maestroapi.ReasonUnknownConsumer, "consumer %q is not registered", r.Consumer)
	case postgres.Code(err) == postgres.UntranslatableCharacter:
		return 0, resource.Errorf(maestroapi.ReasonMalformed, "the metadata contains a character that cannot be stored")
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("creating resource %s: %w", r.ID, err)
	}

	var source, consumer string
	var same, deleting bool
	err = s.pool.QueryRow(ctx, `select source, consumer, version, content_hash = $2, deleted_at is not null from resources where id = $1`,
		r.ID, hash).Scan(&source, &consumer, &version, &same, &deleting)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		// It was deleted between the two statements. A retry of the caller creates it.
		return 0, resource.Errorf(maestroapi.ReasonBeingDeleted, "resource %s is being deleted", r.ID)
	case err != nil:
		return 0, fmt.Errorf("creating resource %s: reading the existing one: %w", r.ID, err)
	case source != r.Source:
		return 0, resource.Errorf(maestroapi.ReasonForeignSource, "resource %s belongs to another source", r.ID)
	case deleting:
		return 0, resource.Errorf(maestroapi.ReasonBeingDeleted, "resource %s is being deleted", r.ID)
	case !same || consumer != r.Consumer:
		return 0, resource.Errorf(maestroapi.ReasonAlreadyExists, "resource %s exists with other content (version %d)", r.ID, version)
	}
	return version, nil
}

// Update replaces the content of a resource and orders its delivery. r.Version is the version that the change is based on, or 0
// for the newest. Equal content changes nothing.
func (s *Store) Update(ctx context.Context, r *resource.Resource) (version int64, err error) {
	hash, err := ContentHash(r)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var source, consumer string
		var same, deleting bool
		err := tx.QueryRow(ctx, `select source, consumer, version, content_hash = $2, deleted_at is not null
			from resources where id = $1 for update`, r.ID, hash).Scan(&source, &consumer, &version, &same, &deleting)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return resource.Errorf(maestroapi.ReasonNotFound, "resource %s does not exist", r.ID)
		case err != nil:
			return err
		case source != r.Source:
			return resource.Errorf(maestroapi.ReasonForeignSource, "resource %s belongs to another source", r.ID)
		case deleting:
			return resource.Errorf(maestroapi.ReasonBeingDeleted, "resource %s is being deleted", r.ID)
		case consumer != r.Consumer:
			return resource.Errorf(maestroapi.ReasonMalformed, "resource %s is on consumer %q and cannot move to %q", r.ID, consumer, r.Consumer)
		case r.Version != 0 && r.Version != version:
			return resource.Errorf(maestroapi.ReasonVersionConflict, "resource %s is at version %d, not %d", r.ID, version, r.Version)
		case same:
			return nil
		}
		version++
		var batch pgx.Batch
		batch.Queue(`update resources set version = $2, metadata = $3, spec = $4, tracing = $5, content_hash = $6, trace_parent = $7, updated_at = now() where id = $1`,
			r.ID, version, nullable(r.Metadata), []byte(r.Spec), r.Tracing, hash, r.TraceParent)
		batch.Queue(orderDelivery, r.ID, consumer)
		return tx.SendBatch(ctx, &batch).Close()
	})
	if postgres.Code(err) == postgres.UntranslatableCharacter {
		return 0, resource.Errorf(maestroapi.ReasonMalformed, "the metadata contains a character that cannot be stored")
	}
	return version, wrap(err, "updating resource %s", r.ID)
}

// orderDelivery adds the newest version of a resource to the end of the new work of its consumer.
const orderDelivery = `insert into deliveries (resource_id, consumer) values ($1, $2)
	on conflict (resource_id) do update set
		position = nextval('delivery_order'), lane = 0, due_at = now(), attempts = 0, parked = null`

// Delete marks a resource for deletion. The resource is removed when the agent confirms. version is the version that the decision
// is based on, or 0. Delete succeeds for a resource that does not exist, with missing set, or that is being deleted. It adds the
// annotations that release finalizers (resource.ReleaseAnnotations) to the metadata, and a change of them is delivered at once. traceParent is
// the trace context of the request; empty if there is none.
func (s *Store) Delete(ctx context.Context, id, source string, version int64, released map[string]string, traceParent string) (consumer string, missing bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var owner string
		var newest int64
		var deleting bool
		var metadata []byte
		err := tx.QueryRow(ctx, `select source, consumer, version, deleted_at is not null, metadata from resources where id = $1 for update`,
			id).Scan(&owner, &consumer, &newest, &deleting, &metadata)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			missing = true
			return nil
		case err != nil:
			return err
		case source != "" && owner != source:
			return resource.Errorf(maestroapi.ReasonForeignSource, "resource %s belongs to another source", id)
		case deleting && len(released) == 0:
			return nil
		case !deleting && version != 0 && version != newest:
			return resource.Errorf(maestroapi.ReasonVersionConflict, "resource %s is at version %d, not %d", id, newest, version)
		}
		with, changed, err := resource.WithReleaseAnnotations(metadata, released)
		if err != nil {
			return fmt.Errorf("resource %s: %w", id, err)
		}
		if deleting && !changed {
			return nil
		}
		var batch pgx.Batch
		batch.Queue(`update resources set deleted_at = coalesce(deleted_at, now()), updated_at = now(), metadata = $2, trace_parent = $3 where id = $1`, id, nullable(with), traceParent)
		batch.Queue(orderDelivery, id, consumer)
		return tx.SendBatch(ctx, &batch).Close()
	})
	return consumer, missing, wrap(err, "deleting resource %s", id)
}

const resourceColumns = `r.id, r.source, r.consumer, r.version, r.metadata, r.tracing, r.trace_parent, r.created_at, r.updated_at, r.deleted_at,
	r.status_version, r.status_agent, r.status_sequence, r.status_hash, r.status_body,
	coalesce((select parked from deliveries d where d.resource_id = r.id), '')`

// row scans resourceColumns, followed by the spec if withSpec is set.
func row(scan func(dest ...any) error, withSpec bool) (*resource.Resource, error) {
	var r resource.Resource
	var metadata, spec, body []byte
	var deletedAt *time.Time
	var statusVersion, sequence *int64
	var agent, hash *string
	dest := []any{&r.ID, &r.Source, &r.Consumer, &r.Version, &metadata, &r.Tracing, &r.TraceParent, &r.CreatedAt, &r.UpdatedAt, &deletedAt,
		&statusVersion, &agent, &sequence, &hash, &body, &r.Parked}
	if withSpec {
		dest = append(dest, &spec)
	}
	if err := scan(dest...); err != nil {
		return nil, err
	}
	r.Metadata, r.Spec = metadata, spec
	if deletedAt != nil {
		r.DeletedAt = *deletedAt
	}
	if statusVersion != nil {
		r.Status = &resource.Status{
			ResourceID: r.ID, Consumer: r.Consumer, Version: *statusVersion, Agent: *agent,
			Sequence: strconv.FormatInt(*sequence, 10), Hash: *hash, Body: body,
		}
	}
	return &r, nil
}

// Get returns a resource with its spec.
func (s *Store) Get(ctx context.Context, id string) (*resource.Resource, error) {
	r, err := row(s.pool.QueryRow(ctx, `select `+resourceColumns+`, r.spec from resources r where r.id = $1`, id).Scan, true)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, resource.Errorf(maestroapi.ReasonNotFound, "resource %s does not exist", id)
	}
	return r, wrap(err, "reading resource %s", id)
}

// Spec returns the bundle of a resource, or nil if the resource does not exist.
func (s *Store) Spec(ctx context.Context, id string) (spec json.RawMessage, err error) {
	err = s.pool.QueryRow(ctx, `select spec from resources where id = $1`, id).Scan((*[]byte)(&spec))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return spec, wrap(err, "reading the bundle of resource %s", id)
}

// Load returns the resources and tombstones with the given IDs, without specs. It omits IDs without either.
func (s *Store) Load(ctx context.Context, ids []string) ([]*resource.Resource, error) {
	rows, err := s.pool.Query(ctx, `select `+resourceColumns+` from resources r where r.id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("reading resources: %w", err)
	}
	live, err := pgx.CollectRows(rows, func(cr pgx.CollectableRow) (*resource.Resource, error) { return row(cr.Scan, false) })
	if err != nil {
		return nil, fmt.Errorf("reading resources: %w", err)
	}
	deleted, err := s.tombstones(ctx, `where t.resource_id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	return append(live, deleted...), nil
}

const tombstoneColumns = `t.resource_id, t.source, t.consumer, t.version, t.metadata, t.tracing, t.deleted_at,
	t.status_agent, t.status_sequence, t.status_body`

func tombstone(scan func(dest ...any) error) (*resource.Resource, error) {
	var r resource.Resource
	var metadata, body []byte
	var sequence int64
	status := &resource.Status{Deleted: true}
	if err := scan(&r.ID, &r.Source, &r.Consumer, &r.Version, &metadata, &r.Tracing, &r.DeletedAt,
		&status.Agent, &sequence, &body); err != nil {
		return nil, err
	}
	r.Metadata = metadata
	status.ResourceID, status.Consumer, status.Version = r.ID, r.Consumer, r.Version
	status.Sequence, status.Body = strconv.FormatInt(sequence, 10), body
	r.Status = status
	return &r, nil
}

func (s *Store) tombstones(ctx context.Context, where string, args ...any) ([]*resource.Resource, error) {
	rows, err := s.pool.Query(ctx, `select `+tombstoneColumns+` from tombstones t `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading tombstones: %w", err)
	}
	deleted, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (*resource.Resource, error) { return tombstone(r.Scan) })
	return deleted, wrap(err, "reading tombstones")
}

// PruneTombstones deletes up to limit tombstones that are older than the retention and returns their number.
func (s *Store) PruneTombstones(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	tag, err := s.pool.Exec(ctx, `delete from tombstones where resource_id in (
		select resource_id from tombstones where confirmed_at < now() - $1::interval limit $2)`, retention, limit)
	return tag.RowsAffected(), wrap(err, "deleting old tombstones")
}

// Differing returns the next IDs after another one, at most limit and in their order, of the resources of a source whose status differs from the listed one; or, without a list,
// of those with a status. It also returns listed IDs of which the source has no resource with a status. There are no more if it returns none.
func (s *Store) Differing(ctx context.Context, source string, listed map[string]string, after string, limit int) ([]string, error) {
	query, args := `select id from resources where source = $1 and status_hash is not null and id > $2 order by id limit $3`, []any{source, after, limit}
	if len(listed) > 0 {
		ids, hashes := make([]string, 0, len(listed)), make([]string, 0, len(listed))
		for id, hash := range listed {
			ids, hashes = append(ids, id), append(hashes, hash)
		}
		query = `select l.id from unnest($4::text[], $5::text[]) as l (id, hash) left join resources r on r.id = l.id and r.source = $1
			where l.id > $2 and r.status_hash is distinct from l.hash order by l.id limit $3`
		args = append(args, ids, hashes)
	}
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, wrap(err, "listing the statuses of source %s", source)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, wrap(err, "listing the statuses of source %s", source)
}

func nullable(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw)
}

// wrap adds what was being done to a database error. It returns a resource.Error unchanged.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var fault *resource.Error
	if errors.As(err, &fault) {
		return fault
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
