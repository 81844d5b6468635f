package process

import (
	"os"
	"runtime/debug"
)

// PaceCollector tunes the garbage collector of a process with a small live heap and much garbage per request, where the default
// settings would run it after every hundred requests. It runs when the heap has grown by percent of the live heap, and more
// often when memory approaches limit, in bytes. GOGC and GOMEMLIMIT in the environment take precedence.
func PaceCollector(percent int, limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
