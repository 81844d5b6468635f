package e2e

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// upgradeByComponents upgrades the control plane to another minor version while some components are blocked. It compares the
// component versions that admin reports with those on the management cluster.
func (d *scenario) upgradeByComponents(host kubectl, version string) {
	d.t.Helper()
	annotate := func(fault string) {
		d.t.Helper()
		must.Get(host.run(d.ctx, "annotate", "hostedclusters", "--all", contract.FaultAnnotation+fault))(d.t)
	}
	annotate("=" + string(contract.FaultComponentsStuck))
	poller := must.Get(d.c.Resources.BeginUpdateByID(d.ctx, d.id, customer.APIVersion,
		armresources.GenericResource{Properties: map[string]any{"version": map[string]any{"id": version}}}, nil))(d.t)

	controlPlane := kubectl{t: d.t, kubeconfig: host.kubeconfig, namespace: host.namespace + "-" + host.get(d.ctx, "hostedclusters", `{.items[0].metadata.name}`)}
	cluster := uidOf(d.t, d.ctx, clusterService(d.t), d.id)
	reader := engineer(d.t, "reader")
	reported, actual := map[string]string{}, map[string]string{}
	eventually.Before(d.ctx, d.t, "admin reports which components are updated", func() error {
		upgrades, err := adminclient.Get(d.ctx, reader, adminv1.ReadClusterUpgrades, nil, cluster)
		if err != nil {
			return err
		}
		clear(reported)
		updated := 0
		for _, u := range upgrades.Items {
			for _, s := range u.Of.GetStatus().GetSteps() {
				for _, c := range s.GetComponents() {
					reported[c.GetName()] = c.GetVersion()
					if c.GetState() == clusterservicev1.ComponentState_COMPONENT_STATE_UPDATED {
						updated++
					}
				}
			}
		}
		if updated == 0 {
			return fmt.Errorf("no component is updated: %v", reported)
		}
		components, err := controlPlane.read(d.ctx, "controlplanecomponents", `{range .items[*]}{.metadata.name}={.status.version} {end}`)
		if err != nil {
			return err
		}
		clear(actual)
		for _, line := range strings.Fields(components) {
			name, version, _ := strings.Cut(line, "=")
			actual[name] = version
		}
		if !maps.Equal(reported, actual) {
			return fmt.Errorf("actual versions are %v, reported ones %v", actual, reported)
		}
		return nil
	})
	// On a busy machine a component may not respond in time; the explanation then names it instead.
	eventually.Before(d.ctx, d.t, "the explanation names the progress of the components", func() error {
		text, err := d.tryHcpctl("explain", d.id)
		if err == nil && !strings.Contains(strings.Join(strings.Fields(text), " "), "components are at "+version) {
			err = fmt.Errorf("the explanation is %s", text)
		}
		return err
	})
	if text := d.hcpctl("upgrade", "status", d.id); !strings.Contains(text, "rolling-out") {
		d.t.Errorf("the status of the upgrade is %s", text)
	}

	annotate("-")
	if _, err := poller.PollUntilDone(d.ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}); err != nil {
		d.t.Fatalf("waiting for the upgrade: %v", err)
	}
}
