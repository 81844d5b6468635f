package recordeddump

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// fatalRecorder is a test that records its failure.
type fatalRecorder struct {
	testing.TB
	message string
}

func (r *fatalRecorder) Helper() {}

func (r *fatalRecorder) Fatalf(format string, arguments ...any) {
	r.message = fmt.Sprintf(format, arguments...)
}

// TestAwaitFailsWhenServiceHasSettled checks that a dump that differs fails the test when the service has settled, and not at the end of the
// test's time, and that the failure states the difference.
func TestAwaitFailsWhenServiceHasSettled(t *testing.T) {
	const recorded = "backend/deleted"
	for name, tc := range map[string]struct {
		reason  string
		settled func(taken int) error
		waits   bool
	}{
		"settled": {"nothing changes the dump any more", func(int) error { return nil }, false},
		"settling": {"the dump may change until the service has settled", func(taken int) error {
			if taken < 3 {
				return errors.New("a work is on its way")
			}
			return nil
		}, false},
		"unknown": {"the time of the test limits the wait", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder, taken, started := &fatalRecorder{TB: t}, 0, time.Now()
				var settled func() error
				if tc.settled != nil {
					settled = func() error { return tc.settled(taken) }
				}
				Await(recorder, recorded, func() *adminv1.Dump {
					taken++
					return &adminv1.Dump{TakenAt: time.Now(), Cluster: adminv1.Cluster{Name: "other"}}
				}, settled)
				if waited := time.Since(started) > time.Minute; waited != tc.waits || !strings.Contains(recorder.message, `"other"`) {
					t.Errorf("waited %s, failed with %q: %s", time.Since(started), recorder.message, tc.reason)
				}
			})
		})
	}
}
