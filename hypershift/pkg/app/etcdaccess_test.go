package app

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// expectOwnKeysOnly reads etcd with the certificate of the hosted API server.
func (s *sample) expectOwnKeysOnly(t *testing.T, stateDir string) {
	t.Helper()
	dir := filepath.Join(stateDir, s.controlPlane())
	config := must.Get(kubeapi.EtcdTLS{CAFile: s.EtcdTLS.CAFile, CertificateFile: filepath.Join(dir, "etcd.crt"), KeyFile: filepath.Join(dir, "etcd.key")}.Config())(t)
	server := must.Get(etcdusers.Open(s.Etcd, config))(t)
	defer func() { _ = server.Close() }()
	own := hostedapi.Prefix(s.controlPlane())
	if keys, err := server.Read(t.Context(), own); err != nil || len(keys) == 0 {
		t.Errorf("reading its own keys: %d keys, %v", len(keys), err)
	}
	for _, prefix := range []string{"", "/hosted", "/test", own + "-2"} {
		if keys, err := server.Read(t.Context(), prefix); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("reading the keys below %q: %d keys, %v, want permission denied", prefix, len(keys), err)
		}
	}
	if err := server.Ensure(t.Context(), etcdusers.User{Prefix: "/test"}); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("changing another user: %v, want permission denied", err)
	}
}

// expectNoEtcdUser fails if the user of the hosted API server still exists.
func (s *sample) expectNoEtcdUser(t *testing.T) {
	t.Helper()
	users := must.Get(s.EtcdUsers(t).Users(t.Context()))(t)
	if slices.Contains(users, hostedapi.Prefix(s.controlPlane())) {
		t.Errorf("the control plane's user still exists: %v", users)
	}
}
