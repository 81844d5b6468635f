package app_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
)

// crashingInstance is a Cluster Service that crashes at its external writes: the commits of its transactions and its publishes to
// Maestro. Another one replaces it after each crash.
type crashingInstance struct {
	mu      sync.Mutex
	current *instance
	over    chan struct{}
	group   sync.WaitGroup
}

// crashingInstance starts a Cluster Service whose crashes the injector controls.
func (r *region) crashingInstance(d *crashsweep.Injector) *crashingInstance {
	fault := func(point string) error {
		if point == "before-begin" {
			if d.Crashed() {
				return crashsweep.ErrCrashed
			}
			return nil // nothing is written between this point and the commit
		}
		return d.Point(point)
	}
	r.maestro.Fault(func(action string, b *maestrotest.Resource) (before, after error) {
		if err := d.Point("before-" + action); err != nil {
			return err, nil
		}
		return nil, d.Point("after-" + action)
	})
	m := &crashingInstance{current: r.start(fault), over: make(chan struct{})}
	m.group.Go(func() {
		for {
			select {
			case <-m.over:
				return
			case <-d.Done():
			}
			m.now().stop()
			d.Restart()
			next := r.start(fault)
			m.mu.Lock()
			m.current = next
			m.mu.Unlock()
		}
	})
	return m
}

// now returns the current instance, which may just have crashed.
func (m *crashingInstance) now() *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *crashingInstance) end(r *region) {
	close(m.over)
	m.group.Wait()
	r.maestro.Fault(nil)
	m.now().stop()
}

// until repeats do with the current instance until it succeeds, as the layers above do.
func (m *crashingInstance) until(t *testing.T, do func(ctx context.Context, service *instance) error) {
	t.Helper()
	untilDone(t, func(ctx context.Context) error { return do(ctx, m.now()) })
}

// world is everything that Cluster Service has written, and what it reports, without the differences between two
// clusters of the same scenario.
type world struct {
	Phase    string
	Steps    []string
	Pools    []string
	Auths    []string
	States   []string
	Maestro  []string
	Gone     []string
	Clusters int32
}

// world returns the world of one cluster.
func (r *region) world(t *testing.T, service *instance, c *csv1.Cluster, others ...string) world {
	t.Helper()
	var w world
	w.Phase, w.Steps = c.GetStatus().GetPhase().String(), states(c.GetStatus().GetDeletion())
	id := c.GetStatus().GetClusterId()
	pools, err := service.ListNodePools(t.Context(), &csv1.ListNodePoolsRequest{ClusterUid: c.GetUid(), Phases: []csv1.NodePoolPhase{csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED, csv1.NodePoolPhase_NODE_POOL_PHASE_READY}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools.GetNodePools() {
		w.Pools = append(w.Pools, p.GetStatus().GetPhase().String())
	}
	auths, err := service.ListExternalAuths(t.Context(), &csv1.ListExternalAuthsRequest{ClusterUid: c.GetUid(), Phases: []csv1.ExternalAuthPhase{csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range auths.GetExternalAuths() {
		w.Auths = append(w.Auths, a.GetStatus().GetPhase().String())
	}
	credentials, err := service.ListBreakGlassCredentials(t.Context(), &csv1.ListBreakGlassCredentialsRequest{ClusterUid: c.GetUid()})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range credentials.GetCredentials() {
		w.States = append(w.States, k.GetStatus().GetState().String())
	}
	revocations, err := service.ListBreakGlassRevocations(t.Context(), &csv1.ListBreakGlassRevocationsRequest{ClusterUid: c.GetUid()})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range revocations.GetRevocations() {
		w.States = append(w.States, v.GetStatus().GetState().String())
	}
	// Names of works contain IDs that differ between scenarios.
	plain := func(name string) string {
		name = strings.TrimPrefix(name, id)
		for i, uid := range others {
			name = strings.ReplaceAll(name, uid, fmt.Sprint("#", i))
		}
		return name
	}
	for _, held := range r.maestro.Resources() {
		if strings.HasPrefix(held.Name, id) {
			w.Maestro = append(w.Maestro, plain(held.Name))
		}
	}
	for _, line := range r.maestro.History() {
		// A repeated request had one effect.
		if name, gone := strings.CutPrefix(line, "gone "); gone && strings.HasPrefix(name, id) && !slices.Contains(w.Gone, plain(name)) {
			w.Gone = append(w.Gone, plain(name))
		}
	}
	shards, err := service.ListProvisionShards(t.Context(), &csv1.ListProvisionShardsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards.GetProvisionShards() {
		w.Clusters += s.GetClusters()
	}
	for _, list := range [][]string{w.Pools, w.Auths, w.States, w.Maestro, w.Gone} {
		slices.SortFunc(list, cmp.Compare[string])
	}
	return w
}

// TestSweepDeletion crashes Cluster Service at every external write, and at pairs of them, of the deletion of a cluster
// with a node pool and an external authentication.
func TestSweepDeletion(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.hypershift.ProvideSecrets(true)
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		steady := r.start(nil)
		cluster, _ := steady.createReady(t, fmt.Sprintf("d%d", d.Seed()))
		pool, auth := poolRequest(cluster, "np1", 1), authRequest(cluster, "ea", 1)
		if _, err := steady.ApplyNodePool(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if _, err := steady.ApplyExternalAuth(t.Context(), auth); err != nil {
			t.Fatal(err)
		}
		steady.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
			return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY
		})
		untilDone(t, func(ctx context.Context) error {
			a, err := steady.GetExternalAuth(ctx, &csv1.GetExternalAuthRequest{Uid: auth.Uid})
			if err == nil && a.GetStatus().GetPhase() != csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY {
				err = fmt.Errorf("external auth is %v", a.GetStatus())
			}
			return err
		})
		steady.stop()
		m := r.crashingInstance(d)
		m.until(t, func(ctx context.Context, service *instance) error {
			_, err := service.DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: cluster.Uid})
			return err
		})
		m.until(t, func(ctx context.Context, service *instance) error {
			c, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid})
			if err == nil && !clusterDeleted(c) {
				err = fmt.Errorf("seed %d: cluster is %v", d.Seed(), c.GetStatus())
			}
			return err
		})
		m.end(r)
		return r.endOf(t, cluster.Uid)
	})
}

