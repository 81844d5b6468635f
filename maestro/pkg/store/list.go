package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/search"
)

// Page says which part of a list is wanted. Page counts from 1; a Size of 0 wants only the total.
type Page struct {
	Page, Size      int
	Search, OrderBy string
}

var resourceFields = search.Fields{
	Text: map[string]string{
		"id": "r.id", "name": "r.id", "source": "r.source", "consumer_name": "r.consumer",
		"created_at": "r.created_at::text", "updated_at": "r.updated_at::text", "deleted_at": "r.deleted_at::text",
	},
	Integer:   map[string]string{"version": "r.version"},
	Labels:    "r.metadata -> 'labels'",
	LabelPath: "payload->'metadata'->'labels'",
}

var consumerFields = search.Fields{
	Text: map[string]string{
		"id": "c.id", "name": "c.name", "created_at": "c.created_at::text", "updated_at": "c.updated_at::text",
	},
	Labels:    "c.labels",
	LabelPath: "labels",
}

// Resources lists resources with their specs.
func (s *Store) Resources(ctx context.Context, p Page) (list []*resource.Resource, total int, err error) {
	err = s.list(ctx, p, resourceFields, `resources r`, "r.id", resourceColumns+", r.spec", &total, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, func(cr pgx.CollectableRow) (*resource.Resource, error) { return row(cr.Scan, true) })
		return err
	})
	return list, total, err
}

// Consumers lists consumers.
func (s *Store) Consumers(ctx context.Context, p Page) (list []*resource.Consumer, total int, err error) {
	err = s.list(ctx, p, consumerFields, `consumers c`, "c.id", consumerColumns, &total, func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, consumerRow)
		return err
	})
	return list, total, err
}

func (s *Store) list(ctx context.Context, p Page, fields search.Fields, from, tie, columns string, total *int, collect func(pgx.Rows) error) error {
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
	// One snapshot for the count and the page.
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

// searchError tells a search whose values PostgreSQL cannot take (class 22: data exceptions) from a failure.
func searchError(err error) error {
	if code := postgres.Code(err); len(code) == 5 && code[:2] == "22" {
		return resource.Errorf(maestroapi.ReasonMalformed, "search: a value in it cannot be compared")
	}
	return wrap(err, "list")
}
