package command

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestUpgradeComponents checks that the components that are not updated are listed during a rollout: those that roll out before
// those that wait.
func TestUpgradeComponents(t *testing.T) {
	a := withUpgrades(t)
	at := func(minute, second int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 11, 21, 3, minute, second, 0, time.UTC))
	}
	u := &csv1.Upgrade{Uid: "5c1e", ClusterUid: deletingUID, CreateTime: at(0, 0),
		Spec: &csv1.UpgradeSpec{Version: "4.20.16", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR, Actor: &csv1.Actor{Name: "ada"}},
		Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, Message: "The control plane is being upgraded from 4.20.8 to 4.20.16.", FromVersion: "4.20.8", Since: at(0, 0),
			Steps: []*csv1.UpgradeStep{{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.20.8", ToVersion: "4.20.16",
				State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, Message: "The control plane is rolling out 4.20.16. 1 of 4 components are at 4.20.16; waiting for kube-apiserver.",
				Components: []*csv1.ComponentProgress{
					{Name: "dns-operator", Version: "4.20.8", State: csv1.ComponentState_COMPONENT_STATE_WAITING, Since: at(0, 15), Message: "Waiting for Dependencies: kube-apiserver"},
					{Name: "etcd", Version: "4.20.16", State: csv1.ComponentState_COMPONENT_STATE_UPDATED, Since: at(2, 0)},
					{Name: "kube-apiserver", Version: "4.20.8", State: csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT, Since: at(2, 1),
						Message: "Waiting for deployment kube-apiserver rollout to finish: 0 out of 3 new replicas have been updated"},
					{Name: "kube-scheduler", Version: "4.20.8", State: csv1.ComponentState_COMPONENT_STATE_WAITING, Since: at(0, 15), Message: "Waiting for Dependencies: kube-apiserver"},
				}}}}}
	a.shown["/clusters/"+deletingUID+"/upgrades"] = adminv1.UpgradeList{Items: adminv1.Messages([]*csv1.Upgrade{u})}
	out := must.Get(a.hcpctl(t, "upgrade", "status", "mine"))(t)
	golden(t, "upgrade-components.txt", out)
}
