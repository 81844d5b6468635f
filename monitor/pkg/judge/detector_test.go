package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleet probes clusters of several shards as the program does: every 30 s, and every 5 s after a failure.
type fleet struct {
	detector *Detector
	now      time.Time
	due      map[int]map[string][]string // second → shard → clusters
}

func newFleet(shards, clusters int) *fleet {
	f := &fleet{detector: NewDetector(), now: start, due: map[int]map[string][]string{}}
	for s := range shards {
		for c := range clusters {
			f.plan(c%30, fmt.Sprintf("shard-%d", s), fmt.Sprintf("cluster-%d-%d", s, c))
		}
	}
	return f
}

func (f *fleet) plan(second int, shard, cluster string) {
	if f.due[second] == nil {
		f.due[second] = map[string][]string{}
	}
	f.due[second][shard] = append(f.due[second][shard], cluster)
}

// run advances the fleet by seconds and returns the last View.
func (f *fleet) run(seconds int, reached func(shard, cluster string) bool) View {
	var view View
	for range seconds {
		second := int(f.now.Sub(start) / time.Second)
		for shard, clusters := range f.due[second] {
			for _, cluster := range clusters {
				ok := reached(shard, cluster)
				f.detector.Observe(f.now, cluster, shard, ok)
				if ok {
					f.plan(second+30, shard, cluster)
				} else {
					f.plan(second+5, shard, cluster)
				}
			}
		}
		delete(f.due, second)
		view = f.detector.View(f.now)
		f.now = f.now.Add(time.Second)
	}
	return view
}

func all(string, string) bool  { return true }
func none(string, string) bool { return false }

func TestBlindBeforeSecondFailureOfAnyCluster(t *testing.T) {
	t.Parallel()
	f := newFleet(4, 300)
	if view := f.run(60, all); view.Blind || len(view.Shards) > 0 {
		t.Fatalf("healthy fleet: %+v", view)
	}
	// A cluster is judged after two failures, the second one 5 s after the first.
	if view := f.run(5, none); !view.Blind || view.Reason == "" || len(view.Shards) > 0 {
		t.Errorf("4 s after everything failed: %+v", view)
	}
	if view := f.run(60, none); !view.Blind || view.Since.After(start.Add(66*time.Second)) {
		t.Errorf("a minute later: %+v", view)
	}
	if view := f.run(60, all); view.Blind || !view.Since.IsZero() || len(view.Shards) > 0 {
		t.Errorf("after the end: %+v", view)
	}
}

func TestDeadShardIsNotBlindness(t *testing.T) {
	t.Parallel()
	f := newFleet(4, 300)
	f.run(60, all)
	broken := func(shard, _ string) bool { return shard != "shard-2" }
	view := f.run(30, broken)
	since, dead := view.Shards["shard-2"]
	if view.Blind || !dead || len(view.Shards) != 1 {
		t.Fatalf("30 s after one shard failed: %+v", view)
	}
	if view = f.run(60, broken); !view.Shards["shard-2"].Equal(since) {
		t.Errorf("the shard is unreachable since %v, want %v", view.Shards["shard-2"], since)
	}
	if view = f.run(60, all); len(view.Shards) > 0 {
		t.Errorf("after the end: %+v", view)
	}
}

func TestSomeBrokenClustersOnAllShardsAreNotBlindness(t *testing.T) {
	t.Parallel()
	f := newFleet(4, 300)
	view := f.run(300, func(_, cluster string) bool { return !strings.HasSuffix(cluster, "7") })
	if view.Blind || len(view.Shards) > 0 {
		t.Errorf("with some broken clusters on each shard: %+v", view)
	}
}

func TestUnreachableAnchorsMeanBlindness(t *testing.T) {
	t.Parallel()
	f := newFleet(1, 3)
	f.run(60, all)
	f.detector.ObserveAnchor("a:443", "timeout")
	f.detector.ObserveAnchor("b:443", "timeout")
	if view := f.run(20, none); !view.Blind || view.Reason != "None of the 2 anchors can be reached; a:443: timeout." {
		t.Errorf("without any anchor: %+v", view)
	}
	f.detector.ObserveAnchor("b:443", "")
	if view := f.run(20, none); view.Blind || len(view.Shards) != 1 {
		t.Errorf("with one anchor and a shard that does not answer: %+v", view)
	}
}

// TestCountsMatchSamples: the counts of the shards are those of the samples after any sequence of calls, and nothing is left
// when all samples have expired.
func TestCountsMatchSamples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d, now := NewDetector(), start
		cluster := rapid.StringMatching(`c[0-9]`)
		t.Repeat(map[string]func(*rapid.T){
			"observe": func(t *rapid.T) {
				d.Observe(now, cluster.Draw(t, "cluster"), rapid.StringMatching(`s[0-3]`).Draw(t, "shard"), rapid.Bool().Draw(t, "reached"))
			},
			"forget": func(t *rapid.T) { d.Forget(cluster.Draw(t, "cluster")) },
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(window)).Draw(t, "wait")))
				d.View(now)
			},
			"": func(t *rapid.T) {
				want := map[string]count{}
				for _, s := range d.clusters {
					c := want[s.shard]
					c.probed++
					if !s.reached {
						c.unreached++
					}
					want[s.shard] = c
				}
				if len(want) != len(d.shards) {
					t.Fatalf("%d shards have counts, want %d", len(d.shards), len(want))
				}
				for shard, c := range d.shards {
					if *c != want[shard] {
						t.Fatalf("%s: %+v, want %+v", shard, *c, want[shard])
					}
				}
			},
		})
		d.View(now.Add(window + time.Second))
		if len(d.clusters)+len(d.shards)+len(d.recent) > 0 {
			t.Fatalf("after the window: %+v", d)
		}
	})
}
