package inside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// cell stands for the API servers and for the HostedClusters of a management cluster, on virtual time.
type cell struct {
	mu       sync.Mutex
	outcomes map[string]probe.Outcome
	probes   map[string]int
	kept     map[string]bool
	// reports are the annotations, and writes counts them. failure is the result of all writes.
	reports map[string]hostedreport.InsideReport
	times   map[string][]time.Time
	failure error
}

func newCell() *cell {
	return &cell{outcomes: map[string]probe.Outcome{}, probes: map[string]int{}, kept: map[string]bool{}, reports: map[string]hostedreport.InsideReport{}, times: map[string][]time.Time{}}
}

func (c *cell) set(outcome probe.Outcome, uids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		c.outcomes[uid] = outcome
	}
}

func (c *cell) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
}

// Probe takes as long as its result states. It runs in a synctest bubble.
func (c *cell) Probe(_ context.Context, target probe.Target, check probe.Check) probe.Result {
	c.mu.Lock()
	outcome := c.outcomes[target.Cluster]
	c.probes[target.Cluster]++
	c.kept[target.Cluster] = true
	number := c.probes[target.Cluster]
	c.mu.Unlock()
	result := probe.Result{Vantage: probe.Inside, Check: check, Outcome: probe.OK, Duration: 5 * time.Millisecond, CertificateEnd: end}
	if outcome != "" {
		result.Outcome, result.Detail, result.CertificateEnd = outcome, fmt.Sprint("attempt ", number), time.Time{}
	}
	if outcome == probe.Timeout {
		result.Duration = 5 * time.Second
	}
	time.Sleep(result.Duration)
	result.Time = time.Now()
	return result
}

func (c *cell) Forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, uid)
}

func (c *cell) Write(_ context.Context, cluster Cluster, report hostedreport.InsideReport) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	c.reports[cluster.UID] = report
	c.times[cluster.UID] = append(c.times[cluster.UID], time.Now())
	return nil
}

func (c *cell) report(uid string) hostedreport.InsideReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[uid]
}

// writes returns the number of writes of each cluster, and of all.
func (c *cell) writes() (each map[string]int, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	each = map[string]int{}
	for uid, times := range c.times {
		each[uid] = len(times)
		all += len(times)
	}
	return each, all
}

var end = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func targetOf(uid string) probe.Target {
	return probe.Target{Cluster: uid, URL: "https://kube-apiserver." + uid + ".svc:6443", Address: "10.0.0.1:6443", Authorities: "PEM"}
}

func clusterOf(uid string) Cluster {
	return Cluster{UID: uid, Namespace: "ocm-test-" + uid, Name: "hc"}
}

// run starts a Prober of clusters that can be probed.
func run(t *testing.T, c *cell, uids ...string) *Prober {
	t.Helper()
	p := New(c, c, Options{Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
	for _, uid := range uids {
		p.Set(clusterOf(uid), targetOf(uid))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func TestReportsFollowTheStateOfAnAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		run(t, c, "a", "b")
		time.Sleep(5 * time.Second)
		if got := c.report("a"); got.State != hostedreport.InsideAvailable || !got.CertificateEnd.Equal(end) || time.Since(got.Observed) > 5*time.Second {
			t.Errorf("at first: %+v", got)
		}
		for _, outcome := range []probe.Outcome{probe.Refused, probe.Timeout, probe.Etcd} {
			time.Sleep(10 * time.Minute)
			before := c.report("a")
			c.set(outcome, "a")
			broken := time.Now()
			time.Sleep(30 * time.Second)
			if got := c.report("a"); got.State != hostedreport.InsideUnavailable || got.Outcome != string(outcome) || got.Since.Before(broken) || got.Since.Sub(broken) > 20*time.Second || !got.CertificateEnd.Equal(before.CertificateEnd) {
				t.Errorf("30 s after the beginning of %s: %+v", outcome, got)
			}
			if got := c.report("b"); got.State != hostedreport.InsideAvailable {
				t.Errorf("the other cluster: %+v", got)
			}
			c.set("", "a")
			time.Sleep(30 * time.Second)
			if got := c.report("a"); got.State != hostedreport.InsideAvailable || got.Outcome != "" || time.Since(got.Since) > 30*time.Second {
				t.Errorf("30 s after the end of %s: %+v", outcome, got)
			}
		}
	})
}

func TestOneFailureIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		run(t, c, "a")
		time.Sleep(time.Minute)
		for range 10 {
			_, before := c.writes()
			probes := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.probes["a"] }
			c.set(probe.Refused, "a")
			for at := probes(); probes() == at; {
				time.Sleep(100 * time.Millisecond)
			}
			c.set("", "a")
			time.Sleep(30 * time.Second)
			if _, after := c.writes(); c.report("a").State != hostedreport.InsideAvailable || after > before+2 {
				t.Fatalf("after one failure: %+v, %d writes", c.report("a"), after-before)
			}
		}
	})
}

