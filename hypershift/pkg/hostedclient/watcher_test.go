package hostedclient

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
)

// TestRebuiltControlPlaneIsWatchedAgain lets a control plane be built again with the address of the previous one. The informer of the
// previous one must not continue: the new API server has another authority.
func TestRebuiltControlPlaneIsWatchedAgain(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:6443"}
	watched := make(chan context.Context, 10)
	kind := Resource[struct{}]{
		Plural: "pods", NewState: func() struct{} { return struct{}{} },
		NewInformer: func(ctx context.Context, _ kubernetes.Interface) (cache.SharedIndexInformer, error) {
			watched <- ctx
			return cache.NewSharedIndexInformer(cachetesting.NewFakeControllerSource(), &corev1.Pod{}, 0, nil), nil
		},
		Add: func(struct{}, any) bool { return false }, Remove: func(struct{}, any) bool { return false },
	}
	w := NewWatcher(kind, func(context.Context, string) (*rest.Config, error) { return config, nil }, func(string) {}, slog.New(slog.DiscardHandler))
	defer w.Close()
	read := func() { w.Read(t.Context(), "control-plane", func(struct{}) {}) }
	read()
	first := <-watched
	read()
	if first.Err() != nil || len(watched) > 0 {
		t.Fatal("the watcher started to watch the same API server again")
	}
	rebuilt, err := pki.NewAuthority("rebuilt", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.CAData = rebuilt.Pair.Cert
	read()
	if first.Err() == nil {
		t.Fatal("the watcher keeps the connection with the previous authority")
	}
	<-watched
}
