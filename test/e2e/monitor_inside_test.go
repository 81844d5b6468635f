package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// TestMonitorSeesClosedClustersInside observes a cluster whose API does not admit monitor, through the prober of its
// management cluster: while its API server works, hangs and is killed, and while the prober is stopped and killed. It then breaks the way to a
// public cluster, which the prober still reaches.
func TestMonitorSeesClosedClustersInside(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 14*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-0000000000c6", "inside")
	reader := engineer(t, "reader")
	create := func(name string, closed bool) (string, *fault.Server) {
		t.Helper()
		id, body := c.ClusterID(name), c.ClusterBody(name)
		if closed {
			// Private APIs cannot be created yet. An API that admits other addresses than monitor's is closed to it in the same way.
			body.Properties.(map[string]any)["api"] = map[string]any{"authorizedCidrs": []string{"203.0.113.0/24"}}
		}
		must.Get(c.Put(ctx, id, body))(t)
		cluster := must.Get(adminclient.Get(ctx, reader, adminv1.ReadCluster, nil, id))(t)
		server := must.Get(fault.Find(regionEndpoints, regionDir, *cluster))(t)
		return id, server
	}
	id, h := create("closed", true)
	prober := h.Cluster.ProvisionShard + "-monitor-inside"
	awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)
	if series := clusterSeries(t, ctx, h.Cluster.UID); series["monitor_cluster_api_up"] != 1 || series["monitor_cluster_certificate_end_seconds"] == 0 || len(series) > 10 {
		t.Errorf("monitor exports %v", series)
	}

	// The region restarts a hung API server, so that each one is stopped.
	began := time.Now()
	hung := awaitHealth(t, ctx, reader, id, adminv1.HealthUnavailable, "api_hangs", func() { _ = h.Signal(syscall.SIGSTOP) })
	t.Logf("a hung API server was reported after %s", time.Since(began).Round(time.Second))
	if got := hung.Health.Concerns[0]; !strings.HasPrefix(got.Evidence, "inside ") {
		t.Errorf("the concern is %+v", got)
	}
	if labels := concernLabels(t, ctx, h.Cluster.UID); labels["concern"] != "api_hangs" {
		t.Errorf("monitor exports the concern %v", labels)
	}
	// The cluster was just created, so its failures do not count for the service level.
	eventually.Before(ctx, t, "monitor counts the outage", func() error {
		if series := clusterSeries(t, ctx, h.Cluster.UID); series["monitor_cluster_expected_failures_total"] == 0 || series["monitor_cluster_probe_failures_total"] != 0 {
			return fmt.Errorf("monitor exports %v", series)
		}
		return nil
	})
	awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", func() { _ = h.Signal(syscall.SIGCONT) })

	undo := breakAPI(t, h.Kill)
	began = time.Now()
	awaitHealth(t, ctx, reader, id, adminv1.HealthUnavailable, "api_unreachable", nil)
	t.Logf("a killed API server was reported after %s", time.Since(began).Round(time.Second))
	undo()
	awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)

	// Without the prober nothing is known, and nothing is a concern. The region restarts a stopped prober: it is stopped again before it
	// can report.
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for backoff.Sleep(ctx, 20*time.Millisecond) == nil {
			select {
			case <-stopped:
				return
			default:
				_ = region.Signal(prober, syscall.SIGSTOP)
			}
		}
	}()
	silent := awaitHealth(t, ctx, reader, id, adminv1.HealthUnknown, "", nil)
	if silent.Health.Reason != "inside_silent" || !strings.Contains(silent.Health.Detail, "has not reported since") || !strings.Contains(silent.Text(), "the prober of the management cluster does not report") {
		t.Errorf("without the prober: %+v\n%s", silent.Health, silent.Text())
	}
	if series := clusterSeries(t, ctx, h.Cluster.UID); series["monitor_cluster_api_unknown inside_silent"] != 1 || concernLabels(t, ctx, h.Cluster.UID) != nil {
		t.Errorf("without the prober, monitor exports %v", series)
	}
	close(stopped)
	<-ended
	awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", func() { _ = region.Signal(prober, syscall.SIGCONT) })
	if err := region.Signal(prober, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	undo = breakAPI(t, h.Kill)
	awaitHealth(t, ctx, reader, id, adminv1.HealthUnavailable, "api_unreachable", nil)
	undo()
	awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)

	public, way := create("way", false)
	awaitHealth(t, ctx, reader, public, adminv1.HealthAvailable, "", nil)
	undo = breakAPI(t, func() (func() error, error) { return breakWay(ctx, way) })
	if got := awaitHealth(t, ctx, reader, public, adminv1.HealthUnavailable, "way_broken", nil).Health.Concerns[0]; !strings.Contains(got.Evidence, "outside ") {
		t.Errorf("the concern is %+v", got)
	}
	undo()
	awaitHealth(t, ctx, reader, public, adminv1.HealthAvailable, "", nil)

	for id, uid := range map[string]string{id: h.Cluster.UID, public: way.Cluster.UID} {
		must.Do(t, c.Delete(ctx, id))
		awaitNotMonitored(t, ctx, uid)
	}
}

// breakAPI breaks an API server and returns what repairs it, at the latest at the end of the test.
func breakAPI(t *testing.T, begin func() (undo func() error, err error)) (undo func()) {
	t.Helper()
	repair := must.Get(begin())(t)
	undo = sync.OnceFunc(func() {
		if err := repair(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(undo)
	return undo
}

// breakWay injects the fault of a broken way.
func breakWay(ctx context.Context, server *fault.Server) (undo func() error, err error) {
	causes := fault.Causes()
	way := slices.IndexFunc(causes, func(c fault.Cause) bool { return c.Name == "way" })
	running, err := causes[way].Begin(ctx, server)
	if err != nil {
		return nil, err
	}
	return func() error { return running.End(ctx) }, nil
}

// awaitHealth waits until the explanation of a cluster has a state of its API and a concern, or none. again runs before each attempt.
func awaitHealth(t *testing.T, ctx context.Context, reader *adminclient.Client, id, api, concern string, again func()) *adminv1.Explanation {
	t.Helper()
	var explained *adminv1.Explanation
	eventually.Before(ctx, t, fmt.Sprintf("the API is %s with the concern %q", api, concern), func() (err error) {
		if again != nil {
			again()
		}
		if explained, err = adminclient.Get(ctx, reader, adminv1.ReadExplanation, nil, id); err != nil {
			return err
		}
		got := ""
		if h := explained.Health; h != nil && len(h.Concerns) > 0 {
			got = h.Concerns[0].Kind
		}
		if explained.Health == nil || explained.Health.API != api || got != concern {
			return fmt.Errorf("monitor states %+v", explained.Health)
		}
		return nil
	})
	return explained
}

// concernLabels returns the labels of the first concern that monitor exports for a cluster.
func concernLabels(t *testing.T, ctx context.Context, uid string) map[string]string {
	t.Helper()
	for _, metric := range scrape(t, ctx, region.Endpoints().Ops["monitor"])["monitor_cluster_concern"].GetMetric() {
		if labels := labelsOf(metric); labels["cluster_uid"] == uid {
			return labels
		}
	}
	return nil
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}
