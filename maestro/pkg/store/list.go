package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Page selects a part of a list. Page counts from 1; a Size of 0 returns the total only.
type Page struct {
	Page, Size      int
	Search, OrderBy string
}

var resourceFields = searchFields{
	Text: map[string]string{
		"id": "r.id", "name": "r.id", "source": "r.source", "consumer_name": "r.consumer",
		"created_at": "r.created_at::text", "updated_at": "r.updated_at::text", "deleted_at": "r.deleted_at::text",
	},
	Integer:   map[string]string{"version": "r.version"},
	Labels:    "r.metadata -> 'labels'",
	LabelPath: "payload->'metadata'->'labels'",
}

var consumerFields = searchFields{
	Text: map[string]string{
		"id": "c.id", "name": "c.name", "created_at": "c.created_at::text", "updated_at": "c.updated_at::text",
	},
	Labels:    "c.labels",
	LabelPath: "labels",
}

// Resources returns a page of resources with their specs, and the total.
func (s *Store) Resources(ctx context.Context, p Page) (list []*resource.Resource, total int, err error) {
	err = s.list(ctx, p, resourceFields, `resources r`, "r.id", resourceColumns+", r.spec", &total, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, func(cr pgx.CollectableRow) (*resource.Resource, error) { return row(cr.Scan, true) })
		return err
	})
	return list, total, err
}

// Consumers returns a page of consumers, and the total.
func (s *Store) Consumers(ctx context.Context, p Page) (list []*resource.Consumer, total int, err error) {
	err = s.list(ctx, p, consumerFields, `consumers c`, "c.id", consumerColumns, &total, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, consumerRow)
		return err
	})
	return list, total, err
}

func (s *Store) list(ctx context.Context, p Page, fields searchFields, from, tie, columns string, total *int, collect func(pgx.Rows) error) error {
	where, args := "true", []any(nil)
	if p.Search != "" {
		var err error
		if where, args, err = fields.Condition(p.Search, 1); err != nil {
			return resource.Errorf(maestroapi.ReasonMalformed, "search: %v", err)
		}
	}
	order, err := fields.Order(p.OrderBy, tie)
	if err != nil {
		return resource.Errorf(maestroapi.ReasonMalformed, "orderBy: %v", err)
	}
	// The count and the page are of one snapshot.
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `select count(*) from `+from+` where `+where, args...).Scan(total); err != nil {
			return searchError(err)
		}
		if p.Size == 0 {
			return nil
		}
		rows, err := tx.Query(ctx, fmt.Sprintf(`select %s from %s where %s order by %s limit %d offset %d`,
			columns, from, where, order, p.Size, (p.Page-1)*p.Size), args...)
		if err != nil {
			return searchError(err)
		}
		return searchError(collect(rows))
	})
}

// searchError returns a resource.Error if PostgreSQL rejected a value of the search (class 22: data exceptions), else err.
func searchError(err error) error {
	if code := postgres.Code(err); len(code) == 5 && code[:2] == "22" {
		return resource.Errorf(maestroapi.ReasonMalformed, "search: a value has the wrong type")
	}
	return wrap(err, "reading a list")
}
