package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// BenchmarkGet measures a GET of a cluster with the handler and the store, without a network connection to the
// frontend.
func BenchmarkGet(b *testing.B) {
	y := newHarness(b).newSubscription(b)
	y.createCluster("cluster")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if status, _, body := y.do(http.MethodGet, y.cluster("cluster"), ""); status != http.StatusOK {
				b.Error(status, body)
			}
		}
	})
}

// BenchmarkPut measures the creation of a cluster. TestStoreRequests states its requests to the store.
func BenchmarkPut(b *testing.B) {
	y := newHarness(b).newSubscription(b)
	names := make([]string, 0, 1024)
	bodies := make([]string, 0, 1024)
	for i := range 1024 {
		names = append(names, fmt.Sprintf("cluster-%d", i))
		bodies = append(bodies, y.body("cluster.json", y.platformPatch(names[i])))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if i%len(names) == 0 && i > 0 {
			b.StopTimer()
			y = y.newSubscription(b)
			for j := range names {
				bodies[j] = y.body("cluster.json", y.platformPatch(names[j]))
			}
			b.StartTimer()
		}
		if status, _, answer := y.do(http.MethodPut, y.cluster(names[i%len(names)]), bodies[i%len(names)]); status != http.StatusCreated {
			b.Fatal(status, answer)
		}
	}
}

// BenchmarkRefusedPut measures a PUT without the store's writes: decoding and validation of a full body with one
// violation.
func BenchmarkRefusedPut(b *testing.B) {
	y := newHarness(b).newSubscription(b)
	body := y.body("cluster.json", `{"properties":{"network":{"hostPrefix":30}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if status, _, answer := y.do(http.MethodPut, y.cluster("cluster"), body); status != http.StatusBadRequest {
			b.Fatal(status, answer)
		}
	}
}

// BenchmarkDecode measures decoding of a full body.
func BenchmarkDecode(b *testing.B) {
	y := newHarness(b).newSubscription(b)
	content := []byte(y.body("cluster.json", "{}"))
	v := versions.All()[newestVersion]
	b.ReportAllocs()
	for b.Loop() {
		fields := must.Get(wire.ParseObject(content))(b)
		body := wire.NewBody(fields)
		v.DecodeCluster(body, &hub.Cluster{}, true)
		if len(body.Problems()) > 0 {
			b.Fatal(body.Problems())
		}
	}
}
