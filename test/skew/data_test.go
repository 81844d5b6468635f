package skew

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestCheckoutRunsOnCapturedData starts the programs of the checkout on the data of the previous release, as a region after an upgrade. The
// operations that were in progress must end, customers must see their resources unchanged at every api-version, and they must be able to
// change and delete them.
func TestCheckoutRunsOnCapturedData(t *testing.T) {
	nightly.Only(t)
	ctx := t.Context()
	r := newRegion(t)
	captured := capturedViews(t, r)
	r.restore(t, ctx)
	r.start(t, ctx)
	c := newCustomer(t, ctx, r.Endpoints())
	requireViews(t, ctx, c, captured)
	awaitCaptured(t, ctx, c)
	r.awaitConsistent(t, ctx)
	if _, err := c.Patch(ctx, c.ClusterID(settled), tags("1")); err != nil {
		t.Error(err)
	}
	if _, err := c.Put(ctx, c.NodePoolID(creating, "workers"), c.NodePoolBody(1)); err != nil {
		t.Error(err)
	}
	if err := requestCredential(ctx, c, settled); err != nil {
		t.Error(err)
	}
	removeFleet(t, ctx, c)
	r.awaitConsistent(t, ctx)
}
