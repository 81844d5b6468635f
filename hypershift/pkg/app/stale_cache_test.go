package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedcluster"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// laggingCache reads from the management cluster, except that it can return a stale HostedControlPlane.
type laggingCache struct {
	client.Client
	stale *hyperv1.HostedControlPlane // nil if the cache is current
}

func (b *laggingCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if hcp, ok := object.(*hyperv1.HostedControlPlane); ok && b.stale != nil {
		b.stale.DeepCopyInto(hcp)
		return nil
	}
	return b.Client.Get(ctx, key, object, opts...)
}

// TestStatusIsUpdatedWhileCacheIsStale is a regression test. The runtime decided on a HostedControlPlane that was older
// than its own last write, found the status correct, and no event started another pass, because its own writes start
// none.
func TestStatusIsUpdatedWhileCacheIsStale(t *testing.T) {
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), nil))() // installs the CustomResourceDefinitions
	catalog := must.Get(release.Load(""))(t)
	cache := &laggingCache{Client: m.client}
	controller := &hostedcluster.Reconciler{Management: readyourwrites.New(cache, m.client), Live: m.client, Releases: catalog,
		Fidelity: contract.FidelityStatus, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	s := m.sample(t, "behind")
	once := func() time.Duration {
		t.Helper()
		result := must.Get(controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key()}))(t)
		return result.RequeueAfter
	}
	controlPlane := func() *hyperv1.HostedControlPlane {
		t.Helper()
		hcp := get[hyperv1.HostedControlPlane](t, m.client, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name})
		return &hcp
	}
	nodes := func() int { return *controlPlane().Status.NodeCount }
	settle := func() { // makes passes until one changes nothing
		t.Helper()
		for version := ""; once() > 0 || version != controlPlane().ResourceVersion; {
			version = controlPlane().ResourceVersion
		}
	}
	scale := func(replicas int32) {
		t.Helper()
		pool := get[hyperv1.NodePool](t, m.client, client.ObjectKeyFromObject(s.pool))
		pool.Status.Replicas = replicas
		must.Do(t, m.client.Status().Update(t.Context(), &pool))
	}
	s.createWithPool(t)
	scale(3)
	settle()
	cache.stale = controlPlane()
	scale(2)
	once()
	if before := *cache.stale.Status.NodeCount; before != 3 || nodes() != 2 {
		t.Fatalf("nodeCount is %d, then %d; want 3, then 2", before, nodes())
	}

	scale(3)
	again := once()
	cache.stale = nil
	if again > 0 { // otherwise no event starts a pass: the node pool does not change any more
		settle()
	}
	if nodes() != 3 {
		t.Errorf("nodeCount is %d with 3 nodes", nodes())
	}

	must.Do(t, m.client.Delete(t.Context(), s.hostedCluster(t)))
	eventually.Soon(t, "the HostedCluster is gone", func() error {
		once()
		var left hyperv1.HostedClusterList
		if err := m.client.List(t.Context(), &left); err != nil || meta.LenList(&left) == 0 {
			return err
		}
		return errors.New("the HostedCluster still exists")
	})
}
