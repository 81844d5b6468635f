package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/observer"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// interval is the time between two probes of a cluster. It is short, so that tests do not wait for probes.
const interval = time.Second

// lease is the duration of leases. A replica on a slow machine may lose its leases and acquire them again: tests wait for a state, and do not require that it
// lasts. A nightly run has so many clusters that shorter leases would end before they are renewed.
var lease = nightly.Choose(3*time.Second, time.Minute)

func TestMain(m *testing.M) {
	if os.Getenv(replicaVariable) != "" {
		os.Exit(runReplica())
	}
	os.Exit(leaktest.Check(m.Run()))
}

// fleet is a Cluster Service with clusters that are ready since yesterday, at a farm.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu      sync.Mutex
	history []*clusterservicev1.WatchResponse
	changed chan struct{}
}

func uidOf(i int) string { return fmt.Sprintf("c%07d-0000-4000-8000-00000000abcd", i) }

func (f *fleet) add(event *clusterservicev1.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, &clusterservicev1.WatchResponse{Revision: int64(len(f.history) + 1), Event: &clusterservicev1.WatchResponse_Cluster{Cluster: event}})
	close(f.changed)
	f.changed = make(chan struct{})
}

// Watch sends the whole history and then each change.
func (f *fleet) Watch(request *clusterservicev1.WatchRequest, stream grpc.ServerStreamingServer[clusterservicev1.WatchResponse]) error {
	next := int(request.GetAfterRevision())
	for {
		f.mu.Lock()
		history, changed := f.history, f.changed
		f.mu.Unlock()
		for ; next < len(history); next++ {
			if err := stream.Send(history[next]); err != nil {
				return err
			}
		}
		if err := stream.Send(&clusterservicev1.WatchResponse{Revision: int64(next), Event: &clusterservicev1.WatchResponse_Bookmark{}}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

// region has what monitor uses: Cluster Service, Cosmos DB and API servers.
type region struct {
	t      *testing.T
	farm   *farm
	fleet  *fleet
	db     *database.DB
	cosmos *databasetest.Server
	target string
}

func newRegion(t *testing.T) *region {
	t.Helper()
	r := &region{t: t, farm: newFarm(t), fleet: &fleet{changed: make(chan struct{})}}
	r.db, r.cosmos = databasetest.New(t)
	r.target = grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, r.fleet) })
	return r
}

func (r *region) create(i int) {
	r.fleet.add(&clusterservicev1.Cluster{Uid: uidOf(i), ResourceId: fmt.Sprint("/clusters/", i), CreateTime: timestamppb.New(time.Now().Add(-24 * time.Hour)),
		Spec: &clusterservicev1.ClusterSpec{}, Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1,
			ProvisionShard: fmt.Sprint("mgmt-", i%4), ApiUrl: r.farm.URL(uidOf(i)), ServingCertificateAuthority: r.farm.Authorities, ActiveVersions: []string{"4.21.1"}}})
}

func (r *region) delete(i int) {
	r.fleet.add(&clusterservicev1.Cluster{Uid: uidOf(i), Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED}})
}

// replica is a running monitor. cut makes Cosmos DB unreachable for it.
type replica struct {
	process *process.Process
	cut     atomic.Bool
	stop    func()
}

// RoundTrip implements http.RoundTripper.
func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.cut.Load() {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, errors.New("the network is unreachable")
	}
	return http.DefaultTransport.RoundTrip(request)
}

func (r *region) start(name string) *replica {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	monitor := &replica{process: process.New("monitor", log)}
	connection := must.Get(grpc.NewClient("passthrough:///"+r.target, grpc.WithTransportCredentials(insecure.NewCredentials())))(r.t)
	options := r.cosmos.Options
	options.Transport = monitor
	ctx, cancel := context.WithCancel(r.t.Context())
	db := must.Get(database.Open(ctx, options))(r.t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = Work(ctx, monitor.process, db, connection, Options{Replica: name, LeaseDuration: lease, Connections: 100_000, interval: interval, dial: r.farm.Dial})
	}()
	monitor.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		db.Close()
		_ = connection.Close()
	})
	r.t.Cleanup(monitor.stop)
	return monitor
}

// values returns the sum of the values of each metric of a replica, and the number of series of clusters as "series".
func (m *replica) values(t *testing.T) map[string]float64 {
	t.Helper()
	families := must.Get(m.process.Metrics.Gather())(t)
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			values[family.GetName()] += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			for _, label := range metric.GetLabel() {
				if label.GetName() == "cluster_uid" {
					values["series"]++
				}
			}
		}
	}
	return values
}

// sees waits until the replicas together see a number of available clusters, each exactly once.
func (r *region) sees(want int, replicas ...*replica) {
	r.t.Helper()
	eventually.Soon(r.t, fmt.Sprintf("%d clusters are available", want), func() error {
		up, known := 0.0, 0.0
		for _, m := range replicas {
			values := m.values(r.t)
			up, known = up+values["monitor_cluster_api_up"], known+values["monitor_cluster_info"]
		}
		if up != float64(want) || known < up {
			return fmt.Errorf("%v of %v clusters are available", up, known)
		}
		return nil
	})
}

// records returns the number of clusters with a record.
func (r *region) records() int {
	r.t.Helper()
	records := 0
	for group := range observer.Groups {
		must.Do(r.t, r.db.HealthRecords(r.t.Context(), group, func(*database.HealthRecord) error {
			records++
			return nil
		}))
	}
	return records
}

