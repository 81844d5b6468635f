package app_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// pullSecretsHeld counts the clusters with a pull secret that the agent of their management cluster can open.
func (r *region) pullSecretsHeld(pullSecret string) int {
	r.t.Helper()
	pair := must.Get(shardKeys())(r.t)
	wanted, held := base64.StdEncoding.EncodeToString([]byte(pullSecret)), 0
	for _, resource := range r.maestro.Resources() {
		for _, manifest := range resource.Manifests {
			var secret map[string]any
			if json.Unmarshal(manifest, &secret) != nil || secret["kind"] != "Secret" {
				continue
			}
			must.Do(r.t, seal.OpenSecret(secret, resource.Consumer, pair.private))
			if data, _ := secret["data"].(map[string]any); data[".dockerconfigjson"] == wanted {
				held++
			}
		}
	}
	return held
}

// readyClusters creates clusters with one node pool each and waits until all are ready.
func readyClusters(t *testing.T, service *instance, count int) (clusters []*csv1.ApplyClusterRequest, pools []*csv1.ApplyNodePoolRequest) {
	t.Helper()
	for i := range count {
		request := applyRequest(fmt.Sprintf("renewed-%d", i), 1)
		pool := poolRequest(request, "np", 1)
		must.Get(service.ApplyCluster(t.Context(), request))(t)
		must.Get(service.ApplyNodePool(t.Context(), pool))(t)
		clusters, pools = append(clusters, request), append(pools, pool)
	}
	for i := range count {
		service.awaitCluster(t, clusters[i].Uid, clusterReady(1))
		service.awaitPool(t, pools[i].Uid, func(p *csv1.NodePool) bool { return p.GetStatus().GetObservedGeneration() == 1 })
	}
	return clusters, pools
}

// awaitPublished waits until the database stores that Maestro accepted the works of clusters.
func (i *instance) awaitPublished(t *testing.T, clusters []*csv1.ApplyClusterRequest) {
	t.Helper()
	untilDone(t, func(ctx context.Context) error {
		for _, request := range clusters {
			c, err := i.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
			if err != nil {
				return err
			}
			for _, layer := range c.GetStatus().GetProgress() {
				if layer.GetLayer() == fleet.LayerMaestro && layer.GetState() != "Published" {
					return fmt.Errorf("the work of %s is %v", request.Uid, layer)
				}
			}
		}
		return nil
	})
}

// expectUnmoved checks that customers see no change.
func expectUnmoved(t *testing.T, service *instance, clusters []*csv1.ApplyClusterRequest, pools []*csv1.ApplyNodePoolRequest) {
	t.Helper()
	for i := range clusters {
		c := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: clusters[i].Uid}))(t)
		p := must.Get(service.GetNodePool(t.Context(), &csv1.GetNodePoolRequest{Uid: pools[i].Uid}))(t)
		if !clusterReady(1)(c) || c.GetGeneration() != 1 || p.GetStatus().GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_READY {
			t.Errorf("a renewal changed the cluster or the pool: %v, %v", c.GetStatus(), p.GetStatus())
		}
	}
}

// TestChangedPullSecretReachesEveryCluster changes the pull secret while the service runs, while it is stopped, and with
// a crash during the renewal.
func TestChangedPullSecretReachesEveryCluster(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	clusters, pools := readyClusters(t, service, 5)
	service.awaitPublished(t, clusters)
	// Maestro reports a work as gone if Cluster Service requests its missed status just before it creates the work. Such a work is
	// published again with an update.
	created := len(r.maestro.History())

	const second = `{"auths":{"second.example":{}}}`
	service.change(render.Settings{Config: config.Default(), PullSecret: []byte(second), ShardKeys: r.shardKeys()})
	untilDone(t, func(context.Context) error { return r.held(second, len(clusters)) })
	// A stop between Maestro's response and the commit repeats the update, as a crash does. So the renewal ends before the stop. The status
	// of a management cluster can confirm a renewal before the commit.
	untilDone(t, func(context.Context) error {
		return service.measures(float64(len(clusters)), "cluster_service_renewals_total", "carried")
	})
	service.awaitPublished(t, clusters)
	expectUnmoved(t, service, clusters, pools)
	service.stop()

	// The process dies before it commits the first publication of the third secret: two of five clusters are renewed at the same time.
	// Its transactions do not end until it is stopped, so that it publishes no work again.
	dead := make(chan struct{})
	release := sync.OnceFunc(func() { close(dead) })
	r.pullSecret = `{"auths":{"third.example":{}}}`
	dying := r.start(func(point string) error {
		if point == "before-commit" && r.pullSecretsHeld(r.pullSecret) > 0 {
			<-dead
			return errCrash
		}
		return nil
	})
	t.Cleanup(release)
	untilDone(t, func(context.Context) error {
		if r.pullSecretsHeld(r.pullSecret) == 0 {
			return fmt.Errorf("no cluster has the third pull secret")
		}
		return nil
	})
	dying.cancel()
	release()
	dying.stop()
	service = r.start(nil)
	untilDone(t, func(context.Context) error { return r.held(r.pullSecret, len(clusters)) })
	for i := range clusters {
		service.awaitCluster(t, clusters[i].Uid, clusterReady(1))
	}
	expectUnmoved(t, service, clusters, pools)
	holders := map[string]bool{}
	for _, resource := range r.maestro.Resources() {
		holders[resource.Name] = slices.ContainsFunc(resource.Manifests, isPullSecret)
	}
	updates := map[string]int{}
	for _, action := range r.maestro.History()[created:] {
		if name, isUpdate := strings.CutPrefix(action, "update "); isUpdate {
			updates[name]++
		}
	}
	for name, count := range updates {
		// One for each pull secret, and another one if the crash was between Maestro's response and the commit: a Secret that is
		// sealed again is another text.
		if !holders[name] || count > 3 {
			t.Errorf("work %s was updated %d times for two pull secrets; it contains one: %t", name, count, holders[name])
		}
	}
}

