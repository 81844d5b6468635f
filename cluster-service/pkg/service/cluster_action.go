package service

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The kinds of cluster actions, named after their methods.
const (
	actionPause     = "PauseCluster"
	actionResume    = "ResumeCluster"
	actionSetSize   = "SetClusterSize"
	actionRetry     = "RetryCluster"
	actionForceStep = "ForceClusterStep"
	actionAccept    = "AcceptControlPlane"
)

// longestPause bounds a pause. A paused cluster gets no upgrades and its certificates are not rotated.
const longestPause = 7 * 24 * time.Hour

var sizeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// PauseCluster pauses the reconciliation of a cluster by HyperShift until a time.
func (s *Service) PauseCluster(ctx context.Context, r *csv1.PauseClusterRequest) (*csv1.ClusterAction, error) {
	now, until := s.o.Store.Now(), r.GetUntil().AsTime()
	var c check
	switch {
	case r.GetUntil() == nil:
		c.required("until", "")
	case r.GetUntil().CheckValid() != nil:
		c.fail("until", "Invalid value: must be a time")
	case until.Sub(now) > longestPause:
		c.fail("until", "Invalid value: %s: must be at most %s ahead", until.Format(time.RFC3339), longestPause)
	}
	return s.execute(ctx, actionPause, r, c, func(_ *store.Tx, t *fleet.ClusterAggregate) (string, error) {
		if err := wantedCluster(t); err != nil {
			return "", err
		}
		t.Cluster.Pause(now, until, r.GetActor())
		return "Reconciliation of the control plane and of the node pools is paused until " + until.Format(time.RFC3339) + ".", nil
	})
}

// ResumeCluster ends a pause.
func (s *Service) ResumeCluster(ctx context.Context, r *csv1.ResumeClusterRequest) (*csv1.ClusterAction, error) {
	return s.execute(ctx, actionResume, r, check{}, func(_ *store.Tx, t *fleet.ClusterAggregate) (string, error) {
		if err := wantedCluster(t); err != nil {
			return "", err
		}
		if t.Cluster.Paused().IsZero() {
			return "No effect: the cluster was not paused.", nil
		}
		t.Cluster.Resume()
		return "Reconciliation resumes.", nil
	})
}

// SetClusterSize overrides the size class of a cluster's control plane. An empty size removes the override.
func (s *Service) SetClusterSize(ctx context.Context, r *csv1.SetClusterSizeRequest) (*csv1.ClusterAction, error) {
	var c check
	if r.GetSize() != "" {
		c.matches("size", r.GetSize(), sizeName)
	}
	return s.execute(ctx, actionSetSize, r, c, func(_ *store.Tx, t *fleet.ClusterAggregate) (string, error) {
		if err := wantedCluster(t); err != nil {
			return "", err
		}
		t.Cluster.SetSize(s.o.Store.Now(), r.GetSize(), r.GetActor())
		if r.GetSize() == "" {
			return "The control plane has the size that is computed for it.", nil
		}
		return "The control plane has the size " + r.GetSize() + ".", nil
	})
}

// RetryCluster retries all pending steps of a cluster: placement, works and steps in Azure.
func (s *Service) RetryCluster(ctx context.Context, r *csv1.RetryClusterRequest) (*csv1.ClusterAction, error) {
	return s.execute(ctx, actionRetry, r, check{}, func(tx *store.Tx, t *fleet.ClusterAggregate) (effect string, err error) {
		c := t.Cluster
		if c.Gone() {
			return "No effect: the cluster is deleted.", nil
		}
		if c.Shard == "" && !c.Deleting() {
			if _, err = tx.Place(ctx, c, t.PlacementNeeds(), s.rules()); err != nil {
				return "", err
			}
			if c.Shard == "" {
				return "No effect: no provision shard has a free place.", nil
			}
			return "The cluster is placed on provision shard " + c.Shard + ".", nil
		}
		effect = publishedAgain(t.RetryWorks())
		if steps := t.RetryAzure(s.o.Store.Now(), r.GetActor()); steps > 0 {
			effect += retriedInAzure(steps)
		}
		return effect, nil
	})
}

// publishedAgain states how many works are published again.
func publishedAgain[N ~int | ~int32](works N) string {
	if works == 1 {
		return "1 work is published again."
	}
	return fmt.Sprintf("%d works are published again.", works)
}

// retriedInAzure states how many steps in Azure are retried.
func retriedInAzure[N ~int | ~int32](steps N) string {
	if steps == 1 {
		return " 1 step in Azure is retried at once."
	}
	return fmt.Sprintf(" %d steps in Azure are retried at once.", steps)
}

