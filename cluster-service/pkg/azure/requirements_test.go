package azure_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	azurearm "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

const (
	d8s       = "Standard_D8s_v3"
	d8sFamily = "standardDSv3Family"
)

// requirements is a cluster with node pools of the size d8s, in a region with a clock.
type requirements struct {
	*region
	clock   *clock
	wire    *computeWire
	cluster *fleet.ClusterAggregate
}

// computeWire counts the requests for Azure Compute, and responds to them instead of Azure if answer is set and returns a response.
type computeWire struct {
	next http.RoundTripper

	mu     sync.Mutex
	counts map[string]int
	// hosts are those of all requests.
	hosts  map[string]bool
	answer func(r *http.Request) *http.Response
}

func (w *computeWire) Do(r *http.Request) (*http.Response, error) {
	_, path, found := strings.Cut(r.URL.Path, "/providers/Microsoft.Compute/")
	w.mu.Lock()
	w.hosts[r.URL.Host] = true
	w.mu.Unlock()
	if !found {
		return w.next.RoundTrip(r)
	}
	w.mu.Lock()
	w.counts[path]++
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if response := answer(r); response != nil {
			response.Request = r
			return response, nil
		}
	}
	return w.next.RoundTrip(r)
}

// taken returns the numbers of requests for sizes and for quotas since the last call.
func (w *computeWire) taken() (sizes, quotas int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sizes, quotas = w.counts["skus"], w.counts["locations/westus3/usages"]
	clear(w.counts)
	return sizes, quotas
}

