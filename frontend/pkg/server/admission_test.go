package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/admission"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
)

// gauge returns the value of a metric without labels.
func (h *harness) gauge(t testing.TB, name string) float64 {
	t.Helper()
	families := must.Get(h.metrics.Gather())(t)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("the metric %s does not exist", name)
	return 0
}

// TestFloodingSubscriptionIsRefusedAlone lets one subscription use its share with requests whose bodies do not end, and its
// queue with another request. Its next request gets 429. Other subscriptions and provider-level paths still get responses.
func TestFloodingSubscriptionIsRefusedAlone(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // a recorder would wait for the end of the bodies
	h := newHarness(t, func(c *server.Config) {
		c.Limits = &admission.Limits{Seats: 8, SeatsPerFlow: 2, Waiting: 8, WaitingPerFlow: 1, MaxWait: time.Hour}
	})
	flood, quiet := h.newSubscription(t), h.newSubscription(t)
	const version = "?api-version=2026-09-01-preview"
	target := flood.cluster("cluster")
	var wg sync.WaitGroup
	send := func(method string, body io.Reader) {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), method, h.url+target+version, body))(t)
		request.Header.Set("Content-Type", "application/json")
		wg.Go(func() {
			response, err := h.client.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusBadRequest && response.StatusCode != http.StatusNotFound {
				t.Errorf("a request of the flood got %s", response.Status)
			}
		})
	}
	var bodies []*io.PipeWriter
	for range 2 {
		body, end := io.Pipe()
		bodies = append(bodies, end)
		send(http.MethodPut, body)
	}
	await := func(executing, waiting float64) {
		t.Helper()
		eventually.Soon(t, fmt.Sprintf("%v requests are executed and %v wait", executing, waiting), func() error {
			if gotExecuting, gotWaiting := h.gauge(t, "frontend_requests_executing"), h.gauge(t, "frontend_requests_waiting"); gotExecuting != executing || gotWaiting != waiting {
				return fmt.Errorf("%v are executed and %v wait", gotExecuting, gotWaiting)
			}
			return nil
		})
	}
	await(2, 0)
	send(http.MethodGet, nil)
	await(2, 1)

	status, header, body := flood.do(http.MethodGet, target+version, "")
	var refusal struct {
		Error struct{ Code, Message, Target string }
	}
	must.Do(t, json.Unmarshal([]byte(body), &refusal))
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || refusal.Error.Code != "TooManyRequests" || refusal.Error.Target != target {
		t.Errorf("the flood got %d %v %s", status, header, body)
	}
	quiet.createCluster("cluster")
	for _, target := range []string{quiet.cluster("cluster") + version, "/providers/Microsoft.RedHatOpenShift/operations" + version} {
		if status, _, body := quiet.do(http.MethodGet, target, ""); status != http.StatusOK {
			t.Errorf("GET %s: %d %s", target, status, body)
		}
	}
	for _, body := range bodies {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	await(0, 0)
	if status, _, body := flood.do(http.MethodGet, target+version, ""); status != http.StatusNotFound {
		t.Errorf("after the flood: %d %s", status, body)
	}
}

// BenchmarkFlood measures the GETs of one client of a quiet subscription: alone, while 600 clients of another subscription
// send requests without a pause, and the same with one limit for all subscriptions. refused/op is the part of the quiet
// client's requests that got 429.
func BenchmarkFlood(b *testing.B) {
	shared := admission.Limits{Seats: 512, SeatsPerFlow: 512}
	for _, c := range []struct {
		name    string
		clients int
		limits  *admission.Limits
	}{{"alone", 0, nil}, {"shares", 600, nil}, {"one-limit", 600, &shared}} {
		b.Run(c.name, func(b *testing.B) {
			h := newHarness(b, func(config *server.Config) { config.Limits = c.limits })
			h.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 1024
			flood, quiet := h.newSubscription(b), h.newSubscription(b)
			flood.createCluster("cluster")
			quiet.createCluster("cluster")
			get := func(y *testSubscription) int {
				response, err := h.client.Get(h.url + y.cluster("cluster") + "?api-version=2026-09-01-preview")
				if err != nil {
					b.Error(err)
					return 0
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				return response.StatusCode
			}
			var wg sync.WaitGroup
			var stop atomic.Bool
			var sent, floodRefused atomic.Int64
			for range c.clients {
				wg.Go(func() {
					for !stop.Load() {
						sent.Add(1)
						if get(flood) == http.StatusTooManyRequests {
							floodRefused.Add(1)
						}
					}
				})
			}
			for c.clients > 0 && sent.Load() < 2*int64(c.clients) {
				get(quiet)
			}
			var took []time.Duration
			refused := 0
			b.ResetTimer()
			for b.Loop() {
				started := time.Now()
				if get(quiet) == http.StatusTooManyRequests {
					refused++
				}
				took = append(took, time.Since(started))
			}
			b.StopTimer()
			stop.Store(true)
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(refused)/float64(len(took)), "refused/op")
			if sent.Load() > 0 {
				b.ReportMetric(float64(floodRefused.Load())/float64(sent.Load()), "flood-refused/op")
			}
		})
	}
}
