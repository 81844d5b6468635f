package observer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/roster"
)

// servers stands for the API servers. A probe takes the duration of its outcome, on virtual time.
type servers struct {
	mu       sync.Mutex
	outcomes map[string]probe.Outcome
	probes   map[string][]time.Time
	checks   map[probe.Check]int
	kept     map[string]bool
}

func newServers() *servers {
	return &servers{outcomes: map[string]probe.Outcome{}, probes: map[string][]time.Time{}, checks: map[probe.Check]int{}, kept: map[string]bool{}}
}

func (s *servers) set(outcome probe.Outcome, uids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range uids {
		s.outcomes[uid] = outcome
	}
}

// Probe takes as long as its result states. It runs in a synctest bubble.
func (s *servers) Probe(_ context.Context, target probe.Target, check probe.Check) probe.Result {
	s.mu.Lock()
	outcome, kept := s.outcomes[target.Cluster], s.kept[target.Cluster]
	s.probes[target.Cluster] = append(s.probes[target.Cluster], time.Now())
	s.checks[check]++
	s.mu.Unlock()
	result := probe.Result{Vantage: probe.Outside, Check: check, Outcome: probe.OK, Duration: 5 * time.Millisecond}
	switch {
	case outcome == "":
	case outcome == probe.Timeout && kept:
		result.Outcome, result.Duration = outcome, 8*time.Second
	case outcome == probe.Timeout:
		result.Outcome, result.Duration = outcome, 5*time.Second
	default:
		result.Outcome = outcome
	}
	time.Sleep(result.Duration)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[target.Cluster] = result.Outcome == probe.OK
	result.Time = time.Now()
	return result
}

func (s *servers) Forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, uid)
}

// count returns the number of probes of a cluster.
func (s *servers) count(uid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.probes[uid])
}

func (s *servers) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, kept := range s.kept {
		if kept {
			count++
		}
	}
	return count
}

// run starts an Observer of clusters on two shards that have been ready for a day, owning all groups.
func run(t *testing.T, s *servers, clusters int) (o *Observer, registry *prometheus.Registry, uids []string) {
	t.Helper()
	registry = prometheus.NewRegistry()
	o = New(s, NewMetrics(registry), Options{Log: slog.New(slog.DiscardHandler)})
	registry.MustRegister(NewCollector(o))
	for i := range clusters {
		uids = append(uids, fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		o.Set(entry(uids[i], fmt.Sprint("mgmt-", i%2)))
	}
	for g := range Groups {
		o.GroupAcquired(partition.Group(g))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); o.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return o, registry, uids
}

func entry(uid, shard string) roster.Entry {
	return roster.Entry{UID: uid, ResourceID: "/clusters/" + uid, Version: "4.21.1", Target: probe.Target{Cluster: uid, URL: "https://api." + uid},
		Cluster: judge.Cluster{Shard: shard, ReadySince: time.Now().Add(-24 * time.Hour), Nodes: judge.Nodes{Wanted: 3, Ready: 2,
			Machines: judge.Condition{Part: judge.Part{Status: "False", Since: time.Now().Add(-time.Hour)}, Pool: "workers"}}}}
}

func states(o *Observer) map[judge.API]int {
	all, _ := o.Observations()
	counts := map[judge.API]int{}
	for i := range all {
		counts[all[i].Verdict.API]++
	}
	return counts
}

func TestEveryClusterIsProbedEveryInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 2000)
		time.Sleep(10*Interval + time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, uid := range uids {
			probes := s.probes[uid]
			if len(probes) < 10 || len(probes) > 12 {
				t.Fatalf("%s was probed %d times in 10 intervals", uid, len(probes))
			}
			for i := 1; i < len(probes)-1; i++ { // the first probe may be early; see firstProbe
				if gap := probes[i+1].Sub(probes[i]); gap < Interval-3*time.Second || gap > Interval+3*time.Second {
					t.Fatalf("%s: %s between two probes", uid, gap)
				}
			}
		}
		if ratio := float64(s.checks[probe.Livez]) / float64(s.checks[probe.Readyz]); ratio < 3 || ratio > 5.5 {
			t.Errorf("%d probes of livez and %d of readyz", s.checks[probe.Livez], s.checks[probe.Readyz])
		}
		if counts := states(o); counts[judge.Available] != len(uids) {
			t.Errorf("states %v", counts)
		}
	})
}

