package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// cluster is a management cluster with one hosted cluster, whose requests are counted and can fail.
type cluster struct {
	client.Client
	mu       sync.Mutex
	requests int
	fail     error
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := must.Get(contract.NewScheme())(t)
	c := &cluster{}
	count := func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests++
		return c.fail
	}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&hyperv1.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "a"}},
		&hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "plane-a", Name: "a", Annotations: map[string]string{contract.HostedClusterAnnotation: "clusters/a"}}},
	).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	return c
}

func (c *cluster) set(fail error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *cluster) report(t *testing.T) hostedreport.EgressReport {
	t.Helper()
	var hc hyperv1.HostedCluster
	must.Do(t, c.Get(t.Context(), client.ObjectKey{Namespace: "clusters", Name: "a"}, &hc))
	return hostedreport.DecodeEgress(hc.Annotations[hostedreport.EgressAnnotation])
}

func startReporter(t *testing.T, c *cluster) *Reporter {
	t.Helper()
	r := NewReporter(c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func awaitReport(t *testing.T, c *cluster, want map[string]hostedreport.EgressOutcome) {
	t.Helper()
	eventually.Soon(t, "the report is written", func() error {
		report := c.report(t)
		if len(report) != len(want) {
			return fmt.Errorf("the report is %v", report)
		}
		for target, outcome := range want {
			if report[target].Outcome != outcome {
				return fmt.Errorf("the report is %v", report)
			}
		}
		return nil
	})
}

func TestReports(t *testing.T) {
	c := newCluster(t)
	r := startReporter(t, c)
	now := time.Now()
	attempt := func(target, outcome string) Attempt {
		return Attempt{Client: "plane-a", Target: target, Outcome: outcome}
	}
	r.record(attempt("login.example.com:443", OutcomeAddress), now)
	awaitReport(t, c, map[string]hostedreport.EgressOutcome{"login.example.com:443": hostedreport.EgressAddress})

	// Repeated failures, and failures of the proxy itself, cost no requests.
	before := c.count()
	for i := range 100 {
		r.record(attempt("Login.Example.com:443", OutcomeAddress), now.Add(time.Duration(i)*time.Second))
		r.record(attempt("login.example.com:443", OutcomeBusy), now)
	}
	r.record(attempt("keys.example.com:443", OutcomeUnresolved), now)
	awaitReport(t, c, map[string]hostedreport.EgressOutcome{"login.example.com:443": hostedreport.EgressAddress, "keys.example.com:443": hostedreport.EgressUnresolved})
	if n := c.count() - before; n > 2 {
		t.Errorf("%d requests", n)
	}

	r.record(attempt("login.example.com:443", OutcomeAllowed), now)
	r.record(attempt("keys.example.com:443", OutcomeAllowed), now)
	awaitReport(t, c, map[string]hostedreport.EgressOutcome{})
	var hc hyperv1.HostedCluster
	must.Do(t, c.Get(t.Context(), client.ObjectKey{Namespace: "clusters", Name: "a"}, &hc))
	if _, found := hc.Annotations[hostedreport.EgressAnnotation]; found {
		t.Error("an empty report is left")
	}
}

// TestReportsAreRetried checks that the latest outcome is reported after the management cluster was away.
func TestReportsAreRetried(t *testing.T) {
	c := newCluster(t)
	c.set(errors.New("the API server is away"))
	r := startReporter(t, c)
	r.Record(Attempt{Client: "plane-a", Target: "login.example.com:443", Outcome: OutcomeAddress})
	r.Record(Attempt{Client: "plane-a", Target: "keys.example.com:443", Outcome: OutcomeAddress})
	r.Record(Attempt{Client: "plane-a", Target: "login.example.com:443", Outcome: OutcomeAllowed})
	r.Record(Attempt{Client: "plane-b", Target: "login.example.com:443", Outcome: OutcomeAddress}) // does not exist any more
	eventually.Soon(t, "a report failed", func() error {
		if c.count() < 3 {
			return errors.New("no request yet")
		}
		return nil
	})
	c.set(nil)
	awaitReport(t, c, map[string]hostedreport.EgressOutcome{"keys.example.com:443": hostedreport.EgressAddress})
}

// TestPendingReportsAreBounded checks that neither many targets nor many control planes use memory without bound.
func TestPendingReportsAreBounded(t *testing.T) {
	r := NewReporter(newCluster(t), slog.New(slog.DiscardHandler))
	for i := range 3 * maxPending {
		r.Record(Attempt{Client: "plane-a", Target: fmt.Sprintf("host-%d.example.com:443", i), Outcome: OutcomeAddress})
	}
	for i := range 2 * maxControlPlanes {
		r.Record(Attempt{Client: fmt.Sprintf("plane-%d", i), Target: "login.example.com:443", Outcome: OutcomeAddress})
	}
	if targets, planes := len(r.pending["plane-a"]), len(r.pending); targets != maxPending || planes != maxControlPlanes {
		t.Errorf("%d targets and %d control planes are pending", targets, planes)
	}
	r.queue.ShutDown()
}