// TestSweepRevocation does the same for the revocation of a class with one issued and one pending credential.
func TestSweepRevocation(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		steady := r.start(nil)
		cluster, _ := steady.createReady(t, fmt.Sprintf("r%d", d.Seed()))
		issued, pending, revocation := credentialRequest(t, cluster, customer), credentialRequest(t, cluster, customer), revokeRequest(cluster, customer)
		if _, err := steady.ApplyBreakGlassCredential(t.Context(), issued); err != nil {
			t.Fatal(err)
		}
		untilDone(t, func(ctx context.Context) error {
			c, err := steady.GetBreakGlassCredential(ctx, &csv1.GetBreakGlassCredentialRequest{Uid: issued.Uid})
			if err == nil && c.GetStatus().GetState() != csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED {
				err = fmt.Errorf("credential is %v", c.GetStatus())
			}
			return err
		})
		r.hypershift.Hold(true)
		if _, err := steady.ApplyBreakGlassCredential(t.Context(), pending); err != nil {
			t.Fatal(err)
		}
		untilDone(t, func(context.Context) error {
			for _, held := range r.maestro.Resources() {
				if strings.HasSuffix(held.Name, "-credential-"+pending.Uid) {
					return nil
				}
			}
			return fmt.Errorf("the request of %s is not published", pending.Uid)
		})
		steady.stop()
		r.hypershift.Hold(false)
		m := r.crashingInstance(d)
		m.until(t, func(ctx context.Context, service *instance) error {
			_, err := service.RevokeBreakGlassCredentials(ctx, revocation)
			return err
		})
		m.until(t, func(ctx context.Context, service *instance) error {
			v, err := service.GetBreakGlassRevocation(ctx, &csv1.GetBreakGlassRevocationRequest{Uid: revocation.Uid})
			if err == nil && v.GetStatus().GetState() != csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED {
				err = fmt.Errorf("seed %d: revocation is %v", d.Seed(), v.GetStatus())
			}
			return err
		})
		m.end(r)
		return r.endOf(t, cluster.Uid, issued.Uid, pending.Uid, revocation.Uid)
	})
}

// endOf waits until nothing is in progress, without further crashes, reads the world and removes the cluster.
func (r *region) endOf(t *testing.T, clusterUID string, others ...string) world {
	t.Helper()
	service := r.start(nil)
	defer service.stop()
	var c *csv1.Cluster
	untilDone(t, func(ctx context.Context) (err error) {
		if c, err = service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: clusterUID}); err != nil {
			return err
		}
		for _, held := range r.maestro.Resources() {
			if held.Deleting || strings.Contains(held.Name, "-credential-") || strings.Contains(held.Name, "-revocation-") {
				return fmt.Errorf("work %s still exists", held.Name)
			}
		}
		return nil
	})
	w := r.world(t, service, c, others...)
	if c.GetDeleteTime() == nil {
		service.remove(t, clusterUID)
		service.awaitCluster(t, clusterUID, clusterDeleted)
	}
	return w
}
