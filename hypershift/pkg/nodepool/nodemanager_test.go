package nodepool

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
)

// TestRebuiltControlPlaneIsAnotherCluster lets a control plane be built again with the address of the previous one. The manager must not
// keep the connection with the previous authority, which the new API server does not have.
func TestRebuiltControlPlaneIsAnotherCluster(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:6443"}
	m := NewNodeManager(func(context.Context, string) (*rest.Config, error) { return config, nil }, nil, slog.New(slog.DiscardHandler))
	defer m.Close()
	connected := func() *cluster {
		t.Helper()
		c, err := m.cluster(t.Context(), "control-plane")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := connected()
	if connected() != first {
		t.Error("the manager connected again to the same API server")
	}
	rebuilt, err := pki.NewAuthority("rebuilt", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.CAData = rebuilt.Pair.Cert
	if connected() == first {
		t.Error("the manager kept the connection with the previous authority")
	}
}
