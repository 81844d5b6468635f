package app_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// crashingInstance is a Cluster Service that crashes at its external writes: the commits of its transactions and its publishes to
// Maestro or, in a region with Azure, its changes there. Another one replaces it after each crash.
type crashingInstance struct {
	current atomic.Pointer[instance] // may just have crashed
	stop    func()
}

// crashingInstance starts a Cluster Service whose crashes the injector controls.
func (r *region) crashingInstance(d *crashsweep.Injector) *crashingInstance {
	ended := func(string) error {
		if d.Crashed() {
			return crashsweep.ErrCrashed
		}
		return nil
	}
	point := d.Point
	if r.azure != nil {
		point = ended
		r.azureWire = &http.Client{Transport: d.TransportOver(r.azure.HTTP().Transport, func(request *http.Request) string {
			if request.Method == http.MethodGet || request.Method == http.MethodHead {
				return ""
			}
			return request.Method + " " + request.URL.Path
		})}
	}
	fault := func(name string) error {
		if name == "before-begin" {
			return ended(name) // nothing is written between this point and the commit
		}
		return point(name)
	}
	r.maestro.Fault(func(action string, b *maestrotest.Resource) (before, after error) {
		if err := point("before-" + action); err != nil {
			return err, nil
		}
		return nil, point("after-" + action)
	})
	m := &crashingInstance{}
	stop := d.Supervise(func() func() {
		next := r.start(fault)
		m.current.Store(next)
		return next.stop
	})
	m.stop = func() { stop(); r.maestro.Fault(nil) }
	return m
}

// call repeats a call of the current instance until it succeeds and wanted, which may be nil, returns true for the response, as the
// layers above do. It returns that response.
func call[Request, Response any](t *testing.T, m *crashingInstance, method func(csv1.ClusterServiceClient, context.Context, Request, ...grpc.CallOption) (Response, error), request Request, wanted func(Response) bool) (response Response) {
	t.Helper()
	untilDone(t, func(ctx context.Context) (err error) {
		if response, err = method(m.current.Load(), ctx, request); err == nil && wanted != nil && !wanted(response) {
			err = fmt.Errorf("the response is %v", response)
		}
		return err
	})
	return response
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
	pools := must.Get(service.ListNodePools(t.Context(), &csv1.ListNodePoolsRequest{ClusterUid: c.GetUid(), Phases: []csv1.NodePoolPhase{csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED, csv1.NodePoolPhase_NODE_POOL_PHASE_READY}}))(t)
	for _, p := range pools.GetNodePools() {
		w.Pools = append(w.Pools, p.GetStatus().GetPhase().String())
	}
	auths := must.Get(service.ListExternalAuths(t.Context(), &csv1.ListExternalAuthsRequest{ClusterUid: c.GetUid(), Phases: []csv1.ExternalAuthPhase{csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY}}))(t)
	for _, a := range auths.GetExternalAuths() {
		w.Auths = append(w.Auths, a.GetStatus().GetPhase().String())
	}
	credentials := must.Get(service.ListBreakGlassCredentials(t.Context(), &csv1.ListBreakGlassCredentialsRequest{ClusterUid: c.GetUid()}))(t)
	for _, k := range credentials.GetCredentials() {
		w.States = append(w.States, k.GetStatus().GetState().String())
	}
	revocations := must.Get(service.ListBreakGlassRevocations(t.Context(), &csv1.ListBreakGlassRevocationsRequest{ClusterUid: c.GetUid()}))(t)
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
	w.Clusters = service.onShards(t)
	for _, list := range [][]string{w.Pools, w.Auths, w.States, w.Maestro, w.Gone} {
		slices.SortFunc(list, cmp.Compare[string])
	}
	return w
}

// onShards returns the number of clusters on all shards.
func (i *instance) onShards(t *testing.T) (clusters int32) {
	t.Helper()
	shards := must.Get(i.ListProvisionShards(t.Context(), &csv1.ListProvisionShardsRequest{}))(t)
	for _, s := range shards.GetProvisionShards() {
		clusters += s.GetClusters()
	}
	return clusters
}

// TestSweepCreation crashes Cluster Service at every external write, and at pairs of them, of the creation of a cluster with a node
// pool, and then of an external authentication and a credential.
func TestSweepCreation(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.hypershift.ProvideSecrets(true)
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		cluster := applyRequest(fmt.Sprintf("c%d", d.Seed()), 1)
		pool, auth, credential := poolRequest(cluster, "np1", 2), authRequest(cluster, "ea", 1), credentialRequest(t, cluster, customer)
		m := r.crashingInstance(d)
		call(t, m, csv1.ClusterServiceClient.ApplyCluster, cluster, nil)
		call(t, m, csv1.ClusterServiceClient.ApplyNodePool, pool, nil)
		call(t, m, csv1.ClusterServiceClient.GetNodePool, &csv1.GetNodePoolRequest{Uid: pool.Uid}, poolReady)
		call(t, m, csv1.ClusterServiceClient.GetCluster, &csv1.GetClusterRequest{Uid: cluster.Uid}, clusterReady(1))
		call(t, m, csv1.ClusterServiceClient.ApplyExternalAuth, auth, nil)
		call(t, m, csv1.ClusterServiceClient.ApplyBreakGlassCredential, credential, nil)
		call(t, m, csv1.ClusterServiceClient.GetExternalAuth, &csv1.GetExternalAuthRequest{Uid: auth.Uid}, func(a *csv1.ExternalAuth) bool {
			return a.GetStatus().GetPhase() == csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY
		})
		call(t, m, csv1.ClusterServiceClient.GetBreakGlassCredential, &csv1.GetBreakGlassCredentialRequest{Uid: credential.Uid}, func(c *csv1.BreakGlassCredential) bool {
			return c.GetStatus().GetState() == csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
		})
		m.stop()
		return r.endOf(t, cluster.Uid, credential.Uid)
	})
}

