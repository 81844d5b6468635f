package app_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// To repeat one crash, run
//
//	go test ./pkg/app -run TestCrashesDuringUpgradeConverge -upgrade-crash-point 17
//
// To repeat the selection of `make test`, use -upgrade-crash-seed.
//
//	go test ./pkg/app -run TestEveryCrashOfAnUpgradeConverges -upgrade-crash-point 17
//
// and the choice of `make test` with -upgrade-crash-seed.
var (
	upgradeCrashPoint = flag.Int("upgrade-crash-point", 0, "the only `point` of an upgrade at which the process crashes; 0 means some, or all with HCPMESH_NIGHTLY=1")
	upgradeCrashSeed  = flag.Uint64("upgrade-crash-seed", 0, "`seed` of the points that `make test` takes; 0 makes one")
)

// TestCrashesDuringUpgradeConverge terminates the process at each point of an upgrade over two releases with two node
// pools, and of the following upgrade of the customer to the next minor version. It starts another process and expects
// the result of an undisturbed run. Components of the control plane are read meanwhile, and nothing of that is left.
func TestCrashesDuringUpgradeConverge(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.componentsAfter = 0
	r.play()
	undisturbed, last := r.upgradeWithCrash(t, "undisturbed", 1<<30)
	t.Logf("an upgrade passes %d points", last)
	points := make([]int, last)
	for i := range points {
		points[i] = i + 1
	}
	switch {
	case *upgradeCrashPoint > 0:
		points = []int{*upgradeCrashPoint}
	case !nightly.Run():
		seed := *upgradeCrashSeed
		if seed == 0 {
			seed = uint64(time.Now().UnixNano())
		}
		t.Logf("-upgrade-crash-seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
		points = points[:min(2, len(points))]
	}
	for _, n := range points {
		if end, _ := r.upgradeWithCrash(t, fmt.Sprintf("p%d", n), n); !slices.Equal(end, undisturbed) {
			t.Errorf("-upgrade-crash-point %d: result is %q, undisturbed %q", n, end, undisturbed)
		}
	}
	r.nothingWasWrong(t)
}

// upgradeWithCrash runs two upgrades with a crash at the n-th point. It returns the resulting state and the number of
// points passed.
func (r *region) upgradeWithCrash(t *testing.T, name string, n int) (end []string, passed int) {
	t.Helper()
	steady := r.start(nil)
	cluster := steady.installed(t, name, "4.20.8", "a", "b")
	steady.stop()
	d := crashAt(n)
	w := r.survivor(d)
	defer w.end()
	request := startRequest(cluster, "4.21.4", followAll)
	request.Acknowledge = []string{fleet.GateMinorVersion}
	untilDone(t, func(ctx context.Context) error { _, err := w.now().StartUpgrade(ctx, request); return err })
	untilDone(t, func(ctx context.Context) error {
		u, err := w.now().GetUpgrade(ctx, &csv1.GetUpgradeRequest{Uid: request.Uid})
		if err == nil && u.GetStatus().GetState() != completed {
			err = fmt.Errorf("point %d: the upgrade is %v", n, u.GetStatus())
		}
		return err
	})
	next := applyRequest(name, 2)
	next.Spec.Version.Id = "4.22"
	untilDone(t, func(ctx context.Context) error { _, err := w.now().ApplyCluster(ctx, next); return err })
	untilDone(t, func(ctx context.Context) error {
		c, err := w.now().GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid})
		if err == nil && !(clusterReady(2)(c) && runs("4.22.2")(c)) {
			err = fmt.Errorf("point %d: the cluster is %v", n, c.GetStatus())
		}
		return err
	})
	untilDone(t, func(ctx context.Context) error {
		end = nil
		list, err := w.now().ListUpgrades(ctx, &csv1.ListUpgradesRequest{ClusterUid: cluster.Uid})
		if err != nil {
			return err
		}
		for _, u := range list.GetUpgrades() {
			end = append(end, fmt.Sprintf("%s %s: %s", u.GetSpec().GetVersion(), u.GetStatus().GetState(), strings.Join(steps(u), ", ")))
		}
		slices.Sort(end)
		for _, pool := range []string{"a", "b"} {
			p, err := w.now().GetNodePool(ctx, &csv1.GetNodePoolRequest{Uid: poolRequest(cluster, pool, 2).Uid})
			if err != nil {
				return err
			}
			end = append(end, fmt.Sprintf("%s %s %s", pool, p.GetStatus().GetPhase(), p.GetStatus().GetVersion()))
		}
		if left := r.rollouts(cluster.Uid); len(left) > 0 {
			return fmt.Errorf("point %d: leftovers are %v", n, left)
		}
		return nil
	})
	return end, n - d.remaining()
}

// remaining returns the number of points before the crash.
func (c *crash) remaining() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}
