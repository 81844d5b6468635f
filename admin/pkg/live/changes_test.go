package live

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSourcesHaveTheGivenClock checks that the watch of Cluster Service becomes stale by the clock of the options, as the change feeds do.
func TestSourcesHaveTheGivenClock(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	changes := NewChanges(Options{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	changes.NoteAdminRead()
	fresh := func(want bool) {
		t.Helper()
		for _, source := range changes.Region().Sources {
			if got := source.Fresh(); got != want {
				t.Errorf("%T is fresh: %t, want %t", source, got, want)
			}
		}
	}
	fresh(true)
	now = now.Add(maxStaleness + time.Second)
	fresh(false)
}
