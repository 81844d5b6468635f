package changefeed

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

// seeker writes down how it was asked to look, and fails as it is told.
type seeker struct {
	fail  func(look int) error
	looks []bool
}

func (s *seeker) HandleChange(context.Context, database.Change) {}

func (s *seeker) Resync(_ context.Context, refresh bool) error {
	s.looks = append(s.looks, refresh)
	if s.fail == nil {
		return nil
	}
	return s.fail(len(s.looks))
}

var errAway = errors.New("the store is away")

// TestOnlyWhoseLookFailedIsAskedAgain: a seeker that cannot look is asked again until it could; the others are left alone.
func TestOnlyWhoseLookFailedIsAskedAgain(t *testing.T) {
	tests := map[string]struct {
		reason string
		fail   func(look int) error
		looks  int
	}{
		"Away": {"it may be there the next time", func(look int) error {
			if look < 4 {
				return errAway
			}
			return nil
		}, 4},
		"CannotBeRead": {"a document that cannot be read is no other the next time", func(int) error {
			return fmt.Errorf("looking: %w", &database.UnreadableError{Count: 1, First: errors.New("a number where a text should be")})
		}, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing, healthy := &seeker{fail: tc.fail}, &seeker{}
				f := New(nil, nil, database.FeedOptions{}, time.Hour, slog.New(slog.DiscardHandler), failing, healthy)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				f.GroupAcquired(0)
				f.RunResync(ctx)
				if !slices.Equal(failing.looks, make([]bool, tc.looks)) || !slices.Equal(healthy.looks, []bool{false}) {
					t.Errorf("%s: asked %v, and the other %v", tc.reason, failing.looks, healthy.looks)
				}
			})
		})
	}
}

// TestWhatTheSafetyNetAskedForIsAskedForAgain: a look that was to refresh still is when it is repeated, whatever came meanwhile.
func TestWhatTheSafetyNetAskedForIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var f *Dispatcher
		failing := &seeker{fail: func(look int) error {
			if look == 1 {
				f.GroupAcquired(0)
				return errAway
			}
			cancel()
			return nil
		}}
		f = New(nil, nil, database.FeedOptions{}, time.Hour, slog.New(slog.DiscardHandler), failing)
		f.RunResync(ctx)
		if !slices.Equal(failing.looks, []bool{true, true}) {
			t.Errorf("asked %v", failing.looks)
		}
	})
}

// TestAskingAgainIsBounded: a store that stays away is asked ever more rarely, and for ever.
func TestAskingAgainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seeker{fail: func(int) error { return errAway }}
		f := New(nil, nil, database.FeedOptions{}, 24*time.Hour, slog.New(slog.DiscardHandler), s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f.GroupAcquired(0)
		f.RunResync(ctx)
		if least, most := int(time.Hour/(maxBackoff*3/2))-1, int(time.Hour/(maxBackoff/2))+8; len(s.looks) < least || len(s.looks) > most {
			t.Errorf("asked %d times within an hour, want %d to %d", len(s.looks), least, most)
		}
	})
}
