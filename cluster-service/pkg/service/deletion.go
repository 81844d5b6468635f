package service

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const maxReleased = 8

// finalizerName matches a qualified name, and the plain word of an old finalizer.
var finalizerName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,250}[A-Za-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)

// RetryDeletion retries all pending steps of the deletions of a cluster and its children.
func (s *Service) RetryDeletion(ctx context.Context, r *csv1.RetryDeletionRequest) (*csv1.RetryDeletionResponse, error) {
	var steps []string
	err := s.changeDeletion(ctx, r.GetClusterUid(), "", r.GetActor(), nil, func(now time.Time, t *fleet.ClusterAggregate) error {
		if steps = s.o.Renderer.Region.RetryDeletion(now, t, r.GetActor()); len(steps) == 0 {
			return failedPrecondition(ReasonNoDeletion, "No deletion of the cluster, its node pools or its external authentications has a pending step.")
		}
		return nil
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "retry-deletion", strings.ToLower(r.GetClusterUid()), r.GetActor(), logkey.Steps, steps)
	return &csv1.RetryDeletionResponse{Steps: steps}, nil
}

// ReleaseDeletionFinalizers makes the agent remove finalizers from the objects that a step of a deletion waits for.
func (s *Service) ReleaseDeletionFinalizers(ctx context.Context, r *csv1.ReleaseDeletionFinalizersRequest) (*csv1.DeletionStep, error) {
	var c check
	if n := len(r.GetFinalizers()); n < 1 || n > maxReleased {
		c.fail("finalizers", "Invalid value: %d of them: must be 1 to %d", n, maxReleased)
	}
	for i, f := range r.GetFinalizers() {
		c.matches(fmt.Sprintf("finalizers[%d]", i), f, finalizerName)
	}
	var step *csv1.DeletionStep
	err := s.changeDeletion(ctx, r.GetClusterUid(), r.GetStep(), r.GetActor(), &c, func(now time.Time, t *fleet.ClusterAggregate) (err error) {
		step, err = s.o.Renderer.Region.ReleaseFinalizers(now, t, r.GetStep(), r.GetFinalizers(), r.GetActor())
		return err
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "release-deletion-finalizers", strings.ToLower(r.GetClusterUid()), r.GetActor(), logkey.Step, r.GetStep(), logkey.Finalizers, r.GetFinalizers())
	return step, nil
}

// ForceDeletionStep ends a stuck step of a deletion without the confirmation that it waits for.
func (s *Service) ForceDeletionStep(ctx context.Context, r *csv1.ForceDeletionStepRequest) (*csv1.DeletionStep, error) {
	var step *csv1.DeletionStep
	err := s.changeDeletion(ctx, r.GetClusterUid(), r.GetStep(), r.GetActor(), &check{}, func(now time.Time, t *fleet.ClusterAggregate) (err error) {
		step, err = s.o.Renderer.Region.ForceDeletionStep(now, t, r.GetStep(), r.GetActor())
		return err
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "force-deletion-step", strings.ToLower(r.GetClusterUid()), r.GetActor(), logkey.Step, r.GetStep(), logkey.LeftBehind, step.GetForce().GetLeftBehind())
	return step, nil
}

// changeDeletion validates a request for an action on a deletion and executes it. c holds the violations of a request that
// names a step; it is nil for a request that does not.
func (s *Service) changeDeletion(ctx context.Context, clusterUID, step string, actor *csv1.Actor, c *check, change func(now time.Time, t *fleet.ClusterAggregate) error) error {
	if err := validUID("cluster_uid", clusterUID); err != nil {
		return err
	}
	if c == nil {
		c = &check{}
	} else {
		c.required("step", step)
	}
	c.actor("actor", actor)
	if err := apierror.InvalidFields(c.violations); err != nil {
		return err
	}
	uid := strings.ToLower(clusterUID)
	err := s.o.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[uid], s.o.Store.Now()
		if t.Cluster == nil {
			return unknown(ReasonClusterUnknown, "cluster", clusterUID)
		}
		if err := change(now, t); err != nil {
			return err
		}
		return s.o.Renderer.Region.Settle(now, t, nil)
	})
	return refusedStep(err)
}

// refusedStep converts a StepRefusal to an error of the API. It returns other errors unchanged.
func refusedStep(err error) error {
	var refusal *fleet.StepRefusal
	switch {
	case errors.As(err, &refusal) && refusal.Unknown:
		return apierror.New(apierror.NotFound, "%s", refusal.Message).WithReason(ReasonStepUnknown)
	case errors.As(err, &refusal):
		return failedPrecondition(ReasonStepNotForcible, refusal.Message)
	}
	return err
}

// ListDeletionLeftovers returns a page of the leftovers of forced deletions.
func (s *Service) ListDeletionLeftovers(ctx context.Context, r *csv1.ListDeletionLeftoversRequest) (*csv1.ListDeletionLeftoversResponse, error) {
	f, err := page(r.GetPageSize(), r.GetPageToken())
	if err == nil && r.GetClusterUid() != "" {
		err = validUID("cluster_uid", r.GetClusterUid())
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	leftovers, err := s.o.Store.ListLeftovers(ctx, strings.ToLower(r.GetClusterUid()), f.After, r.GetGone(), f.Limit)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListDeletionLeftoversResponse{}
	for _, l := range leftovers {
		response.Leftovers = append(response.Leftovers, l.Proto())
	}
	if len(leftovers) > 0 {
		response.NextPageToken = nextToken(len(leftovers) == f.Limit, leftovers[len(leftovers)-1].WorkID)
	}
	return response, nil
}
