package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// TestClusterReadyAsksTheAPIServer checks that an agent whose controllers once ran reports an API server that is hung, and one
// without etcd.
func TestClusterReadyAsksTheAPIServer(t *testing.T) {
	status, body := http.StatusOK, "ok"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	proxy := netfault.StartProxy(t, server.Listener.Addr().String())
	a := must.Get(New(Options{Consumer: "mgmt-1", MQTTAddress: "127.0.0.1:1", MQTTTLS: &tls.Config{}, Cluster: &rest.Config{Host: "http://" + proxy.Address}}))(t)
	if err := a.ClusterReady(t.Context()); err == nil {
		t.Error("ready before the controllers run")
	}
	a.clusterReady.Store(true)
	a.rights.checked = time.Now() // the server has no rights
	if err := a.ClusterReady(t.Context()); err != nil {
		t.Error(err)
	}
	status, body = http.StatusInternalServerError, "[-]etcd failed: reason withheld\n"
	if err := a.ClusterReady(t.Context()); err == nil || !strings.Contains(err.Error(), "failed checks: etcd") {
		t.Errorf("without etcd: %v", err)
	}
	proxy.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.ClusterReady(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a hung API server: %v", err)
	}
}
