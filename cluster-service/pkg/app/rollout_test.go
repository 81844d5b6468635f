package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// rollouts returns the names of the bundles through which Cluster Service reads the control plane components of a
// cluster.
func (r *region) rollouts(clusterUID string) (names []string) {
	for _, resource := range r.maestro.Resources() {
		if strings.HasPrefix(resource.Name, fleet.ClusterID(clusterUID)+"-rollout-") {
			names = append(names, resource.Name)
		}
	}
	return names
}

// rolled returns a condition: the message of the control plane step of an upgrade has this suffix.
func rolled(message string) func(*csv1.Upgrade) bool {
	return func(u *csv1.Upgrade) bool {
		return slices.ContainsFunc(u.GetStatus().GetSteps(), func(s *csv1.UpgradeStep) bool { return strings.HasSuffix(s.GetMessage(), message) })
	}
}

// TestComponentsAreReportedDuringRollout checks that components are reported one by one while a control plane is
// upgraded, without writes to the cluster, and that nothing of it is left afterwards.
func TestComponentsAreReportedDuringRollout(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.componentsAfter = 300 * time.Millisecond
	r.play()
	service := r.start(nil)
	cluster := service.installed(t, "c", "4.20.15")
	r.hypershift.HoldUpgrades(true)
	request := startRequest(cluster, "4.20.16", followAll)
	must.Get(service.StartUpgrade(t.Context(), request))(t)
	u := service.awaitUpgrade(t, rolled("The control plane is rolling out 4.20.16. 0 of 4 components are at 4.20.16; waiting for etcd, kube-apiserver."))
	var names []string
	for _, c := range u.GetStatus().GetSteps()[0].GetComponents() {
		names = append(names, c.GetName()+" "+c.GetVersion()+" "+strings.TrimPrefix(c.GetState().String(), "COMPONENT_STATE_"))
		if c.GetSince() == nil {
			t.Errorf("component without a time: %v", c)
		}
	}
	if want := []string{"etcd 4.20.15 ROLLING_OUT", "kube-apiserver 4.20.15 ROLLING_OUT", "kube-controller-manager 4.20.15 WAITING", "kube-scheduler 4.20.15 WAITING"}; !slices.Equal(names, want) {
		t.Errorf("components: %q", names)
	}
	before := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: cluster.Uid}))(t)
	for _, step := range [][2]string{{"etcd", "1 of 4 components are at 4.20.16; waiting for kube-apiserver."},
		{"kube-apiserver", "2 of 4 components are at 4.20.16; waiting for kube-controller-manager, kube-scheduler."},
		{"kube-scheduler", "3 of 4 components are at 4.20.16; waiting for kube-controller-manager."}} {
		r.hypershift.CompleteComponents(step[0])
		r.maestro.Touch()
		service.awaitUpgrade(t, rolled(step[1]))
	}
	after, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: cluster.Uid})
	if err != nil || after.GetRevision() != before.GetRevision() {
		t.Errorf("the reports of components changed the revision of the cluster from %d to %d, %v", before.GetRevision(), after.GetRevision(), err)
	}
	r.hypershift.HoldUpgrades(false)
	r.maestro.Touch()
	u = service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	if s := u.GetStatus().GetSteps()[0]; len(s.GetComponents()) > 0 || s.GetComponentsTime() != nil {
		t.Errorf("step after the upgrade is %v", s)
	}
	untilDone(t, func(context.Context) error {
		if left := r.rollouts(cluster.Uid); len(left) > 0 {
			return fmt.Errorf("leftovers are %v", left)
		}
		return nil
	})
	r.nothingWasWrong(t)
}

// TestShortUpgradesReadNoComponents checks that short upgrades do not create bundles for components.
func TestShortUpgradesReadNoComponents(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster := service.installed(t, "c", "4.20.15")
	request := startRequest(cluster, "4.20.16", followAll)
	must.Get(service.StartUpgrade(t.Context(), request))(t)
	service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	for _, action := range r.maestro.History() {
		if strings.Contains(action, "-rollout-") {
			t.Error(action)
		}
	}
}

// TestUpgradeWithoutComponents checks that an upgrade succeeds if Maestro rejects or does not answer the request for
// components.
func TestUpgradeWithoutComponents(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"Refused": codes.InvalidArgument, "Away": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.componentsAfter = 0
			r.play()
			r.maestro.Fault(func(action string, resource *maestrotest.Resource) (before, after error) {
				if strings.Contains(resource.Name, "-rollout-") && action != "delete" {
					return status.Error(code, "no"), nil
				}
				return nil, nil
			})
			service := r.start(nil)
			cluster := service.installed(t, "c", "4.20.8", "a")
			request := startRequest(cluster, "4.21.4", followAll)
			request.Acknowledge = []string{fleet.GateMinorVersion}
			must.Get(service.StartUpgrade(t.Context(), request))(t)
			service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
			service.awaitPool(t, poolRequest(cluster, "a", 2).Uid, poolAt("4.21.4"))
			r.nothingWasWrong(t)
		})
	}
}
