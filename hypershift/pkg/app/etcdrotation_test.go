package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/etcdrotation"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// interruptedStore interrupts a rotation after each of the first changes of the keys.
type interruptedStore struct {
	etcdrotation.Store
	left int
}

var errInterrupted = errors.New("interrupted")

func (s *interruptedStore) Write(ctx context.Context, state etcdrotation.State, keys kubeapi.EncryptionKeys) error {
	err := s.Store.Write(ctx, state, keys)
	if err == nil && s.left > 0 {
		s.left--
		return errInterrupted
	}
	return err
}

func serverOf(t *testing.T, config *rest.Config) (*etcdrotation.Server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(client.CloseIdleConnections)
	return &etcdrotation.Server{URL: strings.TrimSuffix(config.Host, "/"), HTTP: client}, nil
}

// encryptionKeys returns the data of the Secret with the keys of the hosted API server.
func (s *sample) encryptionKeys(t *testing.T) map[string][]byte {
	t.Helper()
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.controlPlane(), Name: contract.EncryptionKeySecret})
	return secret.Data
}

// TestEtcdKeyRotation replaces the key with which a hosted API server encrypts etcd. The runtime, and with it the API server, is killed after
// the next key was added, after it was promoted, and while objects are written again. The API server loads the last change while it runs.
func TestEtcdKeyRotation(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	options := m.options(t.TempDir(), withProcessFidelity)
	runtime := m.spawnRuntime(t, options)
	s := m.sample(t, "etcd-key")
	s.awaitKind(t)
	s.create(t)
	s.waitCluster(t, available)
	s.expectEncryption(t)
	before := must.Get(kubeapi.EncryptionKeysOf(s.encryptionKeys(t)))(t)
	kill := func() {
		runtime.Kill()
		s.expectNothingRuns(t)
		runtime = m.spawnRuntime(t, options)
	}
	management := must.Get(serverOf(t, m.config))(t)
	killed, pids := false, []int(nil)
	r := &etcdrotation.Rotation{
		Store: &interruptedStore{&etcdrotation.Secret{Management: *management, Namespace: s.controlPlane()}, 2},
		Server: func(ctx context.Context) (*etcdrotation.Server, error) {
			var secret corev1.Secret
			if err := s.client.Get(ctx, client.ObjectKey{Namespace: s.controlPlane(), Name: contract.AdminKubeconfigSecret}, &secret); err != nil {
				return nil, err
			}
			config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
			if err != nil {
				return nil, err
			}
			return serverOf(t, config)
		},
		Etcd: m.EtcdUsers(t), Prefix: kubeapi.HostedPrefix(s.controlPlane()),
		RequestTimeout: time.Millisecond, // nobody writes during the rotation
	}
	r.Note = func(text string) {
		t.Log(text)
		switch {
		case strings.HasPrefix(text, "Rewriting: key ") && !killed:
			killed = true
			kill()
		case strings.HasPrefix(text, "Removing: key "):
			pids = s.servers(t)
		}
	}
	for runs := 1; ; runs++ {
		err := r.Run(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, errInterrupted) || runs > 2 {
			t.Fatalf("run %d: %v", runs, err)
		}
		kill()
	}
	if now := s.servers(t); !killed || len(now) != 1 || !slices.Equal(now, pids) {
		t.Errorf("hosted API servers before the last change %v, after it %v, killed meanwhile: %v", pids, now, killed)
	}
	data := s.encryptionKeys(t)
	after, err := kubeapi.EncryptionKeysOf(data)
	if err != nil || after.Read != nil || len(data) != 2 || after.Write.Number != before.Write.Number+1 {
		t.Errorf("key %d of %d entries, %v", after.Write.Number, len(data), err)
	}
	encrypted := 0
	for key, value := range s.etcdValues(t, r.Prefix) {
		if strings.Contains(key, "/secrets/") || strings.Contains(key, "/configmaps/") {
			encrypted++
			if !strings.HasPrefix(string(value), after.Write.Prefix()) {
				t.Errorf("%s is not encrypted with the new key", key)
			}
		}
		if strings.HasPrefix(string(value), before.Write.Prefix()) {
			t.Errorf("%s is encrypted with the former key", key)
		}
	}
	if encrypted < 2 {
		t.Errorf("etcd has only %d encrypted values", encrypted)
	}
	s.expectCanary(t)
	s.delete(t)
}
