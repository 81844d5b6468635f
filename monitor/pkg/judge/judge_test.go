package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// results are probes at intervals of 10 s from start. Their durations are 10 ms.
func results(vantage probe.Vantage, outcomes ...probe.Outcome) []probe.Result {
	var all []probe.Result
	for i, outcome := range outcomes {
		all = append(all, probe.Result{Vantage: vantage, Check: probe.Livez, Outcome: outcome, Duration: 10 * time.Millisecond,
			Time: start.Add(time.Duration(i) * 10 * time.Second)})
	}
	return all
}

func repeated(outcome probe.Outcome, count int) []probe.Outcome {
	outcomes := make([]probe.Outcome, count)
	for i := range outcomes {
		outcomes[i] = outcome
	}
	return outcomes
}

func TestJudge(t *testing.T) {
	t.Parallel()
	ready := Cluster{Shard: "mgmt-1", ReadySince: start.Add(-24 * time.Hour)}
	type want struct {
		API    API
		Reason Reason
		During Period
		Counts bool
		Kinds  []Kind
	}
	with := func(change func(*Cluster)) Cluster {
		c := ready
		change(&c)
		return c
	}
	private := func(c *Cluster) { c.Unprobed = Blocked }
	part := func(status string) Part { return Part{Status: status, Since: start.Add(-2 * time.Minute)} }
	down := func(kinds ...Kind) want { return want{API: Unavailable, Counts: true, Kinds: kinds} }
	for reason, c := range map[string]struct {
		cluster         Cluster
		outside, inside []probe.Outcome
		view            View
		later           time.Duration
		certificate     time.Duration
		slow            bool
		want            want
	}{
		"healthy": {cluster: ready, outside: repeated(probe.OK, 3), want: want{API: Available, Counts: true}},
		"silence, and the API server works inside": {cluster: with(func(c *Cluster) { c.APIServer, c.Etcd = part("True"), part("True") }),
			outside: repeated(probe.ConnectTimeout, 9), want: down(WayBroken)},
		"the report from inside may be older than the outage": {cluster: with(func(c *Cluster) { c.APIServer = part("True") }),
			outside: repeated(probe.ConnectTimeout, 4), want: down(APIUnreachable)},
		"an API server that was repaired just now waits for the next probe": {cluster: with(func(c *Cluster) {
			c.APIServer = Part{Status: "True", Since: start.Add(80 * time.Second)}
		}), outside: repeated(probe.Refused, 9), want: down(APIUnreachable)},
		"silence, and the API server does not work inside": {cluster: with(func(c *Cluster) { c.APIServer, c.Etcd = part("False"), part("True") }),
			outside: repeated(probe.Refused, 9), want: down(APIUnreachable)},
		"a hung API server does not work inside": {cluster: with(func(c *Cluster) { c.APIServer = part("False") }), outside: repeated(probe.Timeout, 9), want: down(APIHangs)},
		"silence because of etcd": {cluster: with(func(c *Cluster) { c.APIServer, c.Etcd = part("False"), part("False") }),
			outside: repeated(probe.Refused, 9), want: down(EtcdFails)},
		"an unresolved name is its own cause": {cluster: with(func(c *Cluster) { c.APIServer = part("True") }), outside: repeated(probe.DNS, 9), want: down(NameUnresolved)},
		"an answer is closer to the cause than a report": {cluster: with(func(c *Cluster) { c.APIServer, c.Etcd = part("False"), part("False") }),
			outside: repeated(probe.ServerError, 9), want: down(APIFails)},
		"etcd fails and the API still answers": {cluster: with(func(c *Cluster) { c.Etcd = part("False") }), outside: repeated(probe.OK, 3),
			want: want{API: Available, Counts: true, Kinds: []Kind{EtcdFails}}},
		"a private cluster without its API server": {cluster: with(func(c *Cluster) { c.Unprobed, c.APIServer = Blocked, part("False") }),
			want: want{API: Unknown, Reason: Blocked, Kinds: []Kind{APIFails}}},
		"one success is enough at first":         {cluster: ready, outside: repeated(probe.OK, 1), want: want{API: Available, Counts: true}},
		"one failure is not enough":              {cluster: ready, outside: []probe.Outcome{probe.OK, probe.Refused}, want: want{API: Available, Counts: true}},
		"a single failure determines no state":   {cluster: ready, outside: []probe.Outcome{probe.Refused}, want: want{API: Unknown, Reason: NotProbed}},
		"two failures":                           {cluster: ready, outside: []probe.Outcome{probe.OK, probe.Refused, probe.Refused}, want: down(APIUnreachable)},
		"two successes after an outage":          {cluster: ready, outside: []probe.Outcome{probe.Refused, probe.Refused, probe.OK, probe.OK}, want: down(APIUnreachable)},
		"three successes after an outage":        {cluster: ready, outside: []probe.Outcome{probe.Refused, probe.Refused, probe.OK, probe.OK, probe.OK}, want: want{API: Available, Counts: true}},
		"etcd":                                   {cluster: ready, outside: repeated(probe.Etcd, 2), want: down(EtcdFails)},
		"hangs":                                  {cluster: ready, outside: repeated(probe.Timeout, 2), want: down(APIHangs)},
		"overload":                               {cluster: ready, outside: repeated(probe.Overloaded, 2), want: down(APIOverloaded)},
		"other authority":                        {cluster: ready, outside: repeated(probe.CertificateUntrusted, 2), want: down(CertificateUntrusted)},
		"way broken":                             {cluster: ready, outside: repeated(probe.ConnectTimeout, 9), inside: repeated(probe.OK, 9), want: down(WayBroken)},
		"inside good when the outage began":      {cluster: ready, outside: repeated(probe.ConnectTimeout, 2), inside: repeated(probe.OK, 2), want: down(APIUnreachable)},
		"shard unreachable, inside good":         {cluster: ready, outside: repeated(probe.ConnectTimeout, 9), inside: repeated(probe.OK, 9), view: View{Shards: map[string]time.Time{"mgmt-1": start}}, want: down(ShardUnreachable)},
		"inside fails, outside not probed since": {cluster: ready, outside: repeated(probe.OK, 2), inside: repeated(probe.Refused, 2), want: want{API: Available, Counts: true}},
		"name unresolved, inside good":           {cluster: ready, outside: repeated(probe.DNS, 9), inside: repeated(probe.OK, 9), want: down(NameUnresolved)},
		"wrong certificate outside":              {cluster: ready, outside: repeated(probe.CertificateName, 2), inside: repeated(probe.OK, 2), want: down(CertificateName)},
		"inside sees the cause":                  {cluster: ready, outside: repeated(probe.Refused, 2), inside: repeated(probe.Etcd, 2), want: down(EtcdFails)},
		"inside fails, customers do not":         {cluster: ready, outside: repeated(probe.OK, 9), inside: repeated(probe.Refused, 9), want: want{API: Available, Counts: true, Kinds: []Kind{InsideUnreachable}}},
		"private, inside good":                   {cluster: with(private), inside: repeated(probe.OK, 2), want: want{API: Available, Counts: true}},
		"private, inside bad":                    {cluster: with(private), inside: repeated(probe.ServerError, 2), want: down(APIFails)},
		"private, inside hangs":                  {cluster: with(private), inside: repeated(probe.Timeout, 2), want: down(APIHangs)},
		"private, inside silent":                 {cluster: with(private), inside: repeated(probe.OK, 2), later: 2 * time.Minute, want: want{API: Unknown, Reason: InsideSilent}},
		"private, down when inside fell silent":  {cluster: with(private), inside: repeated(probe.Timeout, 2), later: 2 * time.Minute, want: want{API: Unknown, Reason: InsideSilent}},
		"private, inside cannot probe":           {cluster: with(private), inside: []probe.Outcome{probe.Local}, want: want{API: Unknown, Reason: ProbeFailed}},
		"private, and no endpoint is known":      {cluster: Cluster{ReadySince: ready.ReadySince, Unprobed: NoEndpoint}, inside: repeated(probe.OK, 2), want: want{API: Unknown, Reason: NoEndpoint}},
		"private without an inside vantage":      {cluster: Cluster{ReadySince: ready.ReadySince, Unprobed: Blocked}, want: want{API: Unknown, Reason: Blocked}},
		"no authority known":                     {cluster: Cluster{ReadySince: ready.ReadySince, Unprobed: NoEndpoint}, want: want{API: Unknown, Reason: NoEndpoint}},
		"not ready":                              {cluster: Cluster{}, outside: repeated(probe.OK, 2), want: want{API: Unknown, Reason: NotReady}},
		"never probed":                           {cluster: ready, want: want{API: Unknown, Reason: NotProbed}},
		"probed long ago":                        {cluster: ready, outside: repeated(probe.OK, 3), later: 2 * time.Minute, want: want{API: Unknown, Reason: NotProbed}},
		"monitor out of descriptors":             {cluster: ready, outside: []probe.Outcome{probe.OK, probe.Local}, want: want{API: Unknown, Reason: ProbeFailed}},
		"blind":                                  {cluster: ready, outside: repeated(probe.Refused, 3), view: View{Blind: true, Reason: "Two shards."}, want: want{API: Unknown, Reason: Blind}},
		"shard unreachable":                      {cluster: ready, outside: repeated(probe.ConnectTimeout, 2), view: View{Shards: map[string]time.Time{"mgmt-1": start}}, want: down(ShardUnreachable)},
		"other shard unreachable":                {cluster: ready, outside: repeated(probe.ConnectTimeout, 2), view: View{Shards: map[string]time.Time{"mgmt-2": start}}, want: down(APIUnreachable)},
		"shard unreachable, this cluster answer": {cluster: ready, outside: repeated(probe.Etcd, 2), view: View{Shards: map[string]time.Time{"mgmt-1": start}}, want: down(EtcdFails)},
		"new cluster":                            {cluster: Cluster{ReadySince: start.Add(-time.Minute)}, outside: repeated(probe.Refused, 2), want: want{API: Unavailable, During: Creation, Kinds: []Kind{APIUnreachable}}},
		"upgrade":                                {cluster: Cluster{ReadySince: ready.ReadySince, Upgrading: true}, outside: repeated(probe.Refused, 2), want: want{API: Unavailable, During: Upgrade, Kinds: []Kind{APIUnreachable}}},
		"key unusable":                           {cluster: Cluster{ReadySince: ready.ReadySince, KeyInvalidSince: start}, outside: repeated(probe.ServerError, 2), want: down(KeyUnusable, APIFails)},
		"certificate ends soon":                  {cluster: ready, outside: repeated(probe.OK, 2), certificate: 6 * 24 * time.Hour, want: want{API: Available, Counts: true, Kinds: []Kind{CertificateExpiring}}},
		"certificate ends later":                 {cluster: ready, outside: repeated(probe.OK, 2), certificate: 8 * 24 * time.Hour, want: want{API: Available, Counts: true}},
		"certificate ended on a kept connection": {cluster: ready, outside: repeated(probe.OK, 2), certificate: time.Second, want: want{API: Available, Counts: true, Kinds: []Kind{CertificateExpired}}},
		"certificate ended, seen by probes":      {cluster: ready, outside: repeated(probe.CertificateExpired, 2), certificate: time.Second, want: down(CertificateExpired)},
		"slow":                                   {cluster: ready, outside: repeated(probe.OK, 3), slow: true, want: want{API: Available, Counts: true, Kinds: []Kind{Slow}}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			var history History
			now := start
			for _, result := range append(results(probe.Outside, c.outside...), results(probe.Inside, c.inside...)...) {
				if c.certificate > 0 {
					result.CertificateEnd = start.Add(c.certificate)
				}
				if c.slow {
					result.Duration = 2 * time.Second
				}
				history.Add(result)
				now = result.Time
			}
			v := Judge(now.Add(c.later), &c.cluster, &history, &c.view)
			got := want{API: v.API, Reason: v.Reason, During: v.During, Counts: v.Counts()}
			for _, concern := range v.Concerns {
				got.Kinds = append(got.Kinds, concern.Kind)
				if concern.Since.IsZero() || concern.Since.After(now.Add(c.later)) || concern.Fault == "" || concern.Help == "" {
					t.Errorf("incomplete concern %+v", concern)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConcernBeginsWithFirstFailure(t *testing.T) {
	t.Parallel()
	var history History
	for _, result := range results(probe.Outside, probe.OK, probe.Refused, probe.Etcd, probe.OK, probe.Etcd) {
		history.Add(result)
	}
	v := Judge(start.Add(40*time.Second), &Cluster{ReadySince: start.Add(-time.Hour)}, &history, &View{})
	if len(v.Concerns) != 1 || !v.Concerns[0].Since.Equal(start.Add(10*time.Second)) || v.Concerns[0].Kind != EtcdFails {
		t.Errorf("concerns %+v, want one of etcd since the first failure", v.Concerns)
	}
}

// TestVerdictIsHonest: for any facts, an unknown state has a reason and no other state has one; an available API has answered
// within StaleAfter; an unavailable one has a concern; and nothing counts while monitor is blind.
func TestVerdictIsHonest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var history History
		now, answered := start, map[probe.Vantage]time.Time{}
		seconds := func(name string, most int64) time.Duration {
			return time.Duration(rapid.Int64Range(0, most).Draw(t, name)) * time.Second
		}
		cluster := Cluster{Shard: "s", Upgrading: rapid.Bool().Draw(t, "upgrading"),
			Unprobed: rapid.SampledFrom([]Reason{"", "", "", Blocked, NoEndpoint}).Draw(t, "unprobed")}
		if rapid.IntRange(0, 9).Draw(t, "ready") > 0 {
			cluster.ReadySince = start.Add(-seconds("age", 3600))
		}
		for range rapid.IntRange(0, 40).Draw(t, "probes") {
			now = now.Add(seconds("pause", 60))
			result := probe.Result{Time: now, Check: probe.Livez, Outcome: rapid.SampledFrom(append(probe.Outcomes(), repeated(probe.OK, 10)...)).Draw(t, "outcome"),
				Vantage: rapid.SampledFrom([]probe.Vantage{probe.Outside, probe.Inside}).Draw(t, "vantage"), Duration: seconds("duration", 3)}
			history.Add(result)
			if result.Outcome == probe.OK {
				answered[result.Vantage] = now
			}
			view := View{Blind: rapid.IntRange(0, 9).Draw(t, "blind") == 0}
			if rapid.Bool().Draw(t, "shard") {
				view.Shards = map[string]time.Time{"s": now}
			}
			later := now.Add(seconds("later", 100))
			v := Judge(later, &cluster, &history, &view)
			switch {
			case (v.API == Unknown) != (v.Reason != ""):
				t.Fatalf("state %s with reason %q", v.API, v.Reason)
			case v.API == Available && later.Sub(answered[probe.Outside]) > StaleAfter && later.Sub(answered[probe.Inside]) > StaleAfter:
				t.Fatal("available without an answer")
			case v.API == Unavailable && len(v.Concerns) == 0:
				t.Fatal("unavailable without a concern")
			case view.Blind && v.API != Unknown, view.Blind && v.Counts():
				t.Fatalf("blind, and the state is %s", v.API)
			case cluster.ReadySince.IsZero() && v.API != Unknown:
				t.Fatalf("not ready, and the state is %s", v.API)
			}
		}
	})
}

// TestAlternatingAPIIsReportedOnce: an API that alternates faster than the hysteresis changes its state at most once.
func TestAlternatingAPIIsReportedOnce(t *testing.T) {
	t.Parallel()
	var history History
	cluster, changes, last := Cluster{ReadySince: start.Add(-time.Hour)}, 0, API("")
	for i := range 200 {
		outcome := probe.OK
		if i%4 < 2 {
			outcome = probe.ServerError
		}
		now := start.Add(time.Duration(i) * 10 * time.Second)
		history.Add(probe.Result{Vantage: probe.Outside, Outcome: outcome, Time: now})
		if v := Judge(now, &cluster, &history, &View{}); v.API != last && v.API != Unknown {
			last = v.API
			changes++
		}
	}
	if changes != 1 || last != Unavailable {
		t.Errorf("the state changed %d times and is %s at the end, want once and unavailable", changes, last)
	}
}

func TestEveryOutcomeAndKindIsJudged(t *testing.T) {
	t.Parallel()
	used := map[Kind]bool{ShardUnreachable: true, WayBroken: true, InsideUnreachable: true, KeyUnusable: true, CertificateExpiring: true, Slow: true,
		MachinesMissing: true, NodesNotReady: true, DataPlaneDisconnected: true, Degraded: true, OperatorsFail: true}
	for _, outcome := range probe.Outcomes() {
		if outcome != probe.OK && outcome != probe.Local {
			used[kindOf(&probe.Result{Outcome: outcome})] = true
		}
	}
	for _, kind := range Kinds() {
		if !used[kind] {
			t.Errorf("no facts lead to the concern %s", kind)
		}
		delete(used, kind)
	}
	for kind := range used {
		t.Errorf("the concern %s has no advice", kind)
	}
}

// TestReportOfTheProberIsJudgedAsItsProbes compares the verdict of monitor, which knows a report, with that of the prober, which made the
// probes.
func TestReportOfTheProberIsJudgedAsItsProbes(t *testing.T) {
	t.Parallel()
	private := Cluster{Shard: "mgmt-1", ReadySince: start.Add(-24 * time.Hour), Unprobed: Blocked}
	for _, outcome := range probe.Outcomes() {
		var probed, reported History
		for _, result := range results(probe.Inside, repeated(outcome, 3)...) {
			result.CertificateEnd = start.Add(time.Hour)
			probed.Add(result)
		}
		now := start.Add(20 * time.Second)
		report := probed.Report(now)
		reported.SetInside(&report, now)
		want, got := Judge(now, &private, &probed, &View{}), Judge(now, &private, &reported, &View{})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: verdict of the report (+) and of the probes (-):\n%s", outcome, diff)
		}
		if got := Judge(now.Add(2*StaleAfter), &private, &reported, &View{}); got.API != Unknown || got.Reason != InsideSilent || got.Detail == "" {
			t.Errorf("%s: after the prober fell silent: %+v", outcome, got)
		}
	}
}

// TestGuestConcerns judges the nodes of a cluster and what depends on them.
func TestGuestConcerns(t *testing.T) {
	t.Parallel()
	report := func(status string, age time.Duration) Condition {
		return Condition{Part: Part{Status: status, Since: start.Add(-age)}, Pool: "workers", Message: "quota"}
	}
	old := start.Add(-24 * time.Hour)
	for reason, c := range map[string]struct {
		cluster Cluster
		down    bool
		want    []Kind
	}{
		"all nodes are ready":                  {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Ready: 3}}},
		"machines start":                       {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Machines: report("False", 19*time.Minute)}}},
		"machines do not start":                {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Machines: report("False", 20*time.Minute)}}, want: []Kind{MachinesMissing}},
		"machines run and nodes are not ready": {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Ready: 1, Healthy: report("False", time.Hour)}}, want: []Kind{NodesNotReady}},
		"no machines, so no nodes":             {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Machines: report("False", time.Hour), Healthy: report("False", time.Hour)}}, want: []Kind{MachinesMissing}},
		"the API is down":                      {cluster: Cluster{ReadySince: old, Nodes: Nodes{Wanted: 3, Machines: report("False", time.Hour)}}, down: true, want: []Kind{APIUnreachable}},
		"an upgrade":                           {cluster: Cluster{ReadySince: old, Upgrading: true, Nodes: Nodes{Wanted: 3, Machines: report("False", time.Hour)}}},
		"degraded with nodes":                  {cluster: Cluster{ReadySince: old, Degraded: report("True", time.Hour), Nodes: Nodes{Wanted: 1, Ready: 1}}, want: []Kind{Degraded}},
		"degraded for a short time":            {cluster: Cluster{ReadySince: old, Degraded: report("True", time.Minute), Nodes: Nodes{Wanted: 1, Ready: 1}}},
		"failing operators":                    {cluster: Cluster{ReadySince: old, Operators: report("False", time.Hour), Nodes: Nodes{Wanted: 1, Ready: 1}}, want: []Kind{OperatorsFail}},
		"operators that just failed":           {cluster: Cluster{ReadySince: old, Operators: report("False", 20*time.Minute), Nodes: Nodes{Wanted: 1, Ready: 1}}},
		"failing operators without nodes":      {cluster: Cluster{ReadySince: old, Operators: report("False", time.Hour)}},
		"failing operators during an upgrade":  {cluster: Cluster{ReadySince: old, Upgrading: true, Operators: report("False", time.Hour), Nodes: Nodes{Wanted: 1, Ready: 1}}},
		"operators that succeed":               {cluster: Cluster{ReadySince: old, Operators: report("True", time.Hour), Nodes: Nodes{Wanted: 1, Ready: 1}}},
		"degraded without nodes":               {cluster: Cluster{ReadySince: old, Degraded: report("True", time.Hour)}},
		"nodes cannot be reached":              {cluster: Cluster{ReadySince: old, DataPlane: Part{Status: "False", Since: old}, Nodes: Nodes{Wanted: 1, Ready: 1}}, want: []Kind{DataPlaneDisconnected}},
		"nothing to reach":                     {cluster: Cluster{ReadySince: old, DataPlane: Part{Status: "False", Since: old}}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			var history History
			outcome := probe.OK
			if c.down {
				outcome = probe.Refused
			}
			for _, result := range results(probe.Outside, repeated(outcome, 2)...) {
				result.Time = result.Time.Add(-10 * time.Second)
				history.Add(result)
			}
			v := Judge(start, &c.cluster, &history, &View{})
			var got []Kind
			for _, concern := range v.Concerns {
				got = append(got, concern.Kind)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("concerns (-want +got):\n%s", diff)
			}
		})
	}
}
