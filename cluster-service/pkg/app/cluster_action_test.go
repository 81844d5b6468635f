package app_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func alice(reason string) *csv1.Actor {
	return &csv1.Actor{Name: "alice@example.com", Reason: reason, Ticket: "INC-1"}
}

// rendered returns the object of a kind that Maestro holds for a cluster, and the version of its bundle.
func (r *region) rendered(t *testing.T, clusterID, kind string) (object map[string]any, version int64) {
	t.Helper()
	for _, held := range r.maestro.Resources() {
		for _, manifest := range held.Manifests {
			content := must.Get(json.Marshal(manifest))(t)
			var o map[string]any
			must.Do(t, json.Unmarshal(content, &o))
			if o["kind"] == kind && strings.Contains(string(content), clusterID) {
				return o, int64(held.Version)
			}
		}
	}
	return nil, 0
}

// TestClusterActionsTakeEffectOnce executes each action on a cluster twice with the same uid. Its change must reach the
// management cluster, and only once.
func TestClusterActionsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	request := applyRequest("one", 1)
	must.Get(service.ApplyCluster(ctx, request))(t)
	pool := poolRequest(request, "np", 1)
	must.Get(service.ApplyNodePool(ctx, pool))(t)
	c := service.awaitCluster(t, request.Uid, clusterReady(1))
	id := c.GetStatus().GetClusterId()
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	paused := func(kind string) func() bool {
		return func() bool {
			o, _ := r.rendered(t, id, kind)
			spec, _ := o["spec"].(map[string]any)
			return spec["pausedUntil"] == until.Format(time.RFC3339)
		}
	}
	pause := &csv1.PauseClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Until: timestamppb.New(until), Actor: alice("the control plane is being looked at")}
	first := must.Get(service.PauseCluster(ctx, pause))(t)
	awaitCondition(t, "the HostedCluster to be paused", paused("HostedCluster"))
	awaitCondition(t, "the NodePool to be paused", paused("NodePool"))
	again, err := service.PauseCluster(ctx, pause)
	if err != nil || !again.GetTime().AsTime().Equal(first.GetTime().AsTime()) {
		t.Errorf("repeated pause: %v, %v", again, err)
	}
	shown, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
	if err != nil || shown.GetOverrides().GetPause().GetActor().GetName() != "alice@example.com" {
		t.Errorf("overrides of the cluster are %v: %v", shown.GetOverrides(), err)
	}
	// A newer generation keeps the override.
	request.Generation = 2
	must.Get(service.ApplyCluster(ctx, request))(t)
	awaitCondition(t, "the newer generation to be paused too", paused("HostedCluster"))

	resume := &csv1.ResumeClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("it was looked at")}
	must.Get(service.ResumeCluster(ctx, resume))(t)
	awaitCondition(t, "the pause to end", func() bool { return !paused("HostedCluster")() && !paused("NodePool")() })
	// A late repetition of the pause does not pause again.
	must.Get(service.PauseCluster(ctx, pause))(t)
	if shown, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid}); err != nil || shown.GetOverrides().GetPause() != nil {
		t.Errorf("the cluster is paused again: %v, %v", shown.GetOverrides(), err)
	}

	must.Get(service.SetClusterSize(ctx, &csv1.SetClusterSizeRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Size: "e16", Actor: alice("it is slow")}))(t)
	awaitCondition(t, "the size", func() bool {
		o, _ := r.rendered(t, id, "HostedCluster")
		metadata, _ := o["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		return annotations["hypershift.openshift.io/cluster-size-override"] == "e16"
	})

	service.awaitCluster(t, request.Uid, clusterReady(2))
	works := func() (desired, published int64) {
		listed := must.Get(service.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: request.Uid}))(t)
		for _, w := range listed.GetWorks() {
			desired += w.GetDesired()
			published += w.GetPublished()
		}
		return desired, published
	}
	awaitCondition(t, "everything to be published", func() bool { d, p := works(); return d == p })
	before, _ := works()
	retry := &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("it does not move")}
	done, err := service.RetryCluster(ctx, retry)
	if err != nil || done.GetEffect() != "3 works are published again." {
		t.Fatalf("%v, %v", done, err)
	}
	must.Get(service.RetryCluster(ctx, retry))(t)
	awaitCondition(t, "all works to be published again", func() bool { d, p := works(); return d == before+3 && d == p })

	listed := must.Get(service.ListClusterActions(ctx, &csv1.ListClusterActionsRequest{ClusterUid: request.Uid}))(t)
	var kinds []string
	for _, i := range listed.GetActions() {
		kinds = append(kinds, i.GetKind())
		if i.GetActor().GetReason() == "" || i.GetActor().GetTicket() != "INC-1" {
			t.Errorf("%v has no reason", i)
		}
	}
	if strings.Join(kinds, " ") != "RetryCluster SetClusterSize ResumeCluster PauseCluster" {
		t.Errorf("the actions are %v", kinds)
	}
	all := must.Get(service.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: request.Uid}))(t)
	own := all.GetWorks()[0]
	some, err := service.ListWorks(ctx, &csv1.ListWorksRequest{Ids: []string{own.GetId(), uuid.NewString()}})
	if err != nil || len(some.GetWorks()) != 1 || some.GetWorks()[0].GetId() != own.GetId() {
		t.Errorf("one of the two IDs is a work: %v, %v", some, err)
	}
	if _, err := service.DeleteOrphan(ctx, &csv1.DeleteOrphanRequest{WorkId: uuid.NewString(), ProvisionShard: own.GetProvisionShard(), Actor: alice("it has no owner")}); err != nil {
		t.Errorf("deleted orphan: %v", err)
	}
	refused := map[string]struct {
		reason string
		call   func() error
		code   codes.Code
	}{
		"no actor":    {"the actor is required", failure(ctx, service.RetryCluster, &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid}), codes.InvalidArgument},
		"no reason":   {"the reason is required", failure(ctx, service.RetryCluster, &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: &csv1.Actor{Name: "alice"}}), codes.InvalidArgument},
		"unknown":     {"the cluster does not exist", failure(ctx, service.RetryCluster, &csv1.RetryClusterRequest{Uid: uuid.NewString(), ClusterUid: uuid.NewString(), Actor: alice("x")}), codes.NotFound},
		"another use": {"a UID identifies one action", failure(ctx, service.RetryCluster, &csv1.RetryClusterRequest{Uid: pause.Uid, ClusterUid: request.Uid, Actor: alice("x")}), codes.InvalidArgument},
		"long pause":  {"a pause is for days", failure(ctx, service.PauseCluster, &csv1.PauseClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("x"), Until: timestamppb.New(time.Now().Add(8 * 24 * time.Hour))}), codes.InvalidArgument},
		"a work":      {"a work is no orphan", failure(ctx, service.DeleteOrphan, &csv1.DeleteOrphanRequest{WorkId: own.GetId(), ProvisionShard: own.GetProvisionShard(), Actor: alice("x")}), codes.FailedPrecondition},
		"size":        {"a size is a label", failure(ctx, service.SetClusterSize, &csv1.SetClusterSizeRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Size: "Very Large", Actor: alice("x")}), codes.InvalidArgument},
	}
	for name, tc := range refused {
		if err := tc.call(); status.Code(err) != tc.code {
			t.Errorf("%s: %s: got %v, want %s", name, tc.reason, err, tc.code)
		}
	}
	service.remove(t, request.Uid)
	if _, err := service.PauseCluster(ctx, &csv1.PauseClusterRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("x"), Until: timestamppb.New(until)}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("pause of a cluster that is being deleted: %v", err)
	}
	service.awaitCluster(t, request.Uid, clusterDeleted)
}