func (w *computeWire) answerWith(answer func(r *http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func newRequirements(t *testing.T, pools ...*csv1.NodePoolSpec) *requirements {
	t.Helper()
	c := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w := newRegion(t, emulator.Options{Now: c.Now})
	wire := &computeWire{next: w.azure.HTTP().Transport, counts: map[string]int{}, hosts: map[string]bool{}}
	clients := azure.NewSDK(w.steps.Config, w.azure.Tokens, wire)
	w.steps.Clients, w.steps.Capacity, w.steps.Now, w.steps.Region.AzureKinds = clients, azure.NewCapacity(clients, c.Now), c.Now, []fleet.AzureKind{fleet.AzureRequirements}
	r := &requirements{region: w, clock: c, wire: wire, cluster: w.cluster("192.0.2.1")}
	for i, spec := range pools {
		uid := "pool-" + strconv.Itoa(i)
		r.cluster.Pools = append(r.cluster.Pools, &fleet.NodePool{UID: uid, Generation: 1, Spec: spec})
		r.cluster.Works = append(r.cluster.Works, &fleet.Work{ID: uid, Kind: fleet.NodePoolWork, OwnerUID: uid})
	}
	return r
}

// nodes returns a node pool with a number of nodes.
func nodes(n int32, zone string) *csv1.NodePoolSpec {
	return &csv1.NodePoolSpec{Platform: &csv1.NodePoolPlatform{VmSize: d8s, AvailabilityZone: zone}, Size: &csv1.NodePoolSpec_Replicas{Replicas: n}}
}

func (r *requirements) step() *fleet.AzureStep { return r.cluster.Azure.Step(fleet.AzureRequirements) }

// check advances the clock to the next check, and makes it. It returns false if no check is due.
func (r *requirements) check() bool {
	r.Helper()
	must.Do(r, r.steps.Region.Settle(r.clock.Now(), r.cluster, nil))
	if !r.step().Due {
		return false
	}
	if at := r.step().RetryTime; at.After(r.clock.Now()) {
		r.clock.set(at)
	}
	if o := r.attempt(r.clock.Now, r.cluster, r.step); !o.Done || o.Error != "" {
		r.Errorf("a check blocks the cluster: %+v", o)
	}
	return true
}

// condition returns the condition RequirementsValid of a node pool.
func (r *requirements) condition(pool int) string {
	return conditionOf(r.cluster.Pools[pool].Status.GetConditions(), clusterstatus.RequirementsValid)
}

// awaited returns the state of the layer azure of a node pool.
func (r *requirements) awaited(pool int) string {
	for _, p := range r.cluster.Pools[pool].Status.GetProgress() {
		if p.GetLayer() == clusterstatus.LayerAzure {
			return p.GetState()
		}
	}
	return ""
}

// TestRequirementsAreExplainedAndHeal checks node pools of subscriptions with restrictions and small quotas. Each condition becomes True when the
// cause is gone, without a request of the customer.
func TestRequirementsAreExplainedAndHeal(t *testing.T) {
	const valid, quota = "True Valid", ". Request a higher quota from Azure, or delete virtual machines."
	limit := func(family, all azurearm.ComputeQuota) azurearm.ComputeLimits {
		return azurearm.ComputeLimits{Quotas: map[string]azurearm.ComputeQuota{d8sFamily: family, "cores": all}}
	}
	large := azurearm.ComputeQuota{Limit: 1000}
	autoscaled := nodes(0, "")
	autoscaled.Size = &csv1.NodePoolSpec_Autoscaling{Autoscaling: &csv1.NodePoolAutoscaling{Min: 2, Max: 9}}
	for name, tc := range map[string]struct {
		limits azurearm.ComputeLimits
		pools  []*csv1.NodePoolSpec
		want   []string
	}{
		"nothing is missing": {azurearm.ComputeLimits{}, []*csv1.NodePoolSpec{nodes(3, "1")}, []string{valid}},
		"size not offered": {azurearm.ComputeLimits{Absent: []string{d8s}}, []*csv1.NodePoolSpec{nodes(3, "")},
			[]string{"False VMSizeNotOffered: properties.platform.vmSize: Azure does not offer the size Standard_D8s_v3 in westus3. Create the node pool with another size."}},
		"size restricted": {azurearm.ComputeLimits{Restricted: map[string][]string{d8s: nil}}, []*csv1.NodePoolSpec{nodes(3, "")},
			[]string{"False VMSizeRestricted: properties.platform.vmSize: the subscription cannot use the size Standard_D8s_v3 in westus3 (NotAvailableForSubscription). Request it from Azure support, or create the node pool with another size."}},
		"size restricted in one zone": {azurearm.ComputeLimits{Restricted: map[string][]string{d8s: {"2"}}}, []*csv1.NodePoolSpec{nodes(3, "2"), nodes(3, "1"), nodes(3, "")},
			[]string{"False VMSizeRestricted: properties.platform.availabilityZone: the subscription cannot use the size Standard_D8s_v3 in zone 2 of westus3 (NotAvailableForSubscription). Request it from Azure support, or create the node pool with another zone or size.", valid, valid}},
		"quota of the family": {limit(azurearm.ComputeQuota{Used: 90, Limit: 100}, large), []*csv1.NodePoolSpec{nodes(3, "")},
			[]string{"False QuotaExceeded: properties.platform.vmSize: the missing nodes (3 of the size Standard_D8s_v3) need 24 cores in westus3, and the quota of the subscription has left: 10 of 100 of the family standardDSv3Family" + quota}},
		"quota of all cores": {limit(large, azurearm.ComputeQuota{Used: 7, Limit: 10}), []*csv1.NodePoolSpec{nodes(1, "")},
			[]string{"False QuotaExceeded: properties.platform.vmSize: the missing nodes (1 of the size Standard_D8s_v3) need 8 cores in westus3, and the quota of the subscription has left: 3 of 10 of all cores of the region" + quota}},
		"both quotas, overdrawn": {limit(azurearm.ComputeQuota{Used: 12, Limit: 8}, azurearm.ComputeQuota{Used: 12, Limit: 12}), []*csv1.NodePoolSpec{nodes(1, "")},
			[]string{"False QuotaExceeded: properties.platform.vmSize: the missing nodes (1 of the size Standard_D8s_v3) need 8 cores in westus3, and the quota of the subscription has left: 0 of 8 of the family standardDSv3Family; 0 of 12 of all cores of the region" + quota}},
		"exactly enough":           {limit(azurearm.ComputeQuota{Limit: 24}, azurearm.ComputeQuota{Limit: 24}), []*csv1.NodePoolSpec{nodes(3, "")}, []string{valid}},
		"without a limit":          {limit(azurearm.ComputeQuota{Used: 5, Limit: -1}, azurearm.ComputeQuota{Used: 5, Limit: -1}), []*csv1.NodePoolSpec{nodes(3, "")}, []string{valid}},
		"no nodes need no cores":   {limit(azurearm.ComputeQuota{}, azurearm.ComputeQuota{}), []*csv1.NodePoolSpec{nodes(0, "")}, []string{valid}},
		"minimum of an autoscaled": {limit(azurearm.ComputeQuota{Limit: 16}, large), []*csv1.NodePoolSpec{autoscaled}, []string{valid}},
		"enough for one of two": {limit(azurearm.ComputeQuota{Limit: 40}, large), []*csv1.NodePoolSpec{nodes(3, ""), nodes(3, "")},
			[]string{valid, "False QuotaExceeded: properties.platform.vmSize: the missing nodes (3 of the size Standard_D8s_v3) need 24 cores in westus3, and the quota of the subscription has left: 16 of 40 of the family standardDSv3Family" + quota}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequirements(t, tc.pools...)
			tc.limits.Subscription = customer
			must.Do(t, r.azure.SetComputeLimits(tc.limits))
			r.check()
			for i, want := range tc.want {
				if got := r.condition(i); got != want {
					t.Errorf("node pool %d:\n%s\nwant\n%s", i, got, want)
				}
				if blocked := r.awaited(i) != ""; blocked != strings.HasPrefix(want, "False") {
					t.Errorf("node pool %d waits for %q", i, r.awaited(i))
				}
			}
			must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customer}))
			for range 20 {
				r.check()
			}
			for i := range tc.want {
				if got := r.condition(i); got != valid || r.awaited(i) != "" {
					t.Errorf("node pool %d without the cause: %s, waits for %q", i, got, r.awaited(i))
				}
			}
		})
	}
}

