package app_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

// BenchmarkCreateToSucceeded measures the backend's share of a create with a fleet that responds at once: from the
// frontend's commit and request to the end of the operation. 16 clients create the b.N clusters.
func BenchmarkCreateToSucceeded(b *testing.B) {
	r := newRegion(b)
	r.start("backend-0")
	client := clusterservice.NewClient(r.connection)
	var mu sync.Mutex
	var took []time.Duration
	next := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range next {
				key := clusterKey(subscription, fmt.Sprintf("c%d", i))
				operation := r.createCluster(key)
				item, err := r.db.Clusters().Get(b.Context(), key)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := client.ApplyCluster(b.Context(), &item.Value); err != nil {
					b.Error(err)
					return
				}
				r.eventually("operation", func() string {
					item, err := r.db.Operations().Get(b.Context(), operation)
					if err != nil || !item.Value.Status.Terminal() {
						return fmt.Sprint("not terminal: ", err)
					}
					mu.Lock()
					defer mu.Unlock()
					took = append(took, item.Value.EndTime.Sub(item.Value.StartTime))
					return ""
				})
			}
		})
	}
	b.ResetTimer()
	for i := range b.N {
		next <- i
	}
	close(next)
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
