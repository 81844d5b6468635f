package roster

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

// fleet is a Cluster Service with one method. Each watch sends what the test puts into messages, and ends with the next error.
type fleet struct {
	clusterservicev1.ClusterServiceClient
	after    []int64
	messages chan *clusterservicev1.WatchResponse
	failures chan error
}

type stream struct {
	grpc.ClientStream
	ctx context.Context
	*fleet
}

func (f *fleet) Watch(ctx context.Context, request *clusterservicev1.WatchRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[clusterservicev1.WatchResponse], error) {
	f.after = append(f.after, request.GetAfterRevision())
	return &stream{ctx: ctx, fleet: f}, nil
}

func (s *stream) Recv() (*clusterservicev1.WatchResponse, error) {
	select {
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case message := <-s.messages:
		return message, nil
	case err := <-s.failures:
		return nil, err
	}
}

// listener keeps the entries and counts the calls.
type listener struct {
	entries map[string]Entry
	calls   int
}

func (l *listener) Set(entry Entry) { l.entries[entry.UID] = entry; l.calls++ }

func (l *listener) Remove(uid string) { delete(l.entries, uid); l.calls++ }

func newFleet() *fleet {
	return &fleet{messages: make(chan *clusterservicev1.WatchResponse), failures: make(chan error)}
}

func change(revision int64, c *clusterservicev1.Cluster) *clusterservicev1.WatchResponse {
	return &clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: c}}
}

func bookmark(revision int64) *clusterservicev1.WatchResponse {
	return &clusterservicev1.WatchResponse{Revision: revision, Event: &clusterservicev1.WatchResponse_Bookmark{}}
}

var created = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// ready returns a cluster that is ready since its creation, changed by the functions.
func ready(uid string, changes ...func(*clusterservicev1.Cluster)) *clusterservicev1.Cluster {
	c := &clusterservicev1.Cluster{Uid: uid, ResourceId: "/clusters/" + uid, CreateTime: timestamppb.New(created), Spec: &clusterservicev1.ClusterSpec{},
		Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1, ProvisionShard: "mgmt-1",
			ApiUrl: "https://api." + uid, ServingCertificateAuthority: "pem", ActiveVersions: []string{"4.21.1"}}}
	for _, change := range changes {
		change(c)
	}
	return c
}

func withPhase(phase clusterservicev1.ClusterPhase) func(*clusterservicev1.Cluster) {
	return func(c *clusterservicev1.Cluster) { c.Status.Phase = phase }
}

func TestEntryOfCluster(t *testing.T) {
	t.Parallel()
	now := created.Add(time.Hour)
	wasReady := &Entry{Cluster: judge.Cluster{ReadySince: created.Add(20 * time.Minute)}}
	for reason, c := range map[string]struct {
		change    func(*clusterservicev1.Cluster)
		known     *Entry
		addresses []netip.Addr
		unprobed  judge.Reason
		since     time.Time
		upgrading bool
	}{
		"ready at the start of monitor": {since: created},
		"ready before":                  {known: wasReady, since: wasReady.Cluster.ReadySince},
		"becomes ready":                 {known: &Entry{}, since: now},
		"installing":                    {change: func(c *clusterservicev1.Cluster) { c.Status.ObservedGeneration = 0 }, unprobed: judge.NotReady},
		"being deleted":                 {change: func(c *clusterservicev1.Cluster) { c.DeleteTime = timestamppb.New(now) }, known: wasReady, unprobed: judge.NotReady},
		"failed after it was ready":     {change: withPhase(clusterservicev1.ClusterPhase_CLUSTER_PHASE_FAILED), since: created},
		"lost":                          {change: withPhase(clusterservicev1.ClusterPhase_CLUSTER_PHASE_LOST), since: created},
		"upgrade":                       {change: func(c *clusterservicev1.Cluster) { c.Status.ActiveVersions = []string{"4.21.2", "4.21.1"} }, since: created, upgrading: true},
		"no URL":                        {change: func(c *clusterservicev1.Cluster) { c.Status.ApiUrl = "" }, since: created, unprobed: judge.NoEndpoint},
		"no authority":                  {change: func(c *clusterservicev1.Cluster) { c.Status.ServingCertificateAuthority = "" }, since: created, unprobed: judge.NoEndpoint},
		"private": {change: func(c *clusterservicev1.Cluster) {
			c.Spec.Api = &clusterservicev1.Api{Visibility: clusterservicev1.Visibility_VISIBILITY_PRIVATE}
		}, since: created, unprobed: judge.Blocked},
		"authorized CIDRs without monitor's": {change: func(c *clusterservicev1.Cluster) {
			c.Spec.Api = &clusterservicev1.Api{AuthorizedCidrs: []string{"192.0.2.0/24"}}
		}, addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, since: created, unprobed: judge.Blocked},
		"authorized CIDRs and unknown addresses": {change: func(c *clusterservicev1.Cluster) {
			c.Spec.Api = &clusterservicev1.Api{AuthorizedCidrs: []string{"192.0.2.0/24"}}
		}, since: created, unprobed: judge.Blocked},
		"authorized CIDRs with monitor's": {change: func(c *clusterservicev1.Cluster) {
			c.Spec.Api = &clusterservicev1.Api{AuthorizedCidrs: []string{"192.0.2.0/24", "198.51.100.0/24"}}
		}, addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("192.0.2.7")}, since: created},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			cluster := ready("a")
			if c.change != nil {
				c.change(cluster)
			}
			entry := entryOf(cluster, c.known, c.addresses, now)
			want := judge.Cluster{Shard: "mgmt-1", ReadySince: c.since, Upgrading: c.upgrading, Unprobed: c.unprobed}
			if diff := cmp.Diff(want, entry.Cluster); diff != "" {
				t.Errorf("cluster (-want +got):\n%s", diff)
			}
			if entry.UID != "a" || entry.ResourceID != "/clusters/a" || entry.Target.Cluster != "a" {
				t.Errorf("identity of %+v", entry)
			}
		})
	}
}

func TestRosterFollowsWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(), &listener{entries: map[string]Entry{}}
		r := New(f, l, Options{Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		send := func(messages ...*clusterservicev1.WatchResponse) {
			for _, message := range messages {
				f.messages <- message
			}
			synctest.Wait()
		}
		want := func(when string, calls int, uids ...string) {
			t.Helper()
			if len(l.entries) != len(uids) || l.calls != calls || r.Len() != len(uids) {
				t.Errorf("%s: entries %v after %d calls, want %v after %d", when, l.entries, l.calls, uids, calls)
			}
			for _, uid := range uids {
				if _, ok := l.entries[uid]; !ok {
					t.Errorf("%s: %s is missing", when, uid)
				}
			}
		}

		send(change(1, ready("a")), change(2, ready("b")), change(3, ready("gone", withPhase(clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED))))
		want("before the first bookmark", 2, "a", "b")
		if r.Ready(ctx) == nil {
			t.Error("the roster is ready before it is complete")
		}
		send(bookmark(3))
		if err := r.Ready(ctx); err != nil {
			t.Errorf("after the first bookmark: %v", err)
		}
		send(change(4, ready("a")))
		want("a change that does not matter", 2, "a", "b")

		f.failures <- io.EOF
		synctest.Wait()
		if r.Ready(ctx) == nil {
			t.Error("the roster is ready while the watch is broken")
		}
		send(change(5, ready("b", withPhase(clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED))), bookmark(5))
		want("after an interruption and a deletion", 3, "a")
		if err := r.Ready(ctx); err != nil {
			t.Errorf("after an interruption: %v", err)
		}

		f.failures <- apierror.ToGRPC(&apierror.Error{Kind: apierror.Unavailable, Reason: clusterservice.ReasonRevisionCompacted}, "clusterservice.hcpmesh")
		send(change(9, ready("c")), change(9, ready("d")))
		want("during a watch from the beginning", 5, "a", "c", "d")
		f.failures <- status.Error(codes.Unavailable, "interrupted")
		send(change(9, ready("c")), bookmark(9)) // d was deleted meanwhile
		want("after a watch from the beginning", 7, "c")
		if diff := cmp.Diff([]int64{0, 4, 0, 0}, f.after); diff != "" {
			t.Errorf("revisions of the watches (-want +got):\n%s", diff)
		}
	})
}

// TestEntryHasTheReportFromInside checks that the report of a management cluster's prober is part of an entry, and that a later one is a
// change. An outcome that this monitor does not know is that of a server error.
func TestEntryHasTheReportFromInside(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	cluster := func(o *clusterservicev1.InsideObservation) *clusterservicev1.Cluster {
		return &clusterservicev1.Cluster{Uid: "a", CreateTime: timestamppb.New(now), Status: &clusterservicev1.ClusterStatus{ObservedGeneration: 1, InsideObservation: o}}
	}
	for reason, c := range map[string]struct {
		observation *clusterservicev1.InsideObservation
		want        hostedreport.InsideReport
	}{
		"no report": {},
		"available": {&clusterservicev1.InsideObservation{State: "available", Since: timestamppb.New(now), CertificateEndTime: timestamppb.New(now.Add(time.Hour)), ObservedTime: timestamppb.New(now)},
			hostedreport.InsideReport{State: hostedreport.InsideAvailable, Since: now, CertificateEnd: now.Add(time.Hour), Observed: now}},
		"of a newer prober": {&clusterservicev1.InsideObservation{State: "unavailable", Since: timestamppb.New(now), Check: "livez", Outcome: "new", Detail: "d", ObservedTime: timestamppb.New(now)},
			hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Since: now, Check: "livez", Outcome: "server_error", Detail: "d", Observed: now}},
	} {
		entry := entryOf(cluster(c.observation), nil, nil, now)
		if diff := cmp.Diff(c.want, entry.Inside); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", reason, diff)
		}
		if again := entryOf(cluster(c.observation), &entry, nil, now.Add(time.Hour)); again != entry {
			t.Errorf("%s: an unchanged cluster has another entry: %+v", reason, again)
		}
	}
}

// TestEntryHasConditions: what HyperShift reports about the parts of a cluster reaches the judge, with the message if it names something.
func TestEntryHasConditions(t *testing.T) {
	t.Parallel()
	since := created.Add(time.Hour)
	entry := entryOf(ready("a", func(c *clusterservicev1.Cluster) {
		for _, kind := range []string{"EncryptionKeyUsable", "KubeAPIServerAvailable", "EtcdAvailable", "DataPlaneConnectionAvailable", "Degraded", "ClusterVersionSucceeding", "Progressing"} {
			c.Status.Conditions = append(c.Status.Conditions, &clusterservicev1.Condition{Type: kind, Status: "False", Message: "about " + kind, LastTransitionTime: timestamppb.New(since)})
		}
	}), nil, nil, since)
	part := judge.Part{Status: "False", Since: since}
	want := judge.Cluster{Shard: "mgmt-1", ReadySince: created, KeyInvalidSince: since, KeyMessage: "about EncryptionKeyUsable", APIServer: part, Etcd: part, DataPlane: part,
		Degraded: judge.Condition{Part: part, Message: "about Degraded"}, Operators: judge.Condition{Part: part, Message: "about ClusterVersionSucceeding"}}
	if diff := cmp.Diff(want, entry.Cluster); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
