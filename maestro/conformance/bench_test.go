//go:build nightly

package conformance

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// figures are the results of BenchmarkMaestro by name with the unit.
type figures map[string]float64

// BenchmarkMaestro measures the latency of single works and the throughput of many, each from the request of a source to the
// report of the agent at the source, with everything on this machine. If the published server is built (`build.sh maestro`), it and the
// published agent are measured in the same run, and each figure is followed by the ratio of ours to theirs.
//
//	go test -tags nightly ./conformance -run xxx -bench Maestro -benchtime 1x
func BenchmarkMaestro(b *testing.B) {
	fmt.Printf("machine: %d cores, %s/%s\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	var theirs figures
	b.Run("published", func(b *testing.B) {
		published(b)
		for range b.N {
			r := newRegion(b)
			server := r.startPublishedServer()
			consumer := r.newConsumer(server)
			r.startPublishedAgent(consumer)
			theirs = measure(b, r.source(server, "cluster-service"), consumer)
		}
		theirs.report(b, nil)
	})
	b.Run("ours", func(b *testing.B) {
		var ours figures
		for range b.N {
			r := newRegion(b)
			r.Tune = func(c *app.Config) { c.MaxConnections = 0 }
			server := r.StartServer()
			consumer := r.consumer(server)
			r.startAgent(consumer)
			ours = measure(b, r.source(server, "cluster-service"), consumer)
		}
		ours.report(b, theirs)
	})
}

func measure(b *testing.B, cs *source, consumer string) figures {
	single, many := 200, 1000
	if n, err := strconv.Atoi(os.Getenv("MAESTRO_BENCH_WORKS")); err == nil {
		many = n
		single = min(single, n)
	}
	cs.subscribe()
	warm := newBundle(consumer, "warm")
	cs.must("create", warm)
	cs.untilApplied(warm.ID, 1)
	taken := figures{}

	var created, applied []time.Duration
	for range single {
		w := newBundle(consumer, "x")
		start := time.Now()
		cs.must("create", w)
		created = append(created, time.Since(start))
		applied = append(applied, cs.untilApplied(w.ID, 1).At.Sub(start))
	}
	taken.durations("publish", created)
	taken.durations("applied", applied)

	works := make([]bundle, many)
	for i := range works {
		works[i] = newBundle(consumer, "x")
	}
	start := time.Now()
	cs.mustAll("create", works, 16)
	taken["created/s"] = float64(many) / time.Since(start).Seconds()
	for _, w := range works {
		cs.untilApplied(w.ID, 1)
	}
	taken["applied/s"] = float64(many) / time.Since(start).Seconds()

	start = time.Now()
	cs.mustAll("delete", works, 16)
	last, unreported := cs.deletions(works)
	taken["deleted/s"] = float64(many-unreported) / last.Sub(start).Seconds()
	taken["deletions-unreported"] = float64(unreported)
	return taken
}

// deletions waits for the deletions of works and returns the time of the last report and the number of unreported deletions. The
// published server may omit some, or send older statuses after a deletion; that must not stop the benchmark.
func (s *source) deletions(works []bundle) (last time.Time, unreported int) {
	const timeout = time.Minute // since the last report
	deleted := map[string]time.Time{}
	last = time.Now()
	for len(deleted) < len(works) && time.Since(last) < timeout {
		s.mu.Lock()
		for _, w := range works {
			if _, known := deleted[w.ID]; known {
				continue
			}
			if i := slices.IndexFunc(s.seen[w.ID], func(st statusEvent) bool { return st.is("Deleted") }); i >= 0 {
				deleted[w.ID] = s.seen[w.ID][i].At
				if deleted[w.ID].After(last) {
					last = deleted[w.ID]
				}
			}
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
		cancel()
	}
	return last, len(works) - len(deleted)
}

func (f figures) durations(what string, times []time.Duration) {
	slices.Sort(times)
	f[what+"-p50-ms"] = float64(times[len(times)/2].Microseconds()) / 1000
	f[what+"-p99-ms"] = float64(times[len(times)*99/100].Microseconds()) / 1000
}

// report reports the figures and, if the reference is not nil, their ratios to it.
func (f figures) report(b *testing.B, reference figures) {
	for what, figure := range f {
		b.ReportMetric(figure, what)
		if published := reference[what]; published > 0 {
			b.ReportMetric(figure/published, what+"-of-published")
		}
	}
}
