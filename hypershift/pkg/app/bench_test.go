package app

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// BenchmarkCreate measures the time from the response to the creation of a HostedCluster until a watch shows it
// Available, one after the other on an idle runtime, in status fidelity at time scale 0.
func BenchmarkCreate(b *testing.B) {
	m := newManagementCluster(b)
	m.startRuntime(b, m.options(b.TempDir(), nil))
	watch := m.watchAvailable(b)
	warm := m.sample(b, "warm") // the API server compiles the validation rules on first use
	warm.create(b)
	watch.await(b, warm)
	samples := []*sample{warm}
	var durations []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		s := m.sample(b, fmt.Sprintf("one-%d", i))
		s.createPrerequisites(b)
		samples = append(samples, s)
		b.StartTimer()
		s.apply(b, s.cluster)
		created := time.Now()
		durations = append(durations, watch.await(b, s).Sub(created))
	}
	deleteAll(b, samples)
	slices.Sort(durations)
	b.ReportMetric(float64(durations[len(durations)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(durations[len(durations)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkProcess creates HostedClusters with real API servers one after the other, and deletes each before the next.
func BenchmarkProcess(b *testing.B) {
	m := newManagementCluster(b)
	m.startRuntime(b, m.options(b.TempDir(), withProcessFidelity))
	watch := m.watchAvailable(b)
	var durations []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		s := m.sample(b, fmt.Sprintf("process-%d", i))
		s.createPrerequisites(b)
		b.StartTimer()
		s.apply(b, s.cluster)
		created := time.Now()
		durations = append(durations, watch.await(b, s).Sub(created))
		b.StopTimer()
		s.delete(b)
		b.StartTimer()
	}
	slices.Sort(durations)
	b.ReportMetric(float64(durations[0].Milliseconds()), "min-ms")
	b.ReportMetric(float64(durations[len(durations)/2].Milliseconds()), "p50-ms")
}

// BenchmarkBurst creates 500 HostedClusters with a node pool each at the same time and waits until all are Available.
func BenchmarkBurst(b *testing.B) {
	clusters := 500
	if text := os.Getenv("BURST_CLUSTERS"); text != "" {
		clusters, _ = strconv.Atoi(text)
	}
	m := newManagementCluster(b)
	m.startRuntime(b, m.options(b.TempDir(), nil))
	watch := m.watchAvailable(b)
	var created []*sample
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		samples := make([]*sample, clusters)
		for j := range samples {
			samples[j] = m.sample(b, fmt.Sprintf("burst-%d-%d", i, j))
			samples[j].createPrerequisites(b)
		}
		b.StartTimer()
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for _, s := range samples {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.apply(b, s.cluster)
				s.apply(b, s.pool)
			})
		}
		wg.Wait()
		for _, s := range samples {
			watch.await(b, s)
		}
		created = append(created, samples...)
	}
	b.ReportMetric(float64(procfs.Resident(os.Getpid())>>20), "MiB-resident")
	deleteAll(b, created)
}

// deleteAll deletes the HostedClusters after the measurement: the next benchmark uses the same management cluster.
func deleteAll(b *testing.B, samples []*sample) {
	b.Helper()
	for _, s := range samples {
		if err := s.client.Delete(b.Context(), s.cluster); err != nil {
			b.Fatalf("deleting the HostedCluster %s: %v", s.key(), err)
		}
	}
	for _, s := range samples {
		s.awaitGone(b)
	}
}

// availableWatch records when each HostedCluster was first Available.
type availableWatch struct {
	mu   sync.Mutex
	seen map[client.ObjectKey]time.Time
	wake chan struct{}
}

func (m *managementCluster) watchAvailable(b *testing.B) *availableWatch {
	b.Helper()
	w := &availableWatch{seen: map[client.ObjectKey]time.Time{}, wake: make(chan struct{}, 1)}
	watcher := must.Get(m.client.Watch(b.Context(), &hyperv1.HostedClusterList{}))(b)
	b.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			hc, ok := event.Object.(*hyperv1.HostedCluster)
			if !ok || available(hc) != nil {
				continue
			}
			w.mu.Lock()
			if _, known := w.seen[client.ObjectKeyFromObject(hc)]; !known {
				w.seen[client.ObjectKeyFromObject(hc)] = time.Now()
			}
			w.mu.Unlock()
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}()
	return w
}

func (w *availableWatch) await(b *testing.B, s *sample) time.Time {
	b.Helper()
	for {
		w.mu.Lock()
		at, ok := w.seen[s.key()]
		w.mu.Unlock()
		if ok {
			return at
		}
		<-w.wake
	}
}
