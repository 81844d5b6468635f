package e2e

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// upgradeByComponents has the control plane go to another minor version, of which some components do not get on at first: what an
// engineer is told of each is what kubectl says of it on the management cluster.
func (d *day) upgradeByComponents(host kubectl, version string) {
	d.t.Helper()
	annotate := func(fault string) {
		d.t.Helper()
		if _, err := host.run(d.ctx, "annotate", "hostedclusters", "--all", contract.FaultAnnotation+fault); err != nil {
			d.t.Fatal(err)
		}
	}
	annotate("=" + string(contract.FaultComponentsStuck))
	poller, err := d.c.Resources.BeginUpdateByID(d.ctx, d.id, customer.APIVersion,
		armresources.GenericResource{Properties: map[string]any{"version": map[string]any{"id": version}}}, nil)
	if err != nil {
		d.t.Fatal(err)
	}

	controlPlane := kubectl{t: d.t, kubeconfig: host.kubeconfig, namespace: host.namespace + "-" + host.get(d.ctx, "hostedclusters", `{.items[0].metadata.name}`)}
	cluster := uidOf(d.t, d.ctx, clusterService(d.t), d.id)
	reader := engineer(d.t, "reader")
	told, runs := map[string]string{}, map[string]string{}
	eventually.Before(d.ctx, d.t, "an engineer is told which components are updated", func() error {
		upgrades, err := reader.ClusterUpgrades(d.ctx, cluster)
		if err != nil {
			d.t.Fatal(err)
		}
		clear(told)
		updated := 0
		for _, u := range upgrades {
			for _, s := range u.GetStatus().GetSteps() {
				for _, c := range s.GetComponents() {
					told[c.GetName()] = c.GetVersion()
					if c.GetState() == clusterservicev1.ComponentState_COMPONENT_STATE_UPDATED {
						updated++
					}
				}
			}
		}
		if updated == 0 {
			return fmt.Errorf("none is: %v", told)
		}
		clear(runs)
		for _, line := range strings.Fields(controlPlane.get(d.ctx, "controlplanecomponents", `{range .items[*]}{.metadata.name}={.status.version} {end}`)) {
			name, version, _ := strings.Cut(line, "=")
			runs[name] = version
		}
		if !maps.Equal(told, runs) {
			return fmt.Errorf("the components run %v, and an engineer is told %v", runs, told)
		}
		return nil
	})
	if says := d.hcpctl("explain", d.id); !strings.Contains(strings.Join(strings.Fields(says), " "), "components are at "+version) {
		d.t.Errorf("explained is %s", says)
	}
	if says := d.hcpctl("upgrade", "status", d.id); !strings.Contains(says, "rolling-out") {
		d.t.Errorf("the status of the upgrade is %s", says)
	}

	annotate("-")
	if _, err := poller.PollUntilDone(d.ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
		d.t.Fatalf("waiting for the upgrade: %v", err)
	}
}
