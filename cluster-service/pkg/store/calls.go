package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrCallRepeated is returned instead of a second effect of one call. The caller made the call before and did not receive
// the response.
var ErrCallRepeated = errors.New("the call was already executed")

// call is the state of one call.
type call struct {
	id string
	// done is set when a transaction of this call was committed. Later transactions belong to the same call.
	done bool
}

type callKey struct{}

// WithCallID attaches the caller's ID of a call to a context. The first transaction of the call that changes something
// records the ID. A repeated call with the same ID changes nothing and fails with ErrCallRepeated.
func WithCallID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callKey{}, &call{id: id})
}

// checkCall returns ErrCallRepeated if the call of the context took effect before. It precedes an effect outside of the database, which noteCall records
// afterwards.
func (s *Store) checkCall(ctx context.Context) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil
	}
	var done bool
	if err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM done_calls WHERE id = $1)", c.id).Scan(&done); err != nil {
		return fmt.Errorf("checking a call: %w", err)
	}
	if done {
		return ErrCallRepeated
	}
	return nil
}

// noteCall records the call of the context, if it has one, in a transaction. The caller must call committed after the
// commit.
func (s *Store) noteCall(ctx context.Context, tx interface {
	Exec(ctx context.Context, query string, arguments ...any) (pgconn.CommandTag, error)
}) (committed func(), err error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.done {
		return func() {}, nil
	}
	// Of two concurrent calls the second waits for the end of the first.
	tag, err := tx.Exec(ctx, "INSERT INTO done_calls (id, time) VALUES ($1, $2) ON CONFLICT DO NOTHING", c.id, s.Now())
	switch {
	case err != nil:
		return nil, fmt.Errorf("noting a call: %w", err)
	case tag.RowsAffected() == 0:
		return nil, ErrCallRepeated
	}
	return func() { c.done = true }, nil
}
