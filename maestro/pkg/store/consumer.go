package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// consumerName matches names that are valid in an MQTT topic of published clients and in a DNS name.
var consumerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

const consumerColumns = `id, name, labels, created_at, updated_at`

func consumerRow(r pgx.CollectableRow) (*resource.Consumer, error) {
	var c resource.Consumer
	return &c, r.Scan(&c.ID, &c.Name, &c.Labels, &c.CreatedAt, &c.UpdatedAt)
}

// CheckConsumerName returns an error unless a consumer may have the name.
func CheckConsumerName(name string) error {
	if !consumerName.MatchString(name) {
		return resource.Errorf(maestroapi.ReasonMalformed, "consumer name %q must be 1 to 63 lower-case letters, digits and hyphens, and begin and end with a letter or digit", name)
	}
	return nil
}

// CreateConsumer registers a consumer. Its name defaults to its ID.
func (s *Store) CreateConsumer(ctx context.Context, name string, labels map[string]string) (*resource.Consumer, error) {
	id := uuid.NewString()
	if name == "" {
		name = id
	}
	if err := CheckConsumerName(name); err != nil {
		return nil, err
	}
	if labels == nil {
		labels = map[string]string{}
	}
	rows, err := s.pool.Query(ctx, `insert into consumers (id, name, labels) values ($1, $2, $3) returning `+consumerColumns, id, name, labels)
	if err != nil {
		return nil, fmt.Errorf("creating consumer %s: %w", name, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, consumerRow)
	if postgres.Code(err) == postgres.UniqueViolation {
		return nil, resource.Errorf(maestroapi.ReasonAlreadyExists, "consumer %s already exists", name)
	}
	return c, wrap(err, "creating consumer %s", name)
}

// EnsureConsumers registers the consumers of a list that are not registered yet, and returns their names. It changes and deletes no consumer. If
// several replicas call it at the same time, one of them returns the name. If all consumers are registered, it only reads, so that a replica
// also starts while the database accepts no writes. CheckConsumerName must accept the names.
func (s *Store) EnsureConsumers(ctx context.Context, names []string) (created []string, err error) {
	registered, err := s.ConsumerNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains(registered, name) {
			continue
		}
		tag, err := s.pool.Exec(ctx, `insert into consumers (id, name, labels) values ($1, $2, '{}') on conflict (name) do nothing`, uuid.NewString(), name)
		if err != nil {
			return created, fmt.Errorf("creating consumer %s: %w", name, err)
		}
		if tag.RowsAffected() > 0 {
			created = append(created, name)
		}
	}
	return created, nil
}

// Consumer returns the consumer with an ID.
func (s *Store) Consumer(ctx context.Context, id string) (*resource.Consumer, error) {
	rows, err := s.pool.Query(ctx, `select `+consumerColumns+` from consumers where id = $1`, id)
	if err != nil {
		return nil, fmt.Errorf("reading consumer %s: %w", id, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, consumerRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, resource.Errorf(maestroapi.ReasonNotFound, "no consumer has the ID %s", id)
	}
	return c, wrap(err, "reading consumer %s", id)
}

// RelabelConsumer replaces the labels of a consumer.
func (s *Store) RelabelConsumer(ctx context.Context, id string, labels map[string]string) (*resource.Consumer, error) {
	if labels == nil {
		labels = map[string]string{}
	}
	rows, err := s.pool.Query(ctx, `update consumers set labels = $2, updated_at = now() where id = $1 returning `+consumerColumns, id, labels)
	if err != nil {
		return nil, fmt.Errorf("relabelling consumer %s: %w", id, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, consumerRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, resource.Errorf(maestroapi.ReasonNotFound, "no consumer has the ID %s", id)
	}
	return c, wrap(err, "relabelling consumer %s", id)
}

// DeleteConsumer deletes a consumer without resources.
func (s *Store) DeleteConsumer(ctx context.Context, id string) error {
	tag, err := s.pool.Exec(ctx, `delete from consumers where id = $1`, id)
	switch {
	case postgres.Code(err) == postgres.ForeignKeyViolation || postgres.Code(err) == postgres.RestrictViolation:
		return resource.Errorf(maestroapi.ReasonConsumerInUse, "consumer %s still has resources", id)
	case err != nil:
		return fmt.Errorf("deleting consumer %s: %w", id, err)
	case tag.RowsAffected() == 0:
		return resource.Errorf(maestroapi.ReasonNotFound, "no consumer has the ID %s", id)
	}
	return nil
}

// ConsumerNames returns the names of all consumers.
func (s *Store) ConsumerNames(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `select name from consumers order by name`)
	if err != nil {
		return nil, fmt.Errorf("listing consumers: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, wrap(err, "listing consumers")
}
