package portal

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// BenchmarkClusters requests the pages whose size depends on clusters, with full lists, and measures the whole response and its compressed size. The
// API responds at once: BenchmarkListClusters of Cluster Service's store has the part that depends on the fleet.
func BenchmarkClusters(b *testing.B) {
	h := newHarness(b)
	h.api.fill("orders-dev")
	var list adminv1.ClusterList
	for i := range 50 {
		uid := fmt.Sprintf("3f6c1d9e-6f0a-4c9b-8a4e-%012d", i)
		subscription := fmt.Sprintf("00000000-0000-0000-0000-%012d", 7919*i)
		list.Items = append(list.Items, adminv1.Cluster{UID: uid, Name: fmt.Sprintf("cluster-%d", i), SubscriptionID: subscription, Phase: "Ready", Verdict: "Ready", ProvisionShard: fmt.Sprintf("mgmt-%d", i%9),
			Version: "4.20.8", ResourceID: "/subscriptions/" + subscription + "/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c", APIURL: "https://api.c" + uid[24:] + ".example.com",
			Concern: &adminv1.ClusterConcern{Layer: "node-pool", State: "WaitingForNodes", Since: testTime.Add(-time.Duration(i) * time.Minute)}})
	}
	list.NextPageToken = "next"
	h.api.responses["/clusters"] = list
	client := h.newBrowser()
	client.signIn("oncall@example.com", "/me")
	for name, path := range map[string]string{"not ready": "/clusters", "all": "/clusters?all=1", "region": "/"} {
		b.Run(name, func(b *testing.B) {
			size := int64(0)
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, h.url+path, nil)
				if err != nil {
					b.Fatal(err)
				}
				request.Header.Set("Accept-Encoding", "gzip")
				response := must.Get(client.client.Do(request))(b)
				size, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "gzip" {
					b.Fatal(response.Status, response.Header.Get("Content-Encoding"), err)
				}
			}
			b.ReportMetric(float64(size)/1000, "KB")
		})
	}
}
