package app_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// BenchmarkAudit measures what auditing adds to a call of an engineer over mutual TLS, which changes a provision shard in PostgreSQL; see
// audittest.Stopwatch. The server does not sync its files, so that a call without an audit does not wait for the disk.
func BenchmarkAudit(b *testing.B) {
	r := newMeshRegion(b)
	r.log = slog.New(slog.DiscardHandler)
	r.watch = audittest.NewStopwatch(r.records)
	service := r.start(nil)
	calls := 0
	r.watch.Measure(b, func() time.Duration {
		calls++
		cordoned := calls%2 == 1
		request := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &cordoned, Actor: &csv1.Actor{Name: "alice", Reason: "it is measured"}}
		signed := r.admin.Call(b, csv1.ClusterService_UpdateProvisionShard_FullMethodName, request, func(i *intent.Intent) {
			i.OperationID, i.Action, i.Target = fmt.Sprint("operation ", calls), "shards.cordon", intent.Target{Kind: "provisionShard", ID: "mgmt-1"}
		})
		ctx := intent.AppendToOutgoingContext(b.Context(), signed)
		begin := time.Now()
		must.Get(service.UpdateProvisionShard(ctx, request))(b)
		return time.Since(begin)
	})
}
