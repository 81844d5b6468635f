package installation_test

import (
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
)

// demoCluster is the resource ID of the cluster that hcpctl creates as a demo.
const demoCluster = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"

// upgradedSteps are the steps that replace the pods of a region.
var upgradedSteps = []string{"admin/deploy", "backend/deploy", "cluster-service/deploy", "frontend/deploy", "gateway-access/deploy", "gateway-grants/deploy", "gateway-tunnel@1/deploy", "hypershift@1/deploy", "maestro-agent@1/deploy", "maestro-server/deploy",
	"monitor/deploy"}

// upgradeRegion changes a value of the configuration that all programs have, and runs the pipelines, while a customer with a cluster and an engineer
// use the region from outside. The pipelines must replace all pods of both clusters. No call and no watch may fail.
func (p *pipelines) upgradeRegion() {
	p.t.Helper()
	const quiet, upgrading = "before the upgrade of the region", "during the upgrade of the region by the pipelines"
	p.hcpctlOrFail("region", "demo")
	access := filepath.Join(p.dir, "watch.kubeconfig")
	p.hcpctlOrFail("cluster", "credential", "request", "demo", "-f", access)
	l := p.startOutsideLoad(p.proxy.Admin, demoCluster, access)
	l.enter(quiet)
	l.await(phaseCalls)

	p.change("config/clouds/public/local.yaml", "logLevel: debug", "logLevel: info")
	clusters := map[*region][]string{p.region: installation.ServiceImages(), p.management: {agentName, hypershiftName, tunnelName}}
	before := map[string]map[types.UID]string{}
	for cluster, programs := range clusters {
		for _, program := range programs {
			before[program] = cluster.readyPods(program)
		}
	}
	began := time.Now()
	l.enter(upgrading)
	var upgraded rolledOut
	p.run("run", &upgraded)
	for _, step := range upgradedSteps {
		if !slices.Contains(upgraded.Succeeded, step) {
			p.t.Errorf("the step %s is not among those that have succeeded: %v", step, upgraded.Succeeded)
		}
	}
	for cluster, programs := range clusters {
		for _, program := range programs {
			cluster.awaitNewPods(program, before[program])
		}
	}
	p.log("the pipelines replaced all pods of the region within %v", time.Since(began).Round(time.Millisecond))
	l.await(phaseCalls)
	l.end()
	l.describe(quiet, quiet)
	l.describe(upgrading, quiet)
	p.hcpctlOrFail("cluster", "delete", "demo")
}