// TestOwnVirtualMachinesAreNotMissing: Azure counts the virtual machines of a node pool as used before their nodes are ready. The check does not report
// this as a missing quota. Cluster Service sends no request when all nodes are ready.
func TestOwnVirtualMachinesAreNotMissing(t *testing.T) {
	r := newRequirements(t, nodes(3, ""))
	set := func(used int64) {
		must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customer, Quotas: map[string]azurearm.ComputeQuota{d8sFamily: {Used: used, Limit: 24}}}))
	}
	r.check()
	set(24)
	r.clock.set(r.clock.Now().Add(5 * time.Minute))
	r.cluster.Azure.Step(fleet.AzureRequirements).RetryTime = r.clock.Now()
	r.check()
	if got := r.condition(0); got != "True Valid" {
		t.Errorf("while nodes start: %s", got)
	}
	r.wire.taken()
	r.cluster.Works[2].Observed.Replicas = 3
	if !r.check() || r.check() {
		t.Errorf("the step of a node pool that has its nodes is %+v", r.step())
	}
	if sizes, quotas := r.wire.taken(); sizes+quotas > 0 || r.condition(0) != "True Valid" {
		t.Errorf("%d requests for sizes and %d for quotas for a node pool that has its nodes: %s", sizes, quotas, r.condition(0))
	}
	// More nodes are checked at once. Only those that do not exist need cores.
	r.cluster.Pools[0].Spec = nodes(5, "")
	set(20)
	r.clock.set(r.clock.Now().Add(time.Hour))
	now := r.clock.Now()
	if !r.check() || !r.clock.Now().Equal(now) || !strings.Contains(r.condition(0), ": the missing nodes (2 of the size Standard_D8s_v3) need 16 cores in westus3, and the quota of the subscription has left: 4 of 24") {
		t.Errorf("with more nodes: %s", r.condition(0))
	}
	// A report of the nodes suffices.
	r.cluster.Works[2].Observed.Replicas = 5
	must.Do(t, r.steps.Region.Settle(r.clock.Now(), r.cluster, nil))
	if got := r.condition(0); got != "True Valid" {
		t.Errorf("with all nodes: %s", got)
	}
}

