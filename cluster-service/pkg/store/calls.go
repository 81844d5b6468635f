package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrCallRepeated is returned instead of a second effect of one call: its caller has made it before, and did not hear the answer.
var ErrCallRepeated = errors.New("the call has had its effect before")

// call is what one call has come to.
type call struct {
	id string
	// done is set when a transaction of this very call was committed: those after it are its own, too.
	done bool
}

type callKey struct{}

// WithCallID gives what is done with the context the caller's id: it is noted in the first transaction that changes something
// on its behalf, and the same call made again changes nothing.
func WithCallID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callKey{}, &call{id: id})
}

// noteCall notes the context's call, if it has one, in a transaction; committed is to be called when that is.
func (s *Store) noteCall(ctx context.Context, tx interface {
	Exec(ctx context.Context, query string, arguments ...any) (pgconn.CommandTag, error)
}) (committed func(), err error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.done {
		return func() {}, nil
	}
	// Of two at once the second waits for the first's end.
	tag, err := tx.Exec(ctx, "INSERT INTO done_calls (id, time) VALUES ($1, $2) ON CONFLICT DO NOTHING", c.id, s.Now())
	switch {
	case err != nil:
		return nil, fmt.Errorf("noting a call: %w", err)
	case tag.RowsAffected() == 0:
		return nil, ErrCallRepeated
	}
	return func() { c.done = true }, nil
}
