package app_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc/metadata"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
)

// The fleet's actions of engineers. Each has its effect once per UID or, if the request has none, per call ID. A
// repetition without either fails.

// execute executes an action once per UID or call ID, and records a description of its effect.
func (f *fleet) execute(ctx context.Context, uid string, do func() (effect string, err error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	id := uid
	if ids := metadata.ValueFromIncomingContext(ctx, clusterservice.CallIDKey); id == "" && len(ids) == 1 {
		id = ids[0]
	}
	switch {
	case id != "" && f.done[id] && uid == "":
		return refused(apierror.Conflict, clusterservice.ReasonCallDone)
	case id != "" && f.done[id]:
		return nil
	}
	what, err := do()
	if err != nil {
		return err
	}
	f.done[id] = true
	f.actions = append(f.actions, what)
	return nil
}

func (f *fleet) PauseCluster(ctx context.Context, r *clusterservicev1.PauseClusterRequest) (*clusterservicev1.ClusterAction, error) {
	return &clusterservicev1.ClusterAction{Uid: r.Uid}, f.execute(ctx, r.Uid, func() (string, error) {
		return "pause until " + r.Until.AsTime().String(), f.usable(r.ClusterUid)
	})
}

// StartUpgrade sets the target version of the cluster.
func (f *fleet) StartUpgrade(ctx context.Context, r *clusterservicev1.StartUpgradeRequest) (*clusterservicev1.Upgrade, error) {
	return &clusterservicev1.Upgrade{Uid: r.Uid, ClusterUid: r.ClusterUid}, f.execute(ctx, r.Uid, func() (string, error) {
		if err := f.usable(r.ClusterUid); err != nil {
			return "", err
		}
		if f.upgrading[r.ClusterUid] != "" {
			return "", refused(apierror.FailedPrecondition, "UPGRADE_UNDER_WAY")
		}
		f.upgrading[r.ClusterUid], f.moving[r.ClusterUid] = r.Version, true
		return "upgrade to " + r.Version, nil
	})
}

func (f *fleet) DeleteUpgradePolicy(ctx context.Context, r *clusterservicev1.DeleteUpgradePolicyRequest) (*clusterservicev1.DeleteUpgradePolicyResponse, error) {
	return &clusterservicev1.DeleteUpgradePolicyResponse{}, f.execute(ctx, "", func() (string, error) {
		if !f.policies[r.Name] {
			return "", refused(apierror.NotFound, "UPGRADE_POLICY_UNKNOWN")
		}
		delete(f.policies, r.Name)
		return "no policy " + r.Name, nil
	})
}

// ForceDeletionStep ends the wait of a cluster's deletion.
func (f *fleet) ForceDeletionStep(ctx context.Context, r *clusterservicev1.ForceDeletionStepRequest) (*clusterservicev1.DeletionStep, error) {
	return &clusterservicev1.DeletionStep{Name: r.Step}, f.execute(ctx, "", func() (string, error) {
		if !f.waiting[r.ClusterUid] || f.clusters[r.ClusterUid].GetDeleteTime() == nil {
			return "", refused(apierror.FailedPrecondition, "STEP_NOT_FORCIBLE")
		}
		delete(f.waiting, r.ClusterUid)
		f.moving[r.ClusterUid] = true
		return fmt.Sprintf("step %s is forced", r.Step), nil
	})
}
