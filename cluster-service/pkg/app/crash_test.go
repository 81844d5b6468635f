package app_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// crash terminates a process at the n-th point that it passes: from then on, its transactions fail.
type crash struct {
	mu      sync.Mutex
	left    int
	crashed chan struct{}
}

func crashAt(n int) *crash { return &crash{left: n, crashed: make(chan struct{})} }

func (c *crash) fault(string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	if c.left == 0 {
		close(c.crashed)
	}
	if c.left <= 0 {
		return errCrash
	}
	return nil
}

// unreached reports whether the scenario ended before the point was reached, so that every point was tried.
func (c *crash) unreached() bool {
	select {
	case <-c.crashed:
		return false
	default:
		return true
	}
}

// untilDone repeats do until it succeeds, as the layers above do. The service may crash meanwhile.
func untilDone(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	eventually.Before(ctx, t, "a request succeeds", func() error { return do(ctx) })
}

// awaitCondition waits until condition returns true.
func awaitCondition(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually.Soon(t, what, func() error {
		if !condition() {
			return errors.New("the condition is false")
		}
		return nil
	})

}

// survivor is a Cluster Service that is replaced when it crashes.
type survivor struct {
	mu       sync.Mutex
	current  *instance
	finished chan struct{}
	group    sync.WaitGroup
}

func (r *region) survivor(c *crash) *survivor {
	w := &survivor{current: r.start(c.fault), finished: make(chan struct{})}
	w.group.Go(func() {
		select {
		case <-c.crashed:
			w.now().stop()
			next := r.start(nil)
			w.mu.Lock()
			w.current = next
			w.mu.Unlock()
		case <-w.finished:
		}
	})
	return w
}

// now returns the current instance, which may just have crashed.
func (w *survivor) now() *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *survivor) end() {
	close(w.finished)
	w.group.Wait()
	w.now().stop()
}

// everyPoint calls run with a crash at the first point, at the second, and so on, until run reports that the point was
// not reached. Several regions share the points, because the scenarios mostly wait.
func everyPoint(t *testing.T, crash func(t *testing.T, r *region, n int) (passed bool), after func(t *testing.T, r *region)) {
	t.Helper()
	most := math.MaxInt
	if !nightly.Run() {
		most = lanes
	}
	var next atomic.Int64
	var passed atomic.Bool
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane+1), func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.play()
			for !passed.Load() {
				n := int(next.Add(1))
				if n > most {
					break
				}
				if crash(t, r, n) {
					passed.Store(true)
					t.Logf("%d points", n-1)
				}
			}
			after(t, r)
		})
	}
}

// lanes is the number of regions that share the points.
const lanes = 4

// TestCrashesDuringLifecycleConverge terminates the process at each point of the life cycle of a cluster, starts another
// one and expects the same result every time.
func TestCrashesDuringLifecycleConverge(t *testing.T) {
	t.Parallel()
	everyPoint(t, lifecycleWithCrash, func(t *testing.T, r *region) {
		service := r.start(nil)
		r.onlyWorks("")
		shards, err := service.ListProvisionShards(t.Context(), &csv1.ListProvisionShardsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range shards.GetProvisionShards() {
			if shard.GetClusters() != 0 {
				t.Errorf("shard %s holds %d clusters", shard.GetName(), shard.GetClusters())
			}
		}
	})
}

// lifecycleWithCrash runs the life cycle of a cluster with a crash at the n-th point. It reports whether the scenario
// ended before that point.
func lifecycleWithCrash(t *testing.T, r *region, n int) bool {
	name := fmt.Sprintf("c%d", n)
	d := crashAt(n)
	w := r.survivor(d)
	defer w.end()
	request := applyRequest(name, 1)
	pool := poolRequest(request, "np", 2)
	client := w.now
	untilDone(t, func(ctx context.Context) error { _, err := client().ApplyCluster(ctx, request); return err })
	untilDone(t, func(ctx context.Context) error { _, err := client().ApplyNodePool(ctx, pool); return err })
	untilDone(t, func(ctx context.Context) error {
		p, err := client().GetNodePool(ctx, &csv1.GetNodePoolRequest{Uid: pool.Uid})
		if err == nil && p.GetStatus().GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_READY {
			err = fmt.Errorf("point %d: node pool is %v", n, p.GetStatus())
		}
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		c, err := client().GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
		if err == nil && !clusterReady(1)(c) {
			err = fmt.Errorf("point %d: cluster is %v", n, c.GetStatus())
		}
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		_, err := client().DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: request.Uid})
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		c, err := client().GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
		if err == nil && !clusterDeleted(c) {
			err = fmt.Errorf("point %d: cluster is %v", n, c.GetStatus())
		}
		return err
	})
	return d.unreached()
}

