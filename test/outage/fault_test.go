package outage

import (
	"context"
	"fmt"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// inject makes a component unavailable: for the API servers of customers, those of the clusters that are not created or deleted.
func (r *region) inject(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind) (end func()) {
	t.Helper()
	var clusters []adminv1.Cluster
	if c.Process == "" {
		for _, name := range []string{quiet, update, scaling} {
			cluster := must.Get(adminclient.Get(ctx, r.sre, adminv1.ReadCluster, nil, r.customer.ClusterID(name)))(t)
			clusters = append(clusters, *cluster)
		}
	}
	return r.Inject(t, ctx, c, k, clusters...)
}

// awaitEffect waits until a component with a full disk notices it: a database works until it needs more space.
func (r *region) awaitEffect(t *testing.T, ctx context.Context, c fault.Component, k fault.Kind) {
	t.Helper()
	if k != fault.DiskFull {
		return
	}
	eventually.Soon(t, c.Process+" cannot work", func() error {
		explained, err := adminclient.Get(ctx, r.sre, adminv1.ReadRegionExplanation, nil)
		if err != nil {
			return err
		}
		for _, away := range explained.Components {
			if away.Layer == c.Layer && away.Away() {
				return nil
			}
		}
		return fmt.Errorf("%s", explained.Text())
	})
}
