package contract

import (
	"fmt"
	"strconv"
	"time"
)

// Pause is the meaning of spec.pausedUntil at one moment.
type Pause struct {
	// Active is true while reconciliation is paused.
	Active bool
	// Left is the remaining duration of the pause; zero if it lasts until the field is removed.
	Left time.Duration
	// Message is the message of the ReconciliationActive condition.
	Message string
}

// ParsePause parses spec.pausedUntil: an RFC 3339 time, "true" or "false".
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
		return Pause{}, fmt.Errorf("spec.pausedUntil: %q is neither an RFC 3339 time nor a boolean", *pausedUntil)
	}
	if !paused {
		return Pause{}, nil
	}
	return Pause{Active: true, Message: "Reconciliation paused until field removed"}, nil
}
