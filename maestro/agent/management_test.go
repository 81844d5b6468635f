package agent

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// management is the API server of all tests.
var management kubeapitest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	management.Close()
	os.Exit(code)
}

// managementCluster returns the configuration of an administrator's client.
func managementCluster(t testing.TB) *rest.Config {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", management.Cluster(t).Kubeconfig()))(t)
	config.QPS, config.Burst = -1, 0
	return config
}