// TestDeadAPIIsFoundWithin45Seconds breaks one API at different times of its interval, in a way that is found at once and in
// the slowest way.
func TestDeadAPIIsFoundWithin45Seconds(t *testing.T) {
	t.Parallel()
	for _, outcome := range []probe.Outcome{probe.Refused, probe.Timeout} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServers()
				o, _, uids := run(t, s, 10)
				for i, uid := range uids {
					time.Sleep(2*time.Minute + time.Duration(i)*3*time.Second)
					s.set(outcome, uid)
					broken := time.Now()
					for states(o)[judge.Unavailable] != i+1 {
						if time.Since(broken) > 45*time.Second {
							t.Fatalf("%s: %s after 45 s: %v", uid, outcome, states(o))
						}
						time.Sleep(100 * time.Millisecond)
					}
				}
			})
		})
	}
}

func TestRecoveredAPIIsAvailableAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 1)
		time.Sleep(time.Minute)
		s.set(probe.Etcd, uids[0])
		time.Sleep(time.Hour)
		all, _ := o.Observations()
		if v := all[0].Verdict; v.API != judge.Unavailable || v.Concerns[0].Kind != judge.EtcdFails || time.Since(v.Concerns[0].Since) < 58*time.Minute {
			t.Errorf("after an hour: %+v", v)
		}
		if all[0].Failures < 100 || all[0].Expected != 0 {
			t.Errorf("%v failures count and %v do not", all[0].Failures, all[0].Expected)
		}
		s.set("", uids[0])
		time.Sleep(45 * time.Second)
		if counts := states(o); counts[judge.Available] != 1 {
			t.Errorf("45 s after the end: %v", counts)
		}
	})
}

// TestUnreachableShardDoesNotDelayOthers: the probes of 300 clusters time out.
func TestUnreachableShardDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 600)
		time.Sleep(2 * time.Minute)
		for i := 0; i < len(uids); i += 2 {
			s.set(probe.ConnectTimeout, uids[i])
		}
		time.Sleep(45 * time.Second)
		all, view := o.Observations()
		if _, unreachable := view.Shards["mgmt-0"]; view.Blind || !unreachable || len(view.Shards) != 1 {
			t.Errorf("45 s after the shard failed: %+v", view)
		}
		for i := range all {
			shard, v := all[i].Entry.Cluster.Shard, &all[i].Verdict
			if shard == "mgmt-1" && (v.API != judge.Available || time.Since(all[i].Last.Time) > Interval+3*time.Second) {
				t.Fatalf("a cluster of the other shard: %+v", all[i])
			}
			if v.API == judge.Unavailable && v.Concerns[0].Kind != judge.ShardUnreachable {
				t.Fatalf("a cluster of the shard: %+v", v)
			}
		}
	})
}

func TestBlindMonitorStatesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, registry, uids := run(t, s, 600)
		time.Sleep(2 * time.Minute)
		s.set(probe.Unreachable, uids...)
		for range 60 {
			time.Sleep(time.Second)
			if counts := states(o); counts[judge.Unavailable] > 0 {
				t.Fatalf("states %v", counts)
			}
		}
		if counts := states(o); counts[judge.Unknown] != len(uids) {
			t.Errorf("after a minute: %v", counts)
		}
		if series := gather(t, registry); series["monitor_blind"] != 1 || series["monitor_cluster_api_up"] != 0 {
			t.Errorf("series %v", series)
		}
		s.set("", uids...)
		time.Sleep(2 * time.Minute)
		if counts := states(o); counts[judge.Available] != len(uids) {
			t.Errorf("2 minutes after the end: %v", counts)
		}
	})
}

// gather returns the number of series by metric, for those of clusters also by cluster with the name "UID". The value of
// monitor_blind is its own.
func gather(t *testing.T, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	series := map[string]int{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			series[family.GetName()]++
			for _, label := range metric.GetLabel() {
				if label.GetName() == "cluster_uid" {
					series[label.GetValue()]++
				}
			}
			if family.GetName() == "monitor_blind" {
				series["monitor_blind"] = int(metric.GetGauge().GetValue())
			}
		}
	}
	return series
}

