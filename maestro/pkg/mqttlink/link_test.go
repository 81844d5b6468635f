package mqttlink

import (
	"testing"
	"time"
)

// TestBackoffResetsAfterStableConnections: when the broker dropped its clients every few seconds, the agents were
// disconnected most of the time, because the pauses did not become short again after connections of such a length.
func TestBackoffResetsAfterStableConnections(t *testing.T) {
	l := New(Options{})
	for range 20 {
		if pause := l.pauseAfter(2 * time.Second); pause > l.o.MinBackoff {
			t.Fatalf("pause of %s after a stable connection", pause)
		}
	}
}

func TestBackoffGrowsWhileConnectionsBreakAtOnce(t *testing.T) {
	l := New(Options{})
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		up := time.Duration(i%2) * stableAfter / 2 // never up, or not for long
		if pause := l.pauseAfter(up); pause < want*time.Millisecond/2 || pause > want*time.Millisecond+time.Nanosecond {
			t.Errorf("pause %d is %s, want up to %s", i+1, pause, want*time.Millisecond)
		}
	}
	if pause := l.pauseAfter(stableAfter); pause > l.o.MinBackoff {
		t.Errorf("pause of %s after a stable connection", pause)
	}
}
