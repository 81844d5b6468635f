package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// diskFull is the SQLSTATE of a statement for which the server's disk has no space.
const diskFull = "53100"

// diskFullFor is for how long a pool reports that the server's disk is full after the last statement that failed for that reason.
// Services retry what failed in less time.
const diskFullFor = 30 * time.Second

// Ping returns an error if the database does not respond, or if a statement of the pool failed in the last 30 seconds because the
// server's disk is full. The error of a full disk is disk.ErrFull. A server with a full disk serves reads, and writes that need no
// new space, for a long time, so a statement of Ping itself would prove nothing.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "SELECT 1"); err != nil {
		return err
	}
	if watch, ok := pool.Config().ConnConfig.Tracer.(*DiskWatch); ok {
		return watch.Check(time.Now())
	}
	return nil
}

// DiskWatch is the tracer of a pool that remembers the last statement that failed because the server's disk is full. It is safe for
// concurrent use.
type DiskWatch struct {
	mu      sync.Mutex
	at      time.Time
	message string
}

var (
	_ pgx.QueryTracer    = (*DiskWatch)(nil)
	_ pgx.BatchTracer    = (*DiskWatch)(nil)
	_ pgx.CopyFromTracer = (*DiskWatch)(nil)
)

// note remembers the error of a statement.
func (w *DiskWatch) note(err error) {
	if err == nil || Code(err) != diskFull {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.message = time.Now(), err.Error()
}

// Check returns the error of a full disk if one was noted less than diskFullFor ago.
func (w *DiskWatch) Check(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() || now.Sub(w.at) >= diskFullFor {
		return nil
	}
	return fmt.Errorf("%w: %s", disk.ErrFull, w.message)
}

// TraceQueryStart implements pgx.QueryTracer.
func (*DiskWatch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w *DiskWatch) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w.note(data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (*DiskWatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (w *DiskWatch) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	w.note(data.Err)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (w *DiskWatch) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	w.note(data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (*DiskWatch) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return ctx
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (w *DiskWatch) TraceCopyFromEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	w.note(data.Err)
}