// TestReplicasShareClusters probes many clusters with two replicas, of which one loses Cosmos DB, and deletes all of them. No series,
// record or connection of theirs is left. A nightly run has 500 clusters.
func TestReplicasShareClusters(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	clusters := nightly.Choose(300, 500)
	for i := range clusters {
		r.create(i)
	}
	first := r.start("monitor-0")
	r.sees(clusters, first)
	eventually.Soon(t, "a working replica is ready", func() error {
		if readiness := first.process.CheckReadiness(t.Context()); !readiness.Ready {
			return fmt.Errorf("%+v", readiness)
		}
		return nil
	})
	second := r.start("monitor-1")
	eventually.Soon(t, "the replicas share the groups", func() error {
		a, b := first.values(t)["monitor_groups_owned"], second.values(t)["monitor_groups_owned"]
		if a != observer.Groups/2 || b != observer.Groups/2 {
			return fmt.Errorf("%v and %v groups", a, b)
		}
		return nil
	})

	r.sees(clusters, first, second)

	second.cut.Store(true)
	eventually.Soon(t, "the first replica owns all groups", func() error {
		if owned := first.values(t)["monitor_groups_owned"]; owned != observer.Groups {
			return fmt.Errorf("%v groups", owned)
		}
		if values := second.values(t); values["monitor_groups_owned"] != 0 || values["series"] != 0 || values["monitor_connections"] != 0 {
			return fmt.Errorf("the second replica still has %v", values)
		}
		return nil
	})

	r.sees(clusters, first)
	second.stop()
	eventually.Soon(t, "the state of each cluster is recorded", func() error {
		if records := r.records(); records != clusters {
			return fmt.Errorf("%d records", records)
		}
		return nil
	})

	for i := range clusters {
		r.delete(i)
	}
	eventually.Soon(t, "nothing is left of deleted clusters", func() error {
		if values := first.values(t); values["series"] != 0 || values["monitor_connections"] != 0 || values["monitor_clusters"] != 0 || r.farm.Open() != 0 {
			return fmt.Errorf("%v, and %d connections are open", values, r.farm.Open())
		}
		if records := r.records(); records != 0 {
			return fmt.Errorf("%d clusters are recorded", records)
		}
		return nil
	})

	// The leases of clusters are those of groups, whatever the number of clusters.
	eventually.Soon(t, "the replica owns all groups", func() error {
		if owned := first.values(t)["monitor_groups_owned"]; owned != observer.Groups {
			return fmt.Errorf("%v groups", owned)
		}
		return nil
	})
}

// TestFaultsAreNamed breaks API servers in several ways. Each is found, and the concern names the right cause.
func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	concerns := map[fault]string{etcdAway: "etcd_fails", hang: "api_hangs", overload: "api_overloaded",
		expired: "certificate_expired", closed: "api_unreachable"}
	want, next := map[string]string{}, 0
	for fault, concern := range concerns {
		r.create(next)
		r.farm.Break(fault, uidOf(next))
		want[uidOf(next)] = concern
		next++
	}
	r.create(next)
	m := r.start("monitor-0")
	eventually.Soon(t, "each fault is a concern", func() error {
		families, err := m.process.Metrics.Gather()
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, family := range families {
			if family.GetName() != "monitor_cluster_concern" {
				continue
			}
			for _, metric := range family.GetMetric() {
				labels := map[string]string{}
				for _, label := range metric.GetLabel() {
					labels[label.GetName()] = label.GetValue()
				}
				got[labels["cluster_uid"]] += labels["concern"]
			}
		}
		for uid, concern := range want {
			if got[uid] != concern {
				return fmt.Errorf("%s has the concern %q, want %q", uid, got[uid], concern)
			}
		}
		if len(got) != len(want) || m.values(t)["monitor_cluster_api_up"] != 1 {
			return fmt.Errorf("concerns %v", got)
		}
		return nil
	})
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	valid := func() Options {
		var options Options
		flags := flag.NewFlagSet("monitor", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		options.AddFlags(flags)
		must.Do(t, flags.Parse([]string{"--cosmos-endpoint=https://cosmos", "--identity-dir=/identity", "--cluster-service-address=cluster-service:8443", "--replica=a", "--egress-addresses=192.0.2.1, 2001:db8::1", "--anchors=login.example.com:443"}))
		return options
	}
	if options := valid(); options.Validate() != nil {
		t.Fatalf("valid options: %v", options.Validate())
	}
	for reason, change := range map[string]func(*Options){
		"no database":         func(o *Options) { o.Database.Endpoint = "" },
		"no identity":         func(o *Options) { o.Mesh.IdentityDir = "" },
		"no Cluster Service":  func(o *Options) { o.ClusterServiceAddress = "" },
		"no replica":          func(o *Options) { o.Replica = "" },
		"a wrong address":     func(o *Options) { o.Addresses = "192.0.2.1,,192.0.2.2" },
		"a wrong anchor":      func(o *Options) { o.Anchors = "login.example.com:443,login.example.com" },
		"a short lease":       func(o *Options) { o.LeaseDuration = time.Millisecond },
		"no connections":      func(o *Options) { o.Connections = 0 },
		"too many connection": func(o *Options) { o.Connections = 1_000_000 },
	} {
		options := valid()
		if change(&options); options.Validate() == nil {
			t.Errorf("%s: no error", reason)
		}
	}
}
