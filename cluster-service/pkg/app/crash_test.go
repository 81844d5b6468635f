package app_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
)

// death is a process's end at the n-th point that it passes: from then on nothing it does reaches the database.
type death struct {
	mu   sync.Mutex
	left int
	died chan struct{}
}

func dieAt(n int) *death { return &death{left: n, died: make(chan struct{})} }

func (d *death) fault(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	if d.left == 0 {
		close(d.died)
	}
	if d.left <= 0 {
		return errCrash
	}
	return nil
}

// unreached says that it has lived through all of it: every point was tried.
func (d *death) unreached() bool {
	select {
	case <-d.died:
		return false
	default:
		return true
	}
}

// untilDone calls do again and again, as the layers above do, until it succeeds; the service may die meanwhile.
func untilDone(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// survivor is a Cluster Service that is replaced by another when it dies.
type survivor struct {
	mu       sync.Mutex
	current  *instance
	finished chan struct{}
	group    sync.WaitGroup
}

func (r *region) survivor(d *death) *survivor {
	w := &survivor{current: r.start(d.fault), finished: make(chan struct{})}
	w.group.Go(func() {
		select {
		case <-d.died:
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

// now is the one that lives, or has just died.
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

// everyPoint has crash live through something with a crash at its first point, at its second, and so on, until one says
// that the point was never reached. Several regions take their points from one row: it is mostly waiting.
func everyPoint(t *testing.T, crash func(t *testing.T, r *region, n int) (passed bool), after func(t *testing.T, r *region)) {
	t.Helper()
	most := math.MaxInt
	if testing.Short() {
		most = 12
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

// lanes is how many regions share the points.
const lanes = 4

// TestEveryCrashConverges ends the process at each point of a cluster's life at which it could end with a different state
// of the world, starts another, and expects the same end every time.
func TestEveryCrashConverges(t *testing.T) {
	everyPoint(t, lifeWithCrash, func(t *testing.T, r *region) {
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

// lifeWithCrash is a cluster's life with a crash at the n-th point, and says whether the point was never reached.
func lifeWithCrash(t *testing.T, r *region, n int) bool {
	name := fmt.Sprintf("c%d", n)
	d := dieAt(n)
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

// TestMaestroMisbehaves has Maestro refuse, lose its answers and go away.
func TestMaestroMisbehaves(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "injected")
	tests := map[string]struct {
		reason string
		fault  func(count int, action string) (before, after error)
	}{
		"EveryOtherRefused": {
			reason: "a publish that failed is tried again",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return unavailable, nil
				}
				return nil, nil
			},
		},
		"EveryFirstAnswerLost": {
			reason: "a publish whose answer was lost is repeated, which finds its own effect",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return nil, unavailable
				}
				return nil, nil
			},
		},
		"UnknownErrors": {
			reason: "the published server answers Unknown to everything, which is worth another try",
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

// TestMaestroIsAway creates while Maestro is away, and deletes before it is back.
func TestMaestroIsAway(t *testing.T) {
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

// TestWhatMaestroLostIsPublishedAgain loses a bundle that Maestro had acknowledged.
func TestWhatMaestroLostIsPublishedAgain(t *testing.T) {
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
	// The subscription begins anew, and with it comes the question for what was missed.
	r.maestro.Stop()
	if err := r.maestro.Restart(); err != nil {
		t.Fatal(err)
	}
	untilDone(t, func(context.Context) error {
		if now := r.maestro.Resources(); len(now) != len(held) {
			return fmt.Errorf("%d of %d bundles are back", len(now), len(held))
		}
		return nil
	})
	service.awaitCluster(t, request.Uid, clusterReady(1))
}

// TestUpdateOfWhatMaestroLost finds out that a bundle was lost by updating it. The bundle's versions begin anew then, and
// its statuses must not be taken for old ones.
func TestUpdateOfWhatMaestroLost(t *testing.T) {
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