// TestWorkOfFormerSettingsIsPublishedAgain has one replica plan a work with changed settings, and another one, which has not read them yet,
// publish it. The work stays due until the replica has the settings, and is published with them.
func TestWorkOfFormerSettingsIsPublishedAgain(t *testing.T) {
	t.Parallel()
	r, former := newRegion(t).run()
	clusters, pools := readyClusters(t, former, 2)

	// Maestro is away until the replica with the changed settings has planned and stopped.
	var mu sync.Mutex
	planned := map[string]bool{}
	r.maestro.Fault(func(action string, resource *maestrotest.Resource) (before, after error) {
		if action != "update" {
			return nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		planned[resource.Name] = true
		return status.Error(codes.Unavailable, "Maestro is away"), nil
	})
	r.pullSecret = `{"auths":{"second.example":{}}}`
	next := r.start(nil)
	awaitCondition(t, "the works of all clusters are planned", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(planned) == len(clusters)
	})
	next.stop()
	published := len(r.maestro.History())
	r.maestro.Fault(nil)
	untilDone(t, func(context.Context) error {
		if len(r.maestro.History()) == published {
			return fmt.Errorf("the other replica has published nothing")
		}
		return nil
	})
	if held := r.pullSecretsHeld(r.pullSecret); held != 0 {
		t.Fatalf("%d clusters have the changed pull secret, which the replica does not have", held)
	}

	former.change(render.Settings{Config: config.Default(), PullSecret: []byte(r.pullSecret), ShardKeys: r.shardKeys()})
	untilDone(t, func(context.Context) error { return r.held(r.pullSecret, len(clusters)) })
	former.awaitPublished(t, clusters)
	expectUnmoved(t, former, clusters, pools)
}

// isPullSecret reports whether a manifest is the Secret of a pull secret.
func isPullSecret(manifest json.RawMessage) bool {
	var secret struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	return json.Unmarshal(manifest, &secret) == nil && secret.Kind == "Secret" && secret.Data[".dockerconfigjson"] != ""
}

func (r *region) held(pullSecret string, want int) error {
	if held := r.pullSecretsHeld(pullSecret); held != want {
		return fmt.Errorf("%d of %d clusters have the pull secret", held, want)
	}
	return nil
}

// TestRejectedRenderingStopsRenewal checks that a configuration that management clusters reject does not reach the whole
// fleet.
func TestRejectedRenderingStopsRenewal(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	clusters, pools := readyClusters(t, service, 8)
	r.maestro.Fault(func(action string, _ *maestrotest.Resource) (before, after error) {
		if action == "update" {
			return status.Error(codes.InvalidArgument, "it does not fit"), nil
		}
		return nil, nil
	})
	const bad = `{"auths":{"bad.example":{}}}`
	service.change(render.Settings{Config: config.Default(), PullSecret: []byte(bad), ShardKeys: r.shardKeys()})
	refused := func() int {
		count := 0
		for _, request := range clusters {
			c := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}))(t)
			for _, condition := range c.GetStatus().GetConditions() {
				if condition.GetType() == "Applied" && condition.GetReason() == "Refused" {
					count++
				}
			}
		}
		return count
	}
	untilDone(t, func(context.Context) error {
		if n := refused(); n < 3 {
			return fmt.Errorf("%d are rejected", n)
		}
		return nil
	})
	untilDone(t, func(context.Context) error { return service.measures(1, "cluster_service_renewals_total", "stopped") })
	if n := refused(); n >= len(clusters)-1 {
		t.Errorf("the rejected rendering reached %d of %d clusters", n, len(clusters))
	}
	// After the configuration was corrected, the renewal continues and includes the clusters that rejected it.
	r.maestro.Fault(nil)
	const good = `{"auths":{"good.example":{}}}`
	service.change(render.Settings{Config: config.Default(), PullSecret: []byte(good), ShardKeys: r.shardKeys()})
	untilDone(t, func(context.Context) error { return r.held(good, len(clusters)) })
	for i := range clusters {
		service.awaitCluster(t, clusters[i].Uid, clusterReady(1))
	}
	expectUnmoved(t, service, clusters, pools)
	if held := r.pullSecretsHeld(bad); held != 0 {
		t.Errorf("%d clusters have the rejected rendering", held)
	}
}