// sum returns the sum of the values of a gauge.
func sum(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	total := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name {
				total += metric.GetGauge().GetValue()
			}
		}
	}
	return total
}

func TestDeletedClustersLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, registry, uids := run(t, s, 500)
		o.Set(roster.Entry{UID: "blocked", Cluster: judge.Cluster{Shard: "mgmt-1", ReadySince: time.Now(), Unprobed: judge.Blocked}})
		s.set(probe.CertificateExpired, uids[:100]...)
		time.Sleep(5 * time.Minute)
		series := gather(t, registry)
		for _, uid := range uids {
			if series[uid] < 5 || series[uid] > 10 {
				t.Fatalf("%s has %d series, want at most 10", uid, series[uid])
			}
		}
		if expected, probed := sum(t, registry, "monitor_clusters_expected"), sum(t, registry, "monitor_clusters_probed"); expected != 501 || probed != 500 {
			t.Errorf("%v clusters are expected and %v were probed, want 501 and 500: nothing has reported the blocked one", expected, probed)
		}
		for _, uid := range append(uids, "blocked") {
			o.Remove(uid)
		}
		time.Sleep(time.Minute)
		for name, count := range gather(t, registry) {
			if strings.HasPrefix(name, "monitor_cluster") && count > 0 || strings.HasPrefix(name, "0000") {
				t.Errorf("%d series %s are left", count, name)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.wheel.Len()+len(o.clusters)+len(o.entries)+len(o.perShard)+o.running+s.connections() != 0 {
			t.Errorf("left: %d times, %d clusters, %d entries, %v, %d probes, %d connections", o.wheel.Len(), len(o.clusters), len(o.entries), o.perShard, o.running, s.connections())
		}
		if view := o.detector.View(time.Now().Add(time.Minute)); view.Blind || len(view.Shards) > 0 {
			t.Errorf("%+v", view)
		}
	})
}

// TestTakeover: a replica that loses its groups stops at once, and the next owner, ten seconds later, knows the state of every cluster
// within an interval. It soon makes up for the probes that nobody sent meanwhile.
func TestTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		first, registry, uids := run(t, s, 200)
		time.Sleep(2 * time.Minute)
		for g := range Groups {
			first.GroupLost(partition.Group(g))
		}
		time.Sleep(10 * time.Second)
		if series := gather(t, registry); series["monitor_cluster_info"] != 0 || s.connections() != 0 {
			t.Errorf("the first replica has %d clusters and %d connections", series["monitor_cluster_info"], s.connections())
		}
		s.mu.Lock()
		before := maps.Clone(s.probes)
		s.mu.Unlock()
		second, _, _ := run(t, s, len(uids))
		time.Sleep(Interval + time.Second)
		if counts := states(second); counts[judge.Available] != len(uids) {
			t.Errorf("an interval after the takeover: %v", counts)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for uid, probes := range s.probes {
			last := before[uid][len(before[uid])-1]
			if gap := probes[len(before[uid])].Sub(last); gap > 50*time.Second {
				t.Errorf("%s: %s between the probes of the two replicas", uid, gap)
			}
		}
	})
}

func TestUnprobedClusterIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 1)
		time.Sleep(time.Minute)
		blocked := entry(uids[0], "mgmt-0")
		blocked.Cluster.Unprobed = judge.Blocked
		o.Set(blocked)
		probes := s.count(uids[0])
		time.Sleep(10 * time.Minute)
		all, _ := o.Observations()
		if v := all[0].Verdict; v.API != judge.Unknown || v.Reason != judge.Blocked || s.count(uids[0]) != probes || s.connections() != 0 {
			t.Errorf("blocked: %+v after %d probes more", v, s.count(uids[0])-probes)
		}
		o.Set(entry(uids[0], "mgmt-0"))
		time.Sleep(Interval + time.Second)
		if counts := states(o); counts[judge.Available] != 1 {
			t.Errorf("allowed again: %v", counts)
		}
	})
}
