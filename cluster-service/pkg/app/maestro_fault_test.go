package app_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

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
			must.Get(service.ApplyCluster(t.Context(), request))(t)
			service.awaitCluster(t, request.Uid, clusterReady(1))
			must.Get(service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: request.Uid}))(t)
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
		must.Get(service.ApplyCluster(t.Context(), request))(t)
	}
	must.Get(service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: dropped.Uid}))(t)
	service.awaitCluster(t, kept.Uid, func(c *csv1.Cluster) bool {
		for _, layer := range c.GetStatus().GetProgress() {
			if layer.GetLayer() == "maestro" && layer.GetState() == "Retrying" {
				return true
			}
		}
		return false
	})
	must.Do(t, r.maestro.Restart())
	service.awaitCluster(t, kept.Uid, clusterReady(1))
	service.awaitCluster(t, dropped.Uid, clusterDeleted)
}

// TestLostBundlesArePublishedAgain removes bundles that Maestro had acknowledged.
func TestLostBundlesArePublishedAgain(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request := applyRequest("c", 1)
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	service.awaitCluster(t, request.Uid, clusterReady(1))
	held := r.maestro.Resources()
	for id := range held {
		r.maestro.Lose(id)
	}
	// After the subscription restarts, a resync finds what is missing.
	r.maestro.Stop()
	must.Do(t, r.maestro.Restart())
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
	r, service := newRegion(t).run()
	request := applyRequest("c", 1)
	for generation := int64(1); generation <= 3; generation++ {
		request.Generation, request.Spec.Api.AuthorizedCidrs = generation, []string{fmt.Sprintf("192.0.2.%d/32", generation)}
		must.Get(service.ApplyCluster(t.Context(), request))(t)
		service.awaitCluster(t, request.Uid, clusterReady(generation))
	}
	for id, held := range r.maestro.Resources() {
		if held.Version > 1 {
			r.maestro.Lose(id)
		}
	}
	request.Generation, request.Spec.Api.AuthorizedCidrs = 4, nil
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	service.awaitCluster(t, request.Uid, clusterReady(4))
}