// ForceClusterStep lets the creation of a cluster proceed without a stuck step.
func (s *Service) ForceClusterStep(ctx context.Context, r *csv1.ForceClusterStepRequest) (*csv1.ClusterAction, error) {
	var c check
	c.required("step", r.GetStep())
	return s.execute(ctx, actionForceStep, r, c, func(_ *store.Tx, t *fleet.ClusterAggregate) (string, error) {
		if err := s.o.Renderer.Region.ForceCreationStep(s.o.Store.Now(), t, r.GetStep(), r.GetActor()); err != nil {
			return "", err
		}
		return fleet.ForcedStepEffect(r.GetStep()), nil
	})
}

// AcceptControlPlane makes the control plane that took the place of a removed one the control plane of the cluster.
func (s *Service) AcceptControlPlane(ctx context.Context, r *csv1.AcceptControlPlaneRequest) (*csv1.ClusterAction, error) {
	return s.execute(ctx, actionAccept, r, check{}, func(_ *store.Tx, t *fleet.ClusterAggregate) (string, error) {
		if err := wantedCluster(t); err != nil {
			return "", err
		}
		before := t.Cluster.Status.GetControlPlane()
		err := t.AcceptControlPlane(s.o.Store.Now(), r.GetControlPlaneUid(), r.GetActor())
		var changed *fleet.ControlPlaneChangedError
		switch {
		case errors.Is(err, fleet.ErrNotLost):
			return "", failedPrecondition(ReasonControlPlaneNotLost, "The cluster has the control plane that it was installed with; there is nothing to accept.")
		case errors.Is(err, fleet.ErrControlPlaneMissing):
			return "", failedPrecondition(ReasonControlPlaneMissing, "The control plane does not exist again yet. Accept it when the cluster's progress is ControlPlaneReplaced.")
		case errors.As(err, &changed):
			return "", failedPrecondition(ReasonControlPlaneChanged, "The control plane was replaced again; it is now "+changed.UID+".")
		case err != nil:
			return "", err
		}
		after := t.Cluster.Status.GetControlPlane()
		if after.GetUid() == before.GetUid() {
			return fmt.Sprintf("The control plane in the namespace with UID %s is accepted in place of the one in %s, whose data is lost.", after.GetNamespaceUid(), before.GetNamespaceUid()), nil
		}
		return fmt.Sprintf("The control plane %s is accepted in place of %s, whose data is lost.", after.GetUid(), before.GetUid()), nil
	})
}

// actionRequest is a request for a cluster action.
type actionRequest interface {
	proto.Message
	GetUid() string
	GetClusterUid() string
	GetActor() *csv1.Actor
}

// execute applies a change to a cluster once per uid. The change and the record of the action are stored in one
// transaction. A known uid returns the stored action if its cluster and kind are the same.
func (s *Service) execute(ctx context.Context, kind string, r actionRequest, c check, change func(tx *store.Tx, t *fleet.ClusterAggregate) (effect string, err error)) (*csv1.ClusterAction, error) {
	c.actor("actor", r.GetActor())
	if err := apierror.InvalidFields(append(validateOnce(r.GetUid(), r.GetClusterUid()), c.violations...)); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	var done *csv1.ClusterAction
	fresh := false
	err := s.o.Store.Update(ctx, []string{clusterUID}, func(ctx context.Context, tx *store.Tx) (err error) {
		t, now := tx.Aggregates[clusterUID], s.o.Store.Now()
		fresh = false
		if done, err = tx.ClusterAction(ctx, uid); done != nil || err != nil {
			if done != nil && (done.GetClusterUid() != clusterUID || done.GetKind() != kind) {
				return usedUID()
			}
			return err
		}
		if t.Cluster == nil {
			return unknown(ReasonClusterUnknown, "cluster", clusterUID)
		}
		done = &csv1.ClusterAction{Uid: uid, ClusterUid: clusterUID, Kind: kind, Actor: r.GetActor(), Time: timestamppb.New(now)}
		if done.Effect, err = change(tx, t); err != nil {
			return err
		}
		fresh = true
		if err := tx.InsertClusterAction(ctx, done); err != nil {
			return err
		}
		return s.settle(now, t)
	})
	if store.IsClusterActionUIDUsed(err) {
		err = usedUID()
	}
	if err = refusedStep(err); err != nil {
		return nil, s.answer(ctx, err)
	}
	if fresh {
		s.audit(ctx, kind, clusterUID, done.GetActor(), logkey.ActionUID, uid, logkey.Effect, done.GetEffect())
	}
	return done, nil
}

func usedUID() error {
	return apierror.InvalidFields([]apierror.Violation{{Field: "uid", Message: "Duplicate value: it was used for another action"}})
}

// ListClusterActions returns the newest actions on a cluster, newest first.
func (s *Service) ListClusterActions(ctx context.Context, r *csv1.ListClusterActionsRequest) (*csv1.ListClusterActionsResponse, error) {
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, s.answer(ctx, err)
	}
	found, err := s.o.Store.ClusterActions(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return &csv1.ListClusterActionsResponse{Actions: found}, nil
}
