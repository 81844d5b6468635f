package store_test

import (
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestAcceptedStateIsStored: an update, its refusal and its end are stored, and a generation that a replica of an earlier release stores is not
// refused.
func TestAcceptedStateIsStored(t *testing.T) {
	s, ctx, uid := open(t, store.Options{}), t.Context(), uuid.NewString()
	named := func(name string) *csv1.ClusterSpec { return &csv1.ClusterSpec{Name: name} }
	update := func(change func(a *fleet.ClusterAggregate)) *fleet.ClusterAggregate {
		t.Helper()
		must.Do(t, update(ctx, s, uid, change))
		return must.Get(s.Read(ctx, uid))(t)
	}
	release := fleet.Release{Version: "4.21.4", Image: "image"}
	pool, auth := uuid.NewString(), uuid.NewString()
	update(func(a *fleet.ClusterAggregate) {
		a.Cluster = &fleet.Cluster{UID: uid, ResourceID: uid, Generation: 1, Spec: named("before"), Status: &csv1.ClusterStatus{ObservedGeneration: 1}, Release: release, CreateTime: s.Now()}
		a.Pools = []*fleet.NodePool{{UID: pool, ClusterUID: uid, ResourceID: pool, Generation: 1, Spec: &csv1.NodePoolSpec{Name: "before"}, Status: &csv1.NodePoolStatus{ObservedGeneration: 1}, Release: release, CreateTime: s.Now()}}
		a.ExternalAuths = []*fleet.ExternalAuth{{UID: auth, ClusterUID: uid, ResourceID: auth, Status: &csv1.ExternalAuthStatus{}, CreateTime: s.Now()}}
		a.ExternalAuths[0].BeginUpdate(a)
		a.ExternalAuths[0].Generation, a.ExternalAuths[0].Spec = 1, &csv1.ExternalAuthSpec{Name: "after"}
	})
	pending := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.BeginUpdate(a)
		a.Cluster.Generation, a.Cluster.Spec = 2, named("after")
		a.Pools[0].BeginUpdate(a)
		a.Pools[0].Generation, a.Pools[0].Spec = 2, &csv1.NodePoolSpec{Name: "after"}
	})
	if c, p, e := pending.Cluster, pending.Pools[0], pending.ExternalAuths[0]; c.Spec.GetName() != "after" || !proto.Equal(c.Accepted.Spec, named("before")) || c.Accepted.Release != release || c.Accepted.Generation != 1 || c.Refused != nil ||
		p.Spec.GetName() != "after" || !proto.Equal(p.Accepted.Spec, &csv1.NodePoolSpec{Name: "before"}) || p.Accepted.Release != release || p.Refused != nil ||
		e.Accepted == nil || e.Accepted.Spec != nil || e.Refused != nil {
		t.Errorf("pending updates: %v, %v, %v", c.Update, p.Update, e.Update)
	}
	refused := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.Spec, a.Cluster.Refused = named("before"), a.Cluster.Spec
		a.Pools[0].Spec, a.Pools[0].Refused = &csv1.NodePoolSpec{Name: "before"}, a.Pools[0].Spec
		a.ExternalAuths[0].Refused = a.ExternalAuths[0].Spec
	})
	if c, p, e := refused.Cluster, refused.Pools[0], refused.ExternalAuths[0]; c.Spec.GetName() != "before" || c.RequestedSpec().GetName() != "after" || c.Refused == nil ||
		p.Spec.GetName() != "before" || p.RequestedSpec().GetName() != "after" || e.Spec.GetName() != "after" || e.Refused == nil || refused.RenderedExternalAuth() != nil {
		t.Errorf("refused updates: %v, %v, %v", c, p, e)
	}
	if again := update(func(*fleet.ClusterAggregate) {}); again.Cluster.Revision != refused.Cluster.Revision {
		t.Error("reading and writing a refused update changes it")
	}
	ended := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.Update, a.Pools[0].Update, a.ExternalAuths[0].Update = fleet.Update{}, fleet.Update{}, fleet.Update{}
	})
	if ended.Cluster.Update != (fleet.Update{}) || ended.Pools[0].Update != (fleet.Update{}) || ended.ExternalAuths[0].Update != (fleet.Update{}) {
		t.Errorf("ended updates: %v", ended)
	}
}
