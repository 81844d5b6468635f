package versions_test

import (
	"encoding/json"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// full returns the largest cluster of the contract's examples.
func full(b testing.TB, version string) []byte {
	all := must.Get(examples.Of(version))(b)
	for _, example := range all {
		if example.Name == "HcpOpenShiftClusters_CreateOrUpdate_Full" {
			return example.Body()
		}
	}
	b.Fatal("there is no full cluster among the examples of ", version)
	return nil
}

// BenchmarkDecodeCluster measures decoding of a full body: parse is JSON alone, decode the conversion to the hub type.
func BenchmarkDecodeCluster(b *testing.B) {
	for _, api := range version.All() {
		v, content := versions.All()[api.Name], full(b, api.Name)
		b.Run(api.Name+"/parse", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(wire.ParseObject(content))(b)
			}
		})
		b.Run(api.Name+"/decode", func(b *testing.B) {
			fields := must.Get(wire.ParseObject(content))(b)
			b.ReportAllocs()
			for b.Loop() {
				body := wire.NewBody(fields)
				v.DecodeCluster(body, &hub.Cluster{}, true)
				if len(body.Problems()) > 0 {
					b.Fatal(body.Problems())
				}
			}
		})
	}
}

// BenchmarkEncodeCluster measures encoding of a full cluster.
func BenchmarkEncodeCluster(b *testing.B) {
	for _, api := range version.All() {
		v := versions.All()[api.Name]
		fields := must.Get(wire.ParseObject(full(b, api.Name)))(b)
		cluster := v.DecodeCluster(wire.NewBody(fields), &hub.Cluster{}, true)
		b.Run(api.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encoded := v.EncodeCluster(cluster, hub.Succeeded, &hub.ClusterStatus{APIURL: "https://api"})
				must.Get(encoded.(json.Marshaler).MarshalJSON())(b)
			}
		})
	}
}
