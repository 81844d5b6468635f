package app_test

import (
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// neverScanned is a scan interval that no test reaches: only the event of a commit can wake a part.
const neverScanned = time.Hour

// TestDeletionPlacesWaitingCluster frees the only place of a region. The last transaction of a deletion is made by the
// receiver of works if the cluster has no Azure resources, and by the Azure worker if it has.
func TestDeletionPlacesWaitingCluster(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		azure  bool
	}{
		"DeletionEndsWithWorks": {reason: "the agent confirms the deletion of the last work", azure: false},
		"DeletionEndsInAzure":   {reason: "the last step in Azure is undone", azure: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 1})
			r.placeInterval = neverScanned
			if tc.azure {
				r.withAzure(emulator.Options{})
			}
			r.play()
			service := r.start(nil)
			first, second := r.azureRequest("first"), r.azureRequest("second")
			for _, request := range []*csv1.ApplyClusterRequest{first, second} {
				must.Get(service.ApplyCluster(t.Context(), request))(t)
			}
			service.awaitCluster(t, first.Uid, clusterReady(1))
			waiting, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: second.Uid})
			if err != nil || waiting.GetStatus().GetProvisionShard() != "" {
				t.Fatalf("second cluster: %v, %v, want it without a place", waiting.GetStatus(), err)
			}
			service.remove(t, first.Uid)
			service.awaitCluster(t, second.Uid, clusterReady(1))
		})
	}
}

// TestDeletionStartsUpgradeOfPolicy deletes the cluster whose upgrade reached the limit of a policy. DeleteCluster ends the
// upgrade, and the upgrade of the next cluster must start without a scan.
func TestDeletionStartsUpgradeOfPolicy(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	full := r.releases
	r.releases = before(t, "4.21.4", "4.21.6")
	old := r.start(nil)
	for _, name := range []string{"one", "two"} {
		old.createReady(t, name)
	}
	// The policy is stored before the upgrades exist, so that storing it does not wake the service under test.
	must.Get(old.ApplyUpgradePolicy(t.Context(), &csv1.ApplyUpgradePolicyRequest{Name: "patches", Actor: ada, Spec: &csv1.UpgradePolicySpec{MaxConcurrent: 1}}))(t)
	old.stop()
	r.releases, r.upgradeInterval = full, neverScanned
	r.hypershift.HoldUpgrades(true)
	service := r.start(nil)
	// By the time that the management cluster reports progress, the look that started the upgrade is over.
	first := service.awaitUpgrade(t, func(u *csv1.Upgrade) bool {
		return strings.Contains(u.GetStatus().GetSteps()[0].GetMessage(), "The control plane is rolling out")
	})
	service.remove(t, first.GetClusterUid())
	service.awaitUpgrade(t, func(u *csv1.Upgrade) bool {
		return u.GetClusterUid() != first.GetClusterUid() && u.GetStatus().GetState() == controlPlane
	})
}
