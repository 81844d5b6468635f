package process

import (
	"os"
	"runtime/debug"
)

// PaceCollector sets the pace of the garbage collector for a process of which little lives, while every request leaves much
// behind: by default the collector would run after every hundred requests. It runs when the heap has grown by percent of
// what lives, and as often as it must when memory grows towards limit, in bytes. GOGC and GOMEMLIMIT in the environment
// have the last word.
func PaceCollector(percent int, limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
