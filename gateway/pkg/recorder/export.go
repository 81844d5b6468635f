package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/recording"
)

const (
	// maxChunk is the maximum number of bytes in one append to the sink.
	maxChunk = 1 << 20
	// exportPause is the pause between two exports, so that a command that prints much does not cause an append for each message.
	exportPause = time.Second
	// firstRetry and lastRetry bound the pauses while the sink or the index is away.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
	// exportTimeout limits the export of one recording, and lastTimeout the export at the end of the process.
	exportTimeout = 30 * time.Second
	lastTimeout   = 5 * time.Second
)

// errConflict is the error for a log in the sink that has more than the file: something else has written it.
var errConflict = errors.New("the sink has a longer recording")

// Run exports recordings until ctx ends. Then it exports once more for at most a few seconds. What is not exported stays for the next start.
func (s *Store) Run(ctx context.Context) {
	retry := backoff.New(firstRetry, lastRetry)
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			s.report(last, failing, s.export(last))
			_ = s.lock.Close()
			return
		case <-s.changed:
		}
		err := s.export(ctx)
		if ctx.Err() != nil {
			continue
		}
		failing = s.report(ctx, failing, err)
		if err != nil {
			s.signal()
			_ = retry.Wait(ctx) // the end of ctx is handled above
			continue
		}
		retry.Reset()
		_ = backoff.Sleep(ctx, exportPause)
	}
}

// report logs the first failure and the end of failures. It returns whether the export fails.
func (s *Store) report(ctx context.Context, failing bool, err error) bool {
	switch {
	case err != nil && !failing:
		s.metrics.failing.Set(1)
		s.options.Log.ErrorContext(ctx, "exporting recordings failed; they stay on the disk", logkey.Error, err)
	case err == nil && failing:
		s.metrics.failing.Set(0)
		s.options.Log.InfoContext(ctx, "recordings are exported again")
	}
	return err != nil
}

// export exports what is durable of all recordings. A conflict of one does not delay the others.
func (s *Store) export(ctx context.Context) error {
	var conflicts error
	for _, r := range s.all() {
		err := s.exportOne(ctx, r)
		switch {
		case errors.Is(err, errConflict), errors.Is(err, sink.ErrConflict):
			conflicts = errors.Join(conflicts, err)
		case err != nil:
			return errors.Join(conflicts, err)
		}
	}
	return conflicts
}

// progress is how far a recording is.
type progress struct {
	began    bool
	durable  int64
	ended    *recording.End
	complete bool
}

func (r *Recording) progress() progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return progress{r.began, r.durable, r.ended, r.complete}
}

func (s *Store) exportOne(ctx context.Context, r *Recording) error {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if !r.progress().began {
		return nil
	}
	_ = r.sync() // a failure ends the connection; what is durable is exported
	now := r.progress()
	if !r.described {
		if err := s.options.Index.Put(ctx, Description{Facts: r.facts, Bytes: now.durable}); err != nil {
			return fmt.Errorf("describing the recording %s: %w", r.facts.ID, err)
		}
		r.described = true
	}
	if err := s.copy(ctx, r, now.durable); err != nil {
		return fmt.Errorf("exporting the recording %s: %w", r.facts.ID, err)
	}
	if now.ended == nil {
		return nil
	}
	if err := s.options.Index.Put(ctx, Description{Facts: r.facts, Bytes: now.durable, End: now.ended, Complete: now.complete}); err != nil {
		return fmt.Errorf("describing the recording %s: %w", r.facts.ID, err)
	}
	if err := errors.Join(os.Remove(r.path), disk.Sync(filepath.Dir(r.path))); err != nil {
		return fmt.Errorf("deleting the exported recording %s: %w", r.facts.ID, err)
	}
	r.mu.Lock()
	size := r.size
	r.mu.Unlock()
	s.forget(r, size, false)
	return nil
}

// copy appends the file to its log in the sink up to an offset.
func (s *Store) copy(ctx context.Context, r *Recording, to int64) (err error) {
	name := recording.LogName(r.facts.ID)
	if r.exported < 0 {
		size, err := s.options.Sink.Size(ctx, name)
		if err != nil {
			return err
		}
		if size > to {
			return fmt.Errorf("%w: %d bytes instead of %d", errConflict, size, to)
		}
		r.exported = size
	}
	if r.exported == to {
		return nil
	}
	file, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	chunk := make([]byte, min(to-r.exported, maxChunk))
	for r.exported < to {
		chunk = chunk[:min(to-r.exported, int64(len(chunk)))]
		if _, err := io.ReadFull(io.NewSectionReader(file, r.exported, int64(len(chunk))), chunk); err != nil {
			return err
		}
		at := r.exported
		r.exported = -1 // a part may be stored
		if err := s.options.Sink.Append(ctx, name, at, chunk); err != nil {
			return err
		}
		r.exported = at + int64(len(chunk))
	}
	return nil
}
