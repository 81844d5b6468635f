package observer

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/roster"
)

// reported returns an entry with a report that the prober of its shard wrote now.
func reported(e roster.Entry, report hostedreport.InsideReport) roster.Entry {
	report.Observed = time.Now()
	if report.Since.IsZero() {
		report.Since = report.Observed
	}
	e.Inside = report
	return e
}

var (
	insideGood = hostedreport.InsideReport{State: hostedreport.InsideAvailable}
	insideHung = hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Check: "livez", Outcome: string(probe.Timeout), Detail: "response: i/o timeout"}
)

func blocked(uid, shard string) roster.Entry {
	e := entry(uid, shard)
	e.Cluster.Unprobed, e.Cluster.Nodes = judge.Blocked, judge.Nodes{}
	return e
}

// observationOf returns what is observed about a cluster.
func observationOf(t *testing.T, o *Observer, uid string) Observation {
	t.Helper()
	all, _ := o.Observations()
	for i := range all {
		if all[i].Entry.UID == uid {
			return all[i]
		}
	}
	t.Fatalf("%s is not observed", uid)
	return Observation{}
}

// verdictOf returns the verdict about a cluster.
func verdictOf(t *testing.T, o *Observer, uid string) judge.Verdict {
	t.Helper()
	return observationOf(t, o, uid).Verdict
}

// TestPrivateClusterIsSeenInside follows a private cluster through an outage, and through the time in which the prober of its management
// cluster is away. Another cluster of the shard carries the heartbeat.
func TestPrivateClusterIsSeenInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, registry, _ := run(t, newServers(), 0)
		const private, other = "private", "other"
		beat := func() { o.Set(reported(blocked(other, "mgmt-1"), insideGood)) }
		o.Set(blocked(private, "mgmt-1"))
		if v := verdictOf(t, o, private); v.API != judge.Unknown || v.Reason != judge.Blocked {
			t.Errorf("without a report: %+v", v)
		}
		o.Set(reported(blocked(private, "mgmt-1"), insideGood))
		for range 20 {
			time.Sleep(hostedreport.InsideBeat)
			beat()
		}
		if v := verdictOf(t, o, private); v.API != judge.Available {
			t.Errorf("reported once as available, with heartbeats since: %+v", v)
		}
		o.Set(reported(blocked(private, "mgmt-1"), insideHung))
		if v := verdictOf(t, o, private); v.API != judge.Unavailable || v.Concerns[0].Kind != judge.APIHangs {
			t.Errorf("reported as hung: %+v", v)
		}
		if series := gather(t, registry); series[private] > 10 || series["monitor_inside_last_report_seconds"] != 1 {
			t.Errorf("series %v", series)
		}
		time.Sleep(judge.StaleAfter + time.Second)
		if v := verdictOf(t, o, private); v.API != judge.Unknown || v.Reason != judge.InsideSilent || v.Detail == "" || len(v.Concerns) != 0 {
			t.Errorf("while the prober is away: %+v", v)
		}
		beat()
		if v := verdictOf(t, o, private); v.API != judge.Unavailable {
			t.Errorf("after the prober came back: %+v", v)
		}
		o.Set(reported(blocked(private, "mgmt-1"), insideGood))
		if v := verdictOf(t, o, private); v.API != judge.Available {
			t.Errorf("reported as available again: %+v", v)
		}
		o.Remove(private)
		o.Remove(other)
		if series := gather(t, registry); series["monitor_inside_last_report_seconds"] != 0 || len(o.probers) != 0 {
			t.Errorf("after the deletion of all clusters: %v", series)
		}
	})
}

