package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// firstPause and lastPause bound the pause before the next attempt to reach the database.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// ErrStopped reports that the context ended before the database was available.
var ErrStopped = errors.New("stopped while the database was unavailable")

// Await calls do until it succeeds, and waits while the database is unavailable. It returns every other error, or ErrStopped.
func Await(ctx context.Context, log *slog.Logger, do func() error) error {
	pauses := backoff.New(firstPause, lastPause)
	for {
		err := do()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ErrStopped
		case !IsUnavailable(err):
			return err
		}
		pause := pauses.Next()
		log.WarnContext(ctx, "waiting for the database", logkey.Error, err, logkey.RetryIn, pause.String())
		if backoff.Sleep(ctx, pause) != nil {
			return ErrStopped
		}
	}
}
