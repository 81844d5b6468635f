package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// recorder records its resyncs. fail returns the error of each.
type recorder struct {
	fail    func(resync int) error
	resyncs []bool
}

func (s *recorder) HandleChange(context.Context, database.Change) {}

func (s *recorder) Resync(_ context.Context, refresh bool) error {
	s.resyncs = append(s.resyncs, refresh)
	if s.fail == nil {
		return nil
	}
	return s.fail(len(s.resyncs))
}

var errUnavailable = errors.New("the store is unavailable")

// TestFailedResyncIsRepeated: only the handler whose resync failed is resynced again.
func TestFailedResyncIsRepeated(t *testing.T) {
	tests := map[string]struct {
		reason  string
		fail    func(resync int) error
		resyncs int
	}{
		"Unavailable": {"it may be available the next time", func(resync int) error {
			if resync < 4 {
				return errUnavailable
			}
			return nil
		}, 4},
		"Undecodable": {"a document that cannot be decoded stays the same", func(int) error {
			return fmt.Errorf("looking: %w", &database.UnreadableError{Count: 1, First: errors.New("a number where a text should be")})
		}, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing, healthy := &recorder{fail: tc.fail}, &recorder{}
				f := NewDispatcher(nil, nil, database.FeedOptions{}, time.Hour, slog.New(slog.DiscardHandler), failing, healthy)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				f.GroupAcquired(0)
				f.RunResync(ctx)
				if !slices.Equal(failing.resyncs, make([]bool, tc.resyncs)) || !slices.Equal(healthy.resyncs, []bool{false}) {
					t.Errorf("%s: resyncs %v, and of the other handler %v", tc.reason, failing.resyncs, healthy.resyncs)
				}
			})
		})
	}
}

// TestRepeatedResyncKeepsRefresh: the repetition of a failed periodic resync is also one with refresh.
func TestRepeatedResyncKeepsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var f *Dispatcher
		failing := &recorder{fail: func(resync int) error {
			if resync == 1 {
				f.GroupAcquired(0)
				return errUnavailable
			}
			cancel()
			return nil
		}}
		f = NewDispatcher(nil, nil, database.FeedOptions{}, time.Hour, slog.New(slog.DiscardHandler), failing)
		f.RunResync(ctx)
		if !slices.Equal(failing.resyncs, []bool{true, true}) {
			t.Errorf("resyncs %v", failing.resyncs)
		}
	})
}

// TestResyncsBackOff: failing resyncs are repeated with growing pauses, without an end.
func TestResyncsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recorder{fail: func(int) error { return errUnavailable }}
		f := NewDispatcher(nil, nil, database.FeedOptions{}, 24*time.Hour, slog.New(slog.DiscardHandler), s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f.GroupAcquired(0)
		f.RunResync(ctx)
		if least, most := int(time.Hour/(maxBackoff*3/2))-1, int(time.Hour/(maxBackoff/2))+8; len(s.resyncs) < least || len(s.resyncs) > most {
			t.Errorf("%d resyncs within an hour, want %d to %d", len(s.resyncs), least, most)
		}
	})
}