// TestSweepUpgrade does the same for an upgrade over two releases with two node pools, and for the following upgrade of the customer to
// the next minor version. Components of the control plane are read meanwhile, and nothing of that is left.
func TestSweepUpgrade(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.componentsAfter = 0
	r.play()
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		name := fmt.Sprintf("u%d", d.Seed())
		steady := r.start(nil)
		cluster := steady.installed(t, name, "4.20.8", "a", "b")
		steady.stop()
		m := r.crashingInstance(d)
		request := startRequest(cluster, "4.21.4", followAll)
		request.Acknowledge = []string{fleet.GateMinorVersion}
		call(t, m, csv1.ClusterServiceClient.StartUpgrade, request, nil)
		call(t, m, csv1.ClusterServiceClient.GetUpgrade, &csv1.GetUpgradeRequest{Uid: request.Uid}, upgradeIs(request.Uid, completed))
		next := applyRequest(name, 2)
		next.Spec.Version.Id = "4.22"
		call(t, m, csv1.ClusterServiceClient.ApplyCluster, next, nil)
		call(t, m, csv1.ClusterServiceClient.GetCluster, &csv1.GetClusterRequest{Uid: cluster.Uid}, func(c *csv1.Cluster) bool {
			return clusterReady(2)(c) && runs("4.22.2")(c) && len(r.rollouts(cluster.Uid)) == 0
		})
		var end []string
		for _, u := range call(t, m, csv1.ClusterServiceClient.ListUpgrades, &csv1.ListUpgradesRequest{ClusterUid: cluster.Uid}, nil).GetUpgrades() {
			end = append(end, fmt.Sprintf("%s %s: %s", u.GetSpec().GetVersion(), u.GetStatus().GetState(), strings.Join(steps(u), ", ")))
		}
		slices.Sort(end)
		for _, pool := range []string{"a", "b"} {
			status := call(t, m, csv1.ClusterServiceClient.GetNodePool, &csv1.GetNodePoolRequest{Uid: poolRequest(cluster, pool, 2).Uid}, nil).GetStatus()
			end = append(end, fmt.Sprintf("%s %s %s", pool, status.GetPhase(), status.GetVersion()))
		}
		m.stop()
		return end
	})
	r.nothingWasWrong(t)
}

// TestSweepDeletion does the same for the deletion of a cluster with a node pool, an external authentication and a credential.
func TestSweepDeletion(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.hypershift.ProvideSecrets(true)
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		steady := r.start(nil)
		cluster, _ := steady.createReady(t, fmt.Sprintf("d%d", d.Seed()))
		steady.createReadyPool(t, cluster, "np1", 1)
		auth := authRequest(cluster, "ea", 1)
		steady.applyAuth(t, auth, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 1)
		issued, _ := steady.issue(t, cluster, customer)
		// The deletion has a step for the signing request as long as it exists.
		untilDone(t, func(ctx context.Context) error {
			listed, err := steady.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: cluster.Uid})
			if err == nil && slices.ContainsFunc(listed.GetWorks(), func(w *csv1.Work) bool { return w.GetOwnerUid() == issued.Uid }) {
				err = fmt.Errorf("the signing request of %s exists", issued.Uid)
			}
			return err
		})
		steady.stop()
		m := r.crashingInstance(d)
		call(t, m, csv1.ClusterServiceClient.DeleteCluster, &csv1.DeleteClusterRequest{Uid: cluster.Uid}, nil)
		call(t, m, csv1.ClusterServiceClient.GetCluster, &csv1.GetClusterRequest{Uid: cluster.Uid}, clusterDeleted)
		m.stop()
		return r.endOf(t, cluster.Uid, issued.Uid)
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
		issued, _ := steady.issue(t, cluster, customer)
		pending, revocation := credentialRequest(t, cluster, customer), revokeRequest(cluster, customer)
		r.hypershift.Hold(true)
		must.Get(steady.ApplyBreakGlassCredential(t.Context(), pending))(t)
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
		call(t, m, csv1.ClusterServiceClient.RevokeBreakGlassCredentials, revocation, nil)
		call(t, m, csv1.ClusterServiceClient.GetBreakGlassRevocation, &csv1.GetBreakGlassRevocationRequest{Uid: revocation.Uid}, func(v *csv1.BreakGlassRevocation) bool {
			return v.GetStatus().GetState() == csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED
		})
		m.stop()
		return r.endOf(t, cluster.Uid, issued.Uid, pending.Uid, revocation.Uid)
	})
}

// endOf waits until nothing is in progress, without further crashes, reads the world and removes the cluster. Nothing of it may be left.
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
		service.removed(t, clusterUID)
	}
	r.onlyWorks("")
	if left := service.onShards(t); left != 0 {
		t.Errorf("the shards hold %d clusters after the deletion of all", left)
	}
	return w
}
