package adminoperation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
)

// BenchmarkAudit measures what auditing adds to an attempt to execute an action: from its first record, through a call of a simulated
// Cluster Service, to its outcome; see audittest.Stopwatch. Nobody waits for the response of an attempt.
func BenchmarkAudit(b *testing.B) {
	h := newEnvironment(b)
	watch := audittest.NewStopwatch(h.trail)
	h.run(b, adminoperation.Options{Audit: watch})
	operations := 0
	watch.Measure(b, func() time.Duration {
		operations++
		key := h.request(b, fmt.Sprint("operation-", operations), adminv1.ActionClusterPause, map[string]string{"clusterUid": "uid", "until": "2030-01-01T00:00:00Z"})
		h.await(b, key, database.AdminSucceeded)
		return watch.Times().Action
	})
}