// TestMaestroFaultsAreTolerated makes Maestro reject requests, lose responses and become unavailable.
func TestMaestroFaultsAreTolerated(t *testing.T) {
	t.Parallel()
	unavailable := status.Error(codes.Unavailable, "injected")
	tests := map[string]struct {
		reason string
		fault  func(count int, action string) (before, after error)
	}{
		"EveryOtherRefused": {
			reason: "a failed publish is retried",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return unavailable, nil
				}
				return nil, nil
			},
		},
		"EveryFirstAnswerLost": {
			reason: "a publish with a lost response is repeated and finds its own effect",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return nil, unavailable
				}
				return nil, nil
			},
		},
		"UnknownErrors": {
			reason: "the published server returns Unknown for every error, which is retried",
			fault: func(count int, _ string) (error, error) {
				if count < 3 {
					return status.Error(codes.Unknown, "failed to update resource"), nil
				}
				return nil, nil
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.play()
			count := 0
			r.maestro.Fault(func(action string, _ *maestrotest.Resource) (error, error) {
				count++
				return tc.fault(count-1, action)
			})
			service := r.start(nil)
			request := applyRequest("c", 1)
			if _, err := service.ApplyCluster(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			service.awaitCluster(t, request.Uid, clusterReady(1))
			if _, err := service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: request.Uid}); err != nil {
				t.Fatal(err)
			}
			service.awaitCluster(t, request.Uid, clusterDeleted)
		})
	}
}

// TestMaestroIsUnavailable creates a cluster while Maestro is unavailable and deletes it before Maestro returns.
func TestMaestroIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.maestro.Stop()
	service := r.start(nil)
	kept, dropped := applyRequest("kept", 1), applyRequest("dropped", 1)
	for _, request := range []*csv1.ApplyClusterRequest{kept, dropped} {
		if _, err := service.ApplyCluster(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: dropped.Uid}); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, kept.Uid, func(c *csv1.Cluster) bool {
		for _, layer := range c.GetStatus().GetProgress() {
			if layer.GetLayer() == "maestro" && layer.GetState() == "Retrying" {
				return true
			}
		}
		return false
	})
	if err := r.maestro.Restart(); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, kept.Uid, clusterReady(1))
	service.awaitCluster(t, dropped.Uid, clusterDeleted)
}

// TestLostBundlesArePublishedAgain removes bundles that Maestro had acknowledged.
func TestLostBundlesArePublishedAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	service := r.start(nil)
	request := applyRequest("c", 1)
	if _, err := service.ApplyCluster(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, request.Uid, clusterReady(1))
	held := r.maestro.Resources()
	for id := range held {
		r.maestro.Lose(id)
	}
	// After the subscription restarts, a resync finds what is missing.
	r.maestro.Stop()
	if err := r.maestro.Restart(); err != nil {
		t.Fatal(err)
	}
	untilDone(t, func(context.Context) error {
		if now := r.maestro.Resources(); len(now) != len(held) {
			return fmt.Errorf("%d of %d bundles are restored", len(now), len(held))
		}
		return nil
	})
	service.awaitCluster(t, request.Uid, clusterReady(1))
}

// TestUpdateOfLostBundle finds that a bundle was lost when it is updated. The versions of the bundle restart then, and
// its statuses must not be treated as old ones.
func TestUpdateOfLostBundle(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	service := r.start(nil)
	request := applyRequest("c", 1)
	for generation := int64(1); generation <= 3; generation++ {
		request.Generation, request.Spec.Api.AuthorizedCidrs = generation, []string{fmt.Sprintf("192.0.2.%d/32", generation)}
		if _, err := service.ApplyCluster(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		service.awaitCluster(t, request.Uid, clusterReady(generation))
	}
	for id, held := range r.maestro.Resources() {
		if held.Version > 1 {
			r.maestro.Lose(id)
		}
	}
	request.Generation, request.Spec.Api.AuthorizedCidrs = 4, nil
	if _, err := service.ApplyCluster(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, request.Uid, clusterReady(4))
}