// TestClosedClusterCounts: the states that the prober of the management cluster reports count for the service level as probes do, from the
// first report of an outage on. Unknown states do not count.
func TestClosedClusterCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := newServers()
		o, registry, _ := run(t, servers, 0)
		const closed, other = "closed", "other"
		// pass lets time pass, in which the other cluster carries the heartbeat, and returns what was counted.
		pass := func(length time.Duration) (probes, failures, expected float64) {
			before := observationOf(t, o, closed)
			for range length / hostedreport.InsideBeat {
				time.Sleep(hostedreport.InsideBeat)
				o.Set(reported(blocked(other, "mgmt-1"), insideGood))
			}
			after := observationOf(t, o, closed)
			return after.Probes - before.Probes, after.Failures - before.Failures, after.Expected - before.Expected
		}
		watched := func() string {
			return fmt.Sprintf("%v of %v", sum(t, registry, "monitor_clusters_probed"), sum(t, registry, "monitor_clusters_expected"))
		}
		o.Set(blocked(closed, "mgmt-1"))
		if probes, _, _ := pass(5 * time.Minute); probes != 0 {
			t.Errorf("without a report of the cluster: %v probes", probes)
		}
		if got := watched(); got != "1 of 2" {
			t.Errorf("without a report of the cluster, %s clusters are observed", got)
		}
		o.Set(reported(blocked(closed, "mgmt-1"), insideGood))
		if probes, failures, expected := pass(10 * time.Minute); probes != 20 || failures != 0 || expected != 0 {
			t.Errorf("available for 10 minutes: %v probes, %v failures, %v expected ones", probes, failures, expected)
		}
		o.Set(reported(blocked(closed, "mgmt-1"), insideHung))
		if probes, failures, _ := pass(time.Minute); failures < 6 || failures != probes {
			t.Errorf("unavailable for a minute: %v probes, %v failures", probes, failures)
		}
		if _, failures, _ := pass(time.Hour); failures < 115 {
			t.Errorf("unavailable for another hour: %v failures", failures)
		}
		upgrading := reported(blocked(closed, "mgmt-1"), insideHung)
		upgrading.Cluster.Upgrading = true
		o.Set(upgrading)
		if _, failures, expected := pass(10 * time.Minute); failures != 0 || expected != 20 {
			t.Errorf("unavailable during an upgrade: %v failures, %v expected ones", failures, expected)
		}
		if series := gather(t, registry); series[closed] > 10 {
			t.Errorf("series %v", series)
		}
		if got := watched(); got != "2 of 2" {
			t.Errorf("with a report of the cluster, %s clusters are observed", got)
		}
		o.Set(reported(blocked(closed, "mgmt-1"), insideGood))
		time.Sleep(judge.StaleAfter + time.Second)
		before := observationOf(t, o, closed).Probes
		time.Sleep(10 * time.Minute)
		if after := observationOf(t, o, closed).Probes; after != before {
			t.Errorf("while the prober is away: %v probes", after-before)
		}
		if got := watched(); got != "0 of 0" {
			t.Errorf("while the prober is away, %s clusters are observed", got)
		}

		o.Set(entry(closed, "mgmt-1"))
		time.Sleep(10 * time.Minute)
		if probes := observationOf(t, o, closed).Probes - before; servers.count(closed) < 20 || probes != float64(servers.count(closed)) {
			t.Errorf("after the API has been opened: %v probes, %d requests", probes, servers.count(closed))
		}
		deleting := blocked(closed, "mgmt-1")
		o.Set(deleting)
		deleting.Cluster.Unprobed = judge.NotReady
		o.Set(deleting)
		o.Remove(other)
		if o.wheel.Len() != 0 {
			t.Error("a cluster that is neither probed nor seen inside is scheduled")
		}
	})
}

// TestSilenceIsRecorded: the journal gets the verdicts that change because a prober fell silent, although nothing else happens.
func TestSilenceIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, _, _ := run(t, newServers(), 0)
		journal := &verdicts{}
		o.journal = journal
		e := reported(blocked("private", "mgmt-1"), insideGood)
		o.Set(e)
		for group := range o.owned {
			o.Restore(group, nil)
		}
		time.Sleep(judge.StaleAfter + time.Second)
		if got := journal.last(); got.Reason != judge.InsideSilent {
			t.Errorf("recorded %+v", got)
		}
		o.Set(reported(blocked("private", "mgmt-1"), insideGood))
		time.Sleep(time.Second)
		if got := journal.last(); got.API != judge.Available {
			t.Errorf("recorded %+v", got)
		}
	})
}

// TestOutageInsideIsConfirmedAtOnce: an outage that the prober inside sees first is not left for the next regular probe.
func TestOutageInsideIsConfirmedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 1)
		time.Sleep(10 * time.Minute)
		s.set(probe.Refused, uids[0])
		o.Set(reported(entry(uids[0], "mgmt-0"), hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Outcome: string(probe.Refused)}))
		time.Sleep(10 * time.Second)
		if v := verdictOf(t, o, uids[0]); v.API != judge.Unavailable || v.Concerns[0].Kind != judge.APIUnreachable {
			t.Errorf("10 s after the report: %+v", v)
		}
	})
}

// TestWayIsNamedByReportsFromInside: nothing answers outside. The way is the concern only after the prober inside had the time to see
// the same outage, and not while it is away.
func TestWayIsNamedByReportsFromInside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServers()
		o, _, uids := run(t, s, 1)
		beat := func() { o.Set(reported(entry(uids[0], "mgmt-0"), insideGood)) }
		beat()
		time.Sleep(time.Minute)
		s.set(probe.ConnectTimeout, uids[0])
		begin := time.Now()
		for time.Since(begin) < 3*time.Minute {
			beat()
			time.Sleep(10 * time.Second)
			v := verdictOf(t, o, uids[0])
			if age := time.Since(begin); v.API == judge.Unavailable && v.Concerns[0].Kind != judge.APIUnreachable && age < time.Minute || age > 2*time.Minute && v.Concerns[0].Kind != judge.WayBroken {
				t.Fatalf("%s after the beginning: %+v", age, v)
			}
		}
		time.Sleep(2 * judge.StaleAfter)
		if v := verdictOf(t, o, uids[0]); v.API != judge.Unavailable || v.Concerns[0].Kind != judge.APIUnreachable {
			t.Errorf("without reports from inside: %+v", v)
		}
	})
}

// verdicts is a Journal that keeps the last verdict.
type verdicts struct {
	mu      sync.Mutex
	verdict judge.Verdict
}

func (v *verdicts) Observe(_ partition.Group, _ string, recorded adminv1.Health, verdict *judge.Verdict, _ map[string]time.Time) adminv1.Health {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.verdict = *verdict
	return recorded
}

func (v *verdicts) Remove(partition.Group, string) {}

func (v *verdicts) SetBlind(string) {}

func (v *verdicts) last() judge.Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.verdict
}