// TestHeartbeatIsOneWriteForAllClusters: nothing changes for an hour. The number of writes does not depend on that of the clusters, and
// all clusters carry the heartbeat in turn.
func TestHeartbeatIsOneWriteForAllClusters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		var uids []string
		for i := range 60 {
			uids = append(uids, fmt.Sprint("cluster-", i))
		}
		p := run(t, c, uids...)
		time.Sleep(5 * time.Minute)
		before, first := c.writes()
		latest := time.Now()
		for range 3600 {
			time.Sleep(time.Second)
			c.mu.Lock()
			for _, report := range c.reports {
				if report.Observed.After(latest) {
					latest = report.Observed
				}
			}
			c.mu.Unlock()
			if age := time.Since(latest); age > hostedreport.InsideBeat+time.Second {
				t.Fatalf("the latest report is %s old", age)
			}
		}
		after, last := c.writes()
		if writes := last - first; writes < 175 || writes > 181 {
			t.Errorf("%d writes in an hour, want one every %s", writes, hostedreport.InsideBeat)
		}
		for _, uid := range uids {
			if writes := after[uid] - before[uid]; writes < 2 || writes > 4 {
				t.Errorf("%s was written %d times in an hour", uid, writes)
			}
		}
		if silent := p.Silent(); silent != 0 {
			t.Errorf("silent for %s", silent)
		}
	})
}

// TestNoAccessMeansNoHeartbeat: the reports of a prober that cannot write them become old, so that nobody believes them. It writes the
// state of the time when it can.
func TestNoAccessMeansNoHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		p := run(t, c, "a")
		time.Sleep(time.Minute)
		c.fail(errors.New("forbidden"))
		written := c.report("a")
		c.set(probe.Refused, "a")
		time.Sleep(judge.StaleAfter)
		if got := c.report("a"); got != written || p.Silent() < time.Minute {
			t.Errorf("without access: %+v, silent for %s", got, p.Silent())
		}
		c.fail(nil)
		time.Sleep(15 * time.Second)
		if got := c.report("a"); got.State != hostedreport.InsideUnavailable || p.Silent() != 0 {
			t.Errorf("with access again: %+v, silent for %s", got, p.Silent())
		}
	})
}

// TestRestartContinuesAnOutage: a prober that starts during an outage reports nothing new before it knows the state, and keeps the
// beginning of the outage.
func TestRestartContinuesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		since := time.Now().Add(-time.Hour).UTC()
		c.set(probe.Etcd, "down")
		down, up := clusterOf("down"), clusterOf("up")
		down.Written = &hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Outcome: string(probe.Etcd), Since: since, Observed: time.Now().Add(-time.Minute)}
		up.Written = &hostedreport.InsideReport{State: hostedreport.InsideAvailable, Since: since, CertificateEnd: end, Observed: time.Now().Add(-time.Minute)}
		p := run(t, c)
		p.Set(down, targetOf("down"))
		p.Set(up, targetOf("up"))
		time.Sleep(5 * time.Minute)
		for uid, want := range map[string]hostedreport.InsideState{"down": hostedreport.InsideUnavailable, "up": hostedreport.InsideAvailable} {
			if got := c.report(uid); got.State != want || !got.Since.Equal(since) {
				t.Errorf("%s: %+v", uid, got)
			}
		}
		if each, _ := c.writes(); each["up"] > 10 || each["down"] > 10 {
			t.Errorf("writes %v", each)
		}
	})
}

// TestClusterWithoutAddressIsUnknown: the Service of an API server disappears, and comes back.
func TestClusterWithoutAddressIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		p := run(t, c, "a")
		p.Set(clusterOf("new"), probe.Target{Cluster: "new"})
		time.Sleep(time.Minute)
		p.Set(clusterOf("a"), probe.Target{Cluster: "a"})
		time.Sleep(time.Minute)
		if got := c.report("a"); got.State != hostedreport.InsideUnknown || got.Detail == "" {
			t.Errorf("without a Service: %+v", got)
		}
		if each, _ := c.writes(); each["new"] != 0 || c.probes["new"] != 0 {
			t.Errorf("a cluster that was never probed was written %d times", each["new"])
		}
		p.Set(clusterOf("a"), targetOf("a"))
		time.Sleep(15 * time.Second)
		if got := c.report("a"); got.State != hostedreport.InsideAvailable {
			t.Errorf("with the Service: %+v", got)
		}
	})
}

func TestRemovedClustersLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCell()
		var uids []string
		for i := range 500 {
			uids = append(uids, fmt.Sprint("cluster-", i))
		}
		p := run(t, c, uids...)
		c.set(probe.Timeout, uids[:50]...)
		time.Sleep(time.Minute)
		for i, uid := range uids {
			if i == 250 {
				c.fail(ErrGone)
			}
			p.Remove(uid)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if left := len(p.clusters) + p.wheel.Len() + len(p.due) + len(p.changed) + p.running + len(c.kept); left != 0 {
			t.Errorf("left: %d clusters, %d times, %d due, %d changed, %d probes, %d connections", len(p.clusters), p.wheel.Len(), len(p.due), len(p.changed), p.running, len(c.kept))
		}
	})
}
