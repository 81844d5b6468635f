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

var errNotYet = errors.New("it is blue")

func TestRepeatEndsWithTheFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		err := eventually.Repeat(t.Context(), func() error {
			if looks++; time.Since(began) < time.Second {
				return errNotYet
			}
			return nil
		})
		if took := time.Since(began); err != nil || took < time.Second || took > 1100*time.Millisecond || looks > 60 {
			t.Errorf("%v after %s and %d looks", err, took, looks)
		}
	})
}

func TestRepeatSaysHowThingsStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := eventually.Repeat(ctx, func() error { return errNotYet })
		if !errors.Is(err, errNotYet) || !strings.Contains(err.Error(), "not so after 1m0s") {
			t.Errorf("%v", err)
		}
	})
}

// refusing is a test that is ended.
type refusing struct {
	testing.TB
	said string
}

func (r *refusing) Helper() {}

func (r *refusing) Fatalf(format string, arguments ...any) {
	r.said = fmt.Sprintf(format, arguments...)
}

func TestHoldsSaysWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := &refusing{TB: t}
		eventually.Holds(ended, time.Second, "it is green", func() error { return errNotYet })
		if !strings.HasPrefix(ended.said, "it is green: ") || !strings.HasSuffix(ended.said, errNotYet.Error()) {
			t.Errorf("it said %q", ended.said)
		}
	})
}