// TestUnusableAnswersBlockNothing answers the requests for Azure Compute wrongly. No answer blocks the cluster or makes the condition False, and a
// condition that was False stays. The next usable answer heals it.
func TestUnusableAnswersBlockNothing(t *testing.T) {
	// A body is read once, and each answer has its own.
	respond := func(status int, header http.Header, body func() io.Reader) func(*http.Request) *http.Response {
		return func(*http.Request) *http.Response {
			return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(body())}
		}
	}
	text := func(status int, body string) func(*http.Request) *http.Response {
		return respond(status, http.Header{}, func() io.Reader { return strings.NewReader(body) })
	}
	const usable = `{"resourceType":"virtualMachines","name":"Standard_D8s_v3","locations":["westus3"],"family":"standardDSv3Family"`
	only := func(path string, answer func(*http.Request) *http.Response) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			if !strings.HasSuffix(r.URL.Path, path) {
				return nil
			}
			return answer(r)
		}
	}
	for name, answer := range map[string]func(*http.Request) *http.Response{
		"no right":          text(403, `{"error":{"code":"AuthorizationFailed","message":"no"}}`),
		"server error":      text(500, ""),
		"no JSON":           text(200, "<html>"),
		"truncated":         text(200, `{"value":[`+usable),
		"no list":           text(200, `{}`),
		"null":              text(200, `null`),
		"another type":      text(200, `{"value":"x"}`),
		"cores no number":   text(200, `{"value":[`+usable+`,"capabilities":[{"name":"vCPUs","value":"many"}]}]}`),
		"negative cores":    text(200, `{"value":[`+usable+`,"capabilities":[{"name":"vCPUs","value":"-8"}]}]}`),
		"foreign next page": text(200, `{"value":[],"nextLink":"https://attacker.example/skus"}`),
		"endless pages": func(r *http.Request) *http.Response {
			return text(200, `{"value":[],"nextLink":"`+r.URL.String()+`"}`)(r)
		},
		"no quota of all":     only("/usages", text(200, `{"value":[]}`)),
		"negative use":        only("/usages", text(200, `{"value":[{"name":{"value":"cores"},"currentValue":-1,"limit":1}]}`)),
		"quota without limit": only("/usages", text(200, `{"value":[{"name":{"value":"cores"},"currentValue":1}]}`)),
		"huge":                respond(200, http.Header{}, func() io.Reader { return io.MultiReader(strings.NewReader(`{"value":[{"name":"`), endless{}) }),
		"huge error":          respond(500, http.Header{}, func() io.Reader { return endless{} }),
		"throttled":           respond(429, http.Header{"Retry-After": {"1800"}}, func() io.Reader { return http.NoBody }),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequirements(t, nodes(3, ""))
			r.wire.answerWith(answer)
			r.check()
			if got := r.condition(0); got != "Unknown RequirementsUnread: Azure Compute could not be read. The service tries again, and does not wait for the answer." || r.awaited(0) != "" {
				t.Errorf("condition %q, waits for %q", got, r.awaited(0))
			}
			if name == "throttled" && r.step().RetryTime.Before(r.clock.Now().Add(30*time.Minute)) {
				t.Errorf("Azure requested a pause of 30 minutes; the next check is at %v, now it is %v", r.step().RetryTime, r.clock.Now())
			}
			if len(r.wire.hosts) != 1 {
				t.Errorf("requests were sent to %v", r.wire.hosts)
			}
			if r.step().Awaited == "" {
				t.Error("the step does not contain the cause for engineers")
			}
			r.wire.answerWith(nil)
			must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customer, Quotas: map[string]azurearm.ComputeQuota{"cores": {Limit: 1}}}))
			r.check()
			found := r.condition(0)
			if !strings.HasPrefix(found, "False QuotaExceeded") {
				t.Errorf("with a usable answer: %s", found)
			}
			r.wire.answerWith(answer)
			r.clock.set(r.clock.Now().Add(time.Hour))
			r.check()
			if got := r.condition(0); got != found {
				t.Errorf("an unusable answer changed the condition to %s", got)
			}
			r.wire.answerWith(nil)
			must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customer}))
			for range 3 {
				r.check()
			}
			if got := r.condition(0); got != "True Valid" {
				t.Errorf("without the cause: %s", got)
			}
		})
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestClustersShareRequests checks many clusters of a subscription at the same time, and again later. A list of sizes has two pages.
func TestClustersShareRequests(t *testing.T) {
	r := newRequirements(t, nodes(3, ""))
	must.Do(t, r.steps.Region.Settle(r.clock.Now(), r.cluster, nil))
	all := func() {
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				if o := r.steps.Try(t.Context(), r.cluster, r.step()); !o.Done {
					t.Errorf("outcome %+v", o)
				}
			})
		}
		group.Wait()
	}
	for _, at := range []struct {
		after         time.Duration
		sizes, quotas int
	}{{0, 2, 1}, {59 * time.Second, 0, 0}, {2 * time.Second, 0, 1}, {10 * time.Minute, 2, 1}} {
		r.clock.set(r.clock.Now().Add(at.after))
		all()
		if sizes, quotas := r.wire.taken(); sizes != at.sizes || quotas != at.quotas {
			t.Errorf("after another %v: %d requests for sizes and %d for quotas, want %d and %d", at.after, sizes, quotas, at.sizes, at.quotas)
		}
	}
	r.wire.answerWith(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: 503, Header: http.Header{}, Body: http.NoBody}
	})
	r.clock.set(r.clock.Now().Add(time.Hour))
	all()
	all()
	if sizes, quotas := r.wire.taken(); sizes != 1 || quotas != 0 {
		t.Errorf("while Azure Compute fails: %d requests for sizes and %d for quotas", sizes, quotas)
	}
}
