package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// backup copies the database for restore. Nothing may be connected to it meanwhile.
func (r *region) backup() (url string) {
	r.t.Helper()
	base, _, _ := strings.Cut(r.url, "?")
	return databases.DatabaseFrom(r.t, base[strings.LastIndexByte(base, '/')+1:])
}

// bundles returns the IDs of the bundles in Maestro.
func (r *region) bundles() []string { return slices.Sorted(maps.Keys(r.maestro.Resources())) }

// awaitNoBundles waits until Maestro has no bundles.
func (r *region) awaitNoBundles(t *testing.T) {
	t.Helper()
	untilDone(t, func(context.Context) error {
		if held := r.bundles(); len(held) > 0 {
			return fmt.Errorf("Maestro still has %q", held)
		}
		return nil
	})
}

func poolHas(replicas int32) func(*csv1.NodePool) bool {
	return func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY && p.GetStatus().GetReplicas() == replicas
	}
}

// TestLostClusterIsRecovered restores the database to a time before a cluster was created. Its bundles in Maestro are
// not touched, and the cluster is recovered with its shard (although the placement rules would choose another), its
// prefix, its signing key and its bundles.
func TestLostClusterIsRecovered(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.start(nil).stop() // creates the tables
	before := r.backup()

	second := r.start(nil)
	request, cluster := second.createReady(t, "c")
	pool := second.createReadyPool(t, request, "np1", 2)
	recovery, err := second.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: request.Uid})
	if err != nil || recovery.GetProvisionShard() != cluster.GetStatus().GetProvisionShard() || len(recovery.GetSigningKey()) == 0 {
		t.Fatalf("recovery data is %v, %v", recovery, err)
	}
	held := r.bundles()
	second.stop()

	r.url = before
	third := r.start(nil)
	untilDone(t, func(context.Context) error { return third.measures(3, "cluster_service_unknown_bundles") })
	if now := r.bundles(); !slices.Equal(now, held) {
		t.Fatalf("unknown bundles changed from %q to %q", held, now)
	}
	must.Get(third.UpdateProvisionShard(t.Context(), &csv1.UpdateProvisionShardRequest{Name: recovery.GetProvisionShard(), Cordoned: new(true),
		Actor: operator("it is full")}))(t)
	request.Recovery = recovery
	must.Get(third.ApplyCluster(t.Context(), request))(t)
	must.Get(third.ApplyNodePool(t.Context(), pool))(t)
	back := third.awaitCluster(t, request.Uid, clusterReady(1))
	third.awaitPool(t, pool.Uid, poolHas(2))
	again, err := third.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: request.Uid})
	switch {
	case err != nil:
		t.Fatal(err)
	case !bytes.Equal(again.GetSigningKey(), recovery.GetSigningKey()):
		t.Error("the signing key differs")
	case back.GetStatus().GetProvisionShard() != cluster.GetStatus().GetProvisionShard() || again.GetBaseDomainPrefix() != recovery.GetBaseDomainPrefix() ||
		again.GetReleaseImage() != recovery.GetReleaseImage() || !again.GetCreateTime().AsTime().Equal(recovery.GetCreateTime().AsTime()):
		t.Errorf("recovery data was %v, is %v", recovery, again)
	}
	if now := r.bundles(); !slices.Equal(now, held) {
		t.Errorf("bundles were %q, are %q", held, now)
	}
	untilDone(t, func(context.Context) error { return third.measures(0, "cluster_service_unknown_bundles") })
}

// TestLostReleaseIsNotDowngraded restores the database to a time before a control plane was upgraded.
func TestLostReleaseIsNotDowngraded(t *testing.T) {
	t.Parallel()
	r, first := newRegion(t).run()
	request := first.installed(t, "c", "4.20.8")
	known := must.Get(first.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: request.Uid}))(t)
	newer, ok := r.releases.Exact("4.20.16")
	if !ok {
		t.Fatal("the release is not in the catalogue")
	}
	known.ReleaseVersion, known.ReleaseImage = newer.Version.String(), newer.Image
	request.Recovery = known
	for range 2 {
		must.Get(first.ApplyCluster(t.Context(), request))(t)
	}
	first.awaitCluster(t, request.Uid, runs("4.20.16"))
	// The repeated request is not an upgrade.
	known.ReleaseVersion = "4.20.8"
	must.Get(first.ApplyCluster(t.Context(), request))(t)
	if now, err := first.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: request.Uid}); err != nil || now.GetReleaseVersion() != "4.20.16" {
		t.Errorf("the release was lowered: %v, %v", now, err)
	}
}

