package eventually_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

var errNotMet = errors.New("the light is blue")

func TestRepeatReturnsAfterFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, checks := time.Now(), 0
		err := eventually.Repeat(t.Context(), func() error {
			if checks++; time.Since(started) < time.Second {
				return errNotMet
			}
			return nil
		})
		if took := time.Since(started); err != nil || took < time.Second || took > 1100*time.Millisecond || checks > 60 {
			t.Errorf("%v after %s and %d checks", err, took, checks)
		}
	})
}

func TestRepeatReturnsLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := eventually.Repeat(ctx, func() error { return errNotMet })
		if !errors.Is(err, errNotMet) || !strings.Contains(err.Error(), "not met after 1m0s") {
			t.Errorf("%v", err)
		}
	})
}

// fatalRecorder is a test that records its failure.
type fatalRecorder struct {
	testing.TB
	message string
}

func (r *fatalRecorder) Helper() {}

func (r *fatalRecorder) Fatalf(format string, arguments ...any) {
	r.message = fmt.Sprintf(format, arguments...)
}

func TestSoonWaitsWhileTheStateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, started := &fatalRecorder{TB: t}, time.Now()
		eventually.Soon(recorder, "all are green", func() error {
			if done := time.Since(started) / (9 * time.Minute); done < 10 {
				return fmt.Errorf("%d are green", done)
			}
			return nil
		})
		if recorder.message != "" {
			t.Error(recorder.message)
		}
	})
}

func TestSoonReportsConditionAndState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := &fatalRecorder{TB: t}
		eventually.Soon(recorder, "the light is green", func() error { return errNotMet })
		if !strings.HasPrefix(recorder.message, "the light is green: ") || !strings.HasSuffix(recorder.message, errNotMet.Error()) {
			t.Errorf("Soon failed with %q", recorder.message)
		}
	})
}