// sealedWith returns the number of clusters whose signing key a key has sealed.
func (i *instance) sealedWith(ctx context.Context, key uint32, clusters []*csv1.ApplyClusterRequest) (sealed int, err error) {
	for _, request := range clusters {
		c, err := i.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
		if err != nil {
			return 0, err
		}
		if c.GetSealingKeyId() == key {
			sealed++
		}
	}
	return sealed, nil
}

// TestSigningKeysAreSealedAgain rotates the sealing key while the service runs, with two replicas, and with a crash during the second
// rotation. When it is done, the former key is removed, and everything can be opened.
func TestSigningKeysAreSealedAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.sealingKeys = filepath.Join(t.TempDir(), "keyset.json")
	r.play()
	service := r.start(nil)
	clusters, pools := readyClusters(t, service, 5)
	opened := map[string]string{}
	signingKey := func(uid string) string {
		t.Helper()
		recovery := must.Get(service.GetClusterRecovery(t.Context(), &csv1.GetClusterRecoveryRequest{Uid: uid}))(t)
		keys := must.Get(seal.Load(r.sealingKeys))(t)
		key, err := keys.Open(uid, recovery.GetSigningKey())
		if err != nil {
			t.Fatalf("the recovery data of %s: %v", uid, err)
		}
		return string(key)
	}
	for _, request := range clusters {
		opened[request.Uid] = signingKey(request.Uid)
	}
	// rotate adds a key, makes it the primary key, and returns it with the former one.
	rotate := func() (former, next uint32) {
		t.Helper()
		keys, err := keyfile.List(r.sealingKeys)
		if err != nil {
			t.Fatal(err)
		}
		if next, err = keyfile.Add(r.sealingKeys); err == nil {
			err = keyfile.Promote(r.sealingKeys, next)
		}
		if err != nil {
			t.Fatal(err)
		}
		return keys[0].ID, next
	}
	allSealedWith := func(key uint32) {
		t.Helper()
		untilDone(t, func(ctx context.Context) error {
			sealed, err := service.sealedWith(ctx, key, clusters)
			if err == nil && sealed != len(clusters) {
				err = fmt.Errorf("%d of %d signing keys are sealed with the key %d", sealed, len(clusters), key)
			}
			return err
		})
		for _, request := range clusters {
			if signingKey(request.Uid) != opened[request.Uid] {
				t.Errorf("the signing key of %s changed", request.Uid)
			}
		}
	}
	remove := func(key uint32) {
		t.Helper()
		must.Do(t, keyfile.Remove(r.sealingKeys, key))
	}

	replica := r.start(nil)
	former, next := rotate()
	service.reseal()
	replica.reseal()
	allSealedWith(next)
	for _, i := range []*instance{service, replica} {
		untilDone(t, func(context.Context) error { return i.measures(2, "cluster_service_reseal_passes", fmt.Sprint(next)) })
		if err := i.measures(float64(len(clusters)), "cluster_service_signing_keys"); err != nil {
			t.Error(err)
		}
	}
	remove(former)
	allSealedWith(next)
	replica.stop()
	service.stop()

	// The crash is after the second commit of the rotation.
	former, next = rotate()
	var commits atomic.Int32
	var once sync.Once
	crashed := make(chan struct{})
	dying := r.start(func(point string) error {
		if point == "before-commit" && commits.Add(1) > 2 {
			once.Do(func() { close(crashed) })
			return errCrash
		}
		return nil
	})
	<-crashed
	sealed, err := dying.sealedWith(t.Context(), next, clusters)
	if err != nil || sealed == 0 || sealed == len(clusters) {
		t.Errorf("%d of %d signing keys are sealed again after the crash: %v", sealed, len(clusters), err)
	}
	dying.stop()
	service = r.start(nil)
	allSealedWith(next)
	remove(former)
	allSealedWith(next)
	expectUnmoved(t, service, clusters, pools)
}

// TestSigningKeyOfARemovedKeyIsReported removes a sealing key that is still needed. The signing keys stay as they are, and can be sealed
// again when the key is restored.
func TestSigningKeyOfARemovedKeyIsReported(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.sealingKeys = filepath.Join(t.TempDir(), "keyset.json")
	r.play()
	service := r.start(nil)
	clusters, _ := readyClusters(t, service, 2)
	service.stop()
	before := must.Get(keyfile.List(r.sealingKeys))(t)
	needed := r.sealingKeys
	r.sealingKeys = filepath.Join(t.TempDir(), "other.json")
	service = r.start(nil)
	untilDone(t, func(context.Context) error {
		return service.measures(float64(len(clusters)), "cluster_service_signing_keys_to_reseal")
	})
	if sealed, err := service.sealedWith(t.Context(), before[0].ID, clusters); err != nil || sealed != len(clusters) {
		t.Errorf("%d of %d signing keys are as they were: %v", sealed, len(clusters), err)
	}
	service.stop()
	r.sealingKeys = needed
	service = r.start(nil)
	untilDone(t, func(context.Context) error { return service.measures(0, "cluster_service_signing_keys_to_reseal") })
}