// TestForeignReleaseIsNotRecovered sends recovery data with images that are not in the release catalogue, for a lost cluster and for
// one whose release seems to be lost. Nothing is changed. The image comes from the catalogue, whatever repository the data names.
func TestForeignReleaseIsNotRecovered(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	service := r.start(nil)
	known, ok := r.releases.Exact("4.20.16")
	if !ok {
		t.Fatal("the release is not in the catalogue")
	}
	const foreign = "registry.example.com/foreign/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	request := applyRequest("lost", 1)
	for name, tc := range map[string]struct{ reason, version, image, field string }{
		"foreign image":     {"the digest is not that of the release", "4.20.16", foreign, "recovery.release_image"},
		"by tag":            {"a tag can name any image", "4.20.16", strings.Split(known.Image, "@")[0] + ":4.20.16", "recovery.release_image"},
		"digest in the tag": {"the digest identifies the image", "4.20.16", "registry.example.com/foreign:" + strings.TrimPrefix(known.Digest, "sha256:"), "recovery.release_image"},
		"of another":        {"the digest is that of another release", "4.20.8", known.Image, "recovery.release_image"},
	} {
		request.Recovery = &csv1.ClusterRecovery{ProvisionShard: "mgmt-1", ReleaseVersion: tc.version, ReleaseImage: tc.image}
		_, err := service.ApplyCluster(t.Context(), request)
		if e := apierror.As(apierror.FromGRPC(err)); status.Code(err) != codes.InvalidArgument || e.Target != tc.field {
			t.Errorf("%s: %s: got %v, want an error of the field %s", name, tc.reason, err, tc.field)
		}
	}
	request.Recovery = &csv1.ClusterRecovery{ProvisionShard: "mgmt-1", ReleaseVersion: "4.20.99", ReleaseImage: known.Image}
	_, err := service.ApplyCluster(t.Context(), request)
	requireRefused(t, err, codes.FailedPrecondition, "RELEASE_UNKNOWN")
	if _, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}); status.Code(err) != codes.NotFound {
		t.Fatalf("a refused recovery left a cluster: %v", err)
	}

	request.Recovery = &csv1.ClusterRecovery{ProvisionShard: "mgmt-1", ReleaseVersion: "4.20.16", ReleaseImage: "registry.example.com/mirror@" + known.Digest}
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	for _, generation := range []int64{1, 2} {
		request.Generation, request.Recovery.ReleaseVersion, request.Recovery.ReleaseImage = generation, "4.21.4", foreign
		if _, err := service.ApplyCluster(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("generation %d with a foreign image of a newer release: %v", generation, err)
		}
	}
	recovery, err := service.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: request.Uid})
	if err != nil || recovery.GetReleaseImage() != known.Image || recovery.GetReleaseVersion() != "4.20.16" {
		t.Errorf("the cluster has the release %s with image %s, want %s: %v", recovery.GetReleaseVersion(), recovery.GetReleaseImage(), known.Image, err)
	}
}

// TestLostClusterIsNotPlacedAgain sends the update of a cluster that Cluster Service lost, without recovery data, as the frontend
// does. A second control plane must not be created.
func TestLostClusterIsNotPlacedAgain(t *testing.T) {
	t.Parallel()
	service := newRegion(t).start(nil)
	request := applyRequest("lost", 2)
	request.MustExist = true
	_, err := service.ApplyCluster(t.Context(), request)
	requireRefused(t, err, codes.FailedPrecondition, clusterservice.ReasonClusterUnknown)
	if _, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}); status.Code(err) != codes.NotFound {
		t.Errorf("the refused request left a cluster: %v", err)
	}
	request.MustExist = false
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	request.MustExist, request.Generation = true, 3
	if _, err := service.ApplyCluster(t.Context(), request); err != nil {
		t.Errorf("an update of a known cluster: %v", err)
	}
}

