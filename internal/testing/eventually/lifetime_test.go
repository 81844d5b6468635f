package eventually_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// TestLifetimeGrowsUntilUseSucceeds uses certificates on a machine that needs five seconds to use one.
func TestLifetimeGrowsUntilUseSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []time.Duration
		eventually.WithinLifetime(t, func(lifetime time.Duration) error {
			tried = append(tried, lifetime)
			time.Sleep(5 * time.Second)
			if lifetime < 5*time.Second {
				return errors.New("the certificate has ended")
			}
			return nil
		})
		if want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}; !slices.Equal(tried, want) {
			t.Errorf("tried the lifetimes %v, want %v", tried, want)
		}
	})
}

// failure is a test that fails. Its Fatalf ends the goroutine, as that of a test does.
type failure struct {
	testing.TB
	message string
}

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, _ ...any) {
	f.message = format
	panic(f)
}

// TestErrorWithinLifetimeFailsTheTest fails before the certificate has ended.
func TestErrorWithinLifetimeFailsTheTest(t *testing.T) {
	f := &failure{TB: t}
	defer func() {
		if recover() != f || f.message == "" {
			t.Error("the test did not fail")
		}
	}()
	eventually.WithinLifetime(f, func(time.Duration) error { return errors.New("refused") })
}
