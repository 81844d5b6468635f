package mqttlink

import (
	"testing"
	"time"
)

// TestPausesAfterConnectionsThatStood: in a region whose broker dropped its clients every few seconds the agents were away for
// most of the time, because a connection had to stand for a hundred seconds for the pauses to begin anew.
func TestPausesAfterConnectionsThatStood(t *testing.T) {
	p := pauses{least: 100 * time.Millisecond, most: 10 * time.Second}
	for range 20 {
		if pause := p.after(2 * time.Second); pause > p.least {
			t.Fatalf("a pause of %s after a connection that stood", pause)
		}
	}
}

func TestPausesGrowWhileConnectionsEndAtOnce(t *testing.T) {
	p := pauses{least: 100 * time.Millisecond, most: 10 * time.Second}
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		stood := time.Duration(i%2) * stableAfter / 2 // never up, or not for long
		if pause := p.after(stood); pause < want*time.Millisecond/2 || pause > want*time.Millisecond {
			t.Errorf("pause %d is %s, want up to %s", i+1, pause, want*time.Millisecond)
		}
	}
	if pause := p.after(stableAfter); pause > p.least {
		t.Errorf("a pause of %s after one that stood", pause)
	}
}
