package app_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

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
