// Package refusalcost measures whether a parser of input from outside spends more on input that it refuses than on input that it accepts. Each benchmark
// measures both in turn, so that the load of the machine changes both.
package refusalcost

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// turn is the least number of bytes that are parsed in each turn.
const turn = 256 << 10

// cost is the sum of the time and the memory that parsing needed.
type cost struct {
	bytes, memory float64
	time          time.Duration
}

// processorTime returns the time that the processors have spent on this process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the arguments are constants
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure parses a content at least once, and until turn bytes are parsed.
func (c *cost) measure(content []byte, parse func([]byte) error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, times := processorTime(), 1+turn/(1+len(content))
	for range times {
		_ = parse(content) // check has checked the result
	}
	c.time += processorTime() - began
	runtime.ReadMemStats(&after)
	c.memory += float64(after.TotalAlloc - before.TotalAlloc)
	c.bytes += float64(times * len(content))
}

// ratios returns the time and the memory per byte of refused contents by those of accepted ones.
func ratios(refuses, accepts cost) (time, memory float64) {
	return float64(refuses.time) / refuses.bytes / (float64(accepts.time) / accepts.bytes), refuses.memory / refuses.bytes / (accepts.memory / accepts.bytes)
}

// check fails the test unless the contents are accepted and refused.
func check(tb testing.TB, accepted, refused []byte, parse func([]byte) error) {
	tb.Helper()
	if err := parse(accepted); err != nil {
		tb.Fatalf("the accepted content is refused: %v", err)
	}
	if parse(refused) == nil {
		tb.Fatal("the refused content is accepted")
	}
}

// tolerance is how much more memory per byte a refused content may need than the accepted one: the error of a small content.
const tolerance = 0.25

// CheckMemory fails the test for each refused content that needs more memory per byte than the accepted one. Run it with no other test at the same time.
func CheckMemory(t *testing.T, accepted []byte, refused map[string][]byte, parse func([]byte) error) {
	_ = parse(accepted) // fills caches
	var accepts cost
	accepts.measure(accepted, parse)
	for name, content := range refused {
		t.Run(name, func(t *testing.T) {
			check(t, accepted, content, parse)
			var refuses cost
			refuses.measure(content, parse)
			if _, memory := ratios(refuses, accepts); memory > 1+tolerance {
				t.Errorf("a refused content of %d bytes needs %.1f times the memory per byte of an accepted one", len(content), memory)
			}
		})
	}
}

// Compare runs a benchmark for each refused content. It reports the time and the allocated memory per byte of the accepted and of the refused content, and
// the ratios of refused to accepted. The contents must be as large as a client may send.
func Compare(b *testing.B, accepted []byte, refused map[string][]byte, parse func([]byte) error) {
	for name, content := range refused {
		b.Run(name, func(b *testing.B) {
			check(b, accepted, content, parse)
			var accepts, refuses cost
			for b.Loop() {
				accepts.measure(accepted, parse)
				refuses.measure(content, parse)
			}
			time, memory := ratios(refuses, accepts)
			b.ReportMetric(0, "ns/op") // it has no meaning for two contents
			b.ReportMetric(float64(accepts.time.Nanoseconds())/accepts.bytes, "accepted-ns/B")
			b.ReportMetric(float64(refuses.time.Nanoseconds())/refuses.bytes, "refused-ns/B")
			b.ReportMetric(accepts.memory/accepts.bytes, "accepted-B/B")
			b.ReportMetric(refuses.memory/refuses.bytes, "refused-B/B")
			b.ReportMetric(time, "time-ratio")
			b.ReportMetric(memory, "memory-ratio")
		})
	}
}

// Filled returns a text of at most size bytes: a beginning, as many items as fit, and an end.
func Filled(size int, begin, item, end string) []byte {
	content := append(make([]byte, 0, size), begin...)
	for len(content)+len(item)+len(end) <= size {
		content = append(content, item...)
	}
	return append(content, end...)
}

// Numbered is Filled with items of different names: format has a verb for the number of the item.
func Numbered(size int, begin, format, end string) []byte {
	content := append(make([]byte, 0, size), begin...)
	for i := 0; ; i++ {
		item := fmt.Sprintf(format, i)
		if len(content)+len(item)+len(end) > size {
			return append(content, end...)
		}
		content = append(content, item...)
	}
}

// Texts returns texts of a size that no parser of a JSON object with a schema accepts, by what they have much of.
func Texts(size int) map[string][]byte {
	return map[string][]byte{
		"open lists":           Filled(size, "", "[", ""),
		"open objects":         Filled(size, "", `{"a":`, ""),
		"numbers":              Filled(size, "[", "1,", "1]"),
		"numbers before text":  Filled(size, `{"a":[`, "1,", "1]} x"),
		"empty objects":        Filled(size, `{"a":[`, "{},", "{}]} x"),
		"unended string":       Filled(size, `{"a":"`, "a", ""),
		"escapes before text":  Filled(size, `{"a":"`, `\u0041`, `"} x`),
		"not closed":           Filled(size, "{", `"a":{"b":[1,"c",null]},`, `"d":1`),
		"same field":           Filled(size, "{", `"a":1,`, `"a":1}`),
		"names before text":    Numbered(size, "{", `"%d":1,`, `"d":1} x`),
		"same name at the end": Numbered(size, `{"a":1,`, `"%d":1,`, `"a":1}`),
	}
}
