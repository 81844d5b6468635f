package contract

import (
	"fmt"
	"strconv"
	"time"
)

// Pause is what spec.pausedUntil means at one moment.
type Pause struct {
	// Active: nothing is to be reconciled.
	Active bool
	// Left is how long the pause lasts; zero when it lasts until the field is removed.
	Left time.Duration
	// Message is what the ReconciliationActive condition says.
	Message string
}

// ParsePause reads spec.pausedUntil: an RFC 3339 time, "true" or "false".
func ParsePause(pausedUntil *string, now time.Time) (Pause, error) {
	if pausedUntil == nil || *pausedUntil == "" {
		return Pause{}, nil
	}
	if until, err := time.Parse(time.RFC3339, *pausedUntil); err == nil {
		left := until.Sub(now)
		if left <= 0 {
			return Pause{}, nil
		}
		return Pause{Active: true, Left: left, Message: "Reconciliation paused until: " + until.UTC().Format(time.RFC3339)}, nil
	}
	paused, err := strconv.ParseBool(*pausedUntil)
	if err != nil {
		return Pause{}, fmt.Errorf("pausedUntil %q is neither a time nor a boolean", *pausedUntil)
	}
	if !paused {
		return Pause{}, nil
	}
	return Pause{Active: true, Message: "Reconciliation paused until field removed"}, nil
}
