package conformance

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BenchmarkMaestro prints the figures that the README names: latency of one work at a time, then throughput of many at
// once, each from a source's publish to the agent's report at the source, with everything on this machine.
//
//	go test ./conformance -run xxx -bench Maestro -benchtime 1x
func BenchmarkMaestro(b *testing.B) {
	single, many := 200, 1000
	if n, err := strconv.Atoi(os.Getenv("MAESTRO_BENCH_WORKS")); err == nil {
		many = n
	}
	for range b.N {
		r := newRegion(b)
		server := r.startServer()
		consumer := r.consumer(server)
		r.startAgent(consumer)
		cs := r.source(server, "cluster-service")
		cs.subscribe()
		warm := newBundle(consumer, "warm")
		cs.must("create", warm)
		cs.untilApplied(warm.ID, 1)

		var created, applied []time.Duration
		for range single {
			w := newBundle(consumer, "x")
			start := time.Now()
			cs.must("create", w)
			created = append(created, time.Since(start))
			applied = append(applied, cs.untilApplied(w.ID, 1).At.Sub(start))
		}
		report(b, "publish", created)
		report(b, "applied", applied)

		works := make([]bundle, many)
		for i := range works {
			works[i] = newBundle(consumer, "x")
		}
		start := time.Now()
		inParallel(16, works, func(w bundle) { cs.must("create", w) })
		b.ReportMetric(float64(many)/time.Since(start).Seconds(), "created/s")
		for _, w := range works {
			cs.untilApplied(w.ID, 1)
		}
		b.ReportMetric(float64(many)/time.Since(start).Seconds(), "applied/s")

		start = time.Now()
		inParallel(16, works, func(w bundle) { cs.must("delete", w) })
		for _, w := range works {
			cs.untilDeleted(w.ID)
		}
		b.ReportMetric(float64(many)/time.Since(start).Seconds(), "deleted/s")
		fmt.Printf("machine: %d cores, %s/%s\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	}
}

func report(b *testing.B, what string, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, what+"-p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, what+"-p99-ms")
}

func inParallel(n int, works []bundle, do func(bundle)) {
	next := make(chan bundle)
	var running sync.WaitGroup
	for range n {
		running.Add(1)
		go func() {
			defer running.Done()
			for w := range next {
				do(w)
			}
		}()
	}
	for _, w := range works {
		next <- w
	}
	close(next)
	running.Wait()
}