// TestReappearedBundleIsDeleted creates a bundle again after its deletion was complete, as a delayed publish would.
func TestReappearedBundleIsDeleted(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request, cluster := service.createReady(t, "c")
	service.removed(t, request.Uid)
	late := must.Get(maestro.NewClient(r.maestro.Address, fleet.Source, nil, slog.New(slog.DiscardHandler)))(t)
	defer func() { _ = late.Close() }()
	shard, name := cluster.GetStatus().GetProvisionShard(), fleet.WorkName(fleet.Namespaces, cluster.GetStatus().GetClusterId(), "")
	manifest := json.RawMessage(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"late"}}`)
	bundle := &maestro.Bundle{ID: fleet.WorkID(shard, name, ""), Name: name, Consumer: shard, Manifests: []json.RawMessage{manifest}}
	must.Get(late.Create(t.Context(), bundle))(t)
	r.awaitNoBundles(t)
}

// TestInventory lists the resources in order, in pages, without deleted ones.
func TestInventory(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t).run()
	var want []string
	for _, name := range []string{"b", "a-1", "a"} {
		request, _ := service.createReady(t, name)
		pool := poolRequest(request, "np1", 1)
		must.Get(service.ApplyNodePool(t.Context(), pool))(t)
		want = append(want, strings.ToLower(request.ResourceId)+" "+request.Uid, strings.ToLower(pool.ResourceId)+" "+pool.Uid)
	}
	gone, _ := service.createReady(t, "gone")
	service.removed(t, gone.Uid)
	slices.Sort(want)
	for _, size := range []int32{1, 2, 6, 100} {
		var got []string
		token := ""
		for {
			page := must.Get(service.ListInventory(t.Context(), &csv1.ListInventoryRequest{PageSize: size, PageToken: token}))(t)
			for _, e := range page.GetEntries() {
				got = append(got, strings.ToLower(e.GetResourceId())+" "+e.GetUid())
				if e.GetGeneration() != 1 || e.GetDeleting() || (e.GetKind() == csv1.InventoryKind_INVENTORY_KIND_CLUSTER) == (e.GetReleaseVersion() == "") {
					t.Errorf("unexpected entry %v", e)
				}
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with page size %d: %q, want %q", size, got, want)
		}
	}
}

// TestLostClusterIsDeleted deletes a cluster that a restore of the database has lost. There are no steps to perform in
// order, but its bundles in Maestro are deleted.
func TestLostClusterIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.start(nil).stop()
	before := r.backup()
	first := r.start(nil)
	request, _ := first.createReady(t, "c")
	first.createReadyPool(t, request, "np1", 2)
	first.stop()
	r.url = before
	second := r.start(nil)
	second.remove(t, request.Uid)
	r.awaitNoBundles(t)
}

// TestLostNodePoolIsDeleted restores the database to a time before two node pools were created. The deletion of one is not done before its
// bundle is deleted, although Cluster Service does not know the pool. The other is deleted with its cluster.
func TestLostNodePoolIsDeleted(t *testing.T) {
	t.Parallel()
	r, first := newRegion(t).run()
	request, _ := first.createReady(t, "c")
	held := r.bundles()
	first.stop()
	before := r.backup()
	second := r.start(nil)
	lost := poolRequest(request, "np1", 2)
	for _, pool := range []*csv1.ApplyNodePoolRequest{lost, poolRequest(request, "np2", 2)} {
		second.applyPool(t, pool, poolHas(2))
	}
	second.stop()
	r.url = before
	third := r.start(nil)
	deleted := must.Get(third.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: lost.Uid, ClusterUid: request.Uid, ResourceId: lost.ResourceId}))(t)
	if deleted.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED {
		t.Error("the node pool is deleted before its bundle")
	}
	third.awaitPool(t, lost.Uid, poolGone)
	if now := r.bundles(); len(now) != len(held)+1 {
		t.Errorf("the bundles are %q, those without node pools %q", now, held)
	}
	third.remove(t, request.Uid)
	r.awaitNoBundles(t)
}
