package command

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

const defaultVMSize = "Standard_D8s_v3"

// defaultNodeVersion is the oldest release of node pools. It fits the default version of clusters.
const defaultNodeVersion = "4.20.8"

func (e *environment) nodePool() *cobra.Command {
	c := group("nodepool", "Manage node pools",
		e.nodePoolCreate(), e.get(nodePools()), e.list(nodePools(), "List the node pools of a cluster"), e.nodePoolScale(), e.nodePoolUpdate(),
		e.delete(nodePools(), "Delete a node pool"))
	e.addARMFlags(c)
	return c
}

func (e *environment) nodePoolCreate() *cobra.Command {
	var version, vmSize string
	var replicas int
	c := e.create(nodePools(), func(_ []string, location string) (armclient.Resource, error) {
		return nodePoolTemplate(location, version, vmSize, replicas), nil
	})
	c.Flags().IntVar(&replicas, "replicas", 2, "`number` of nodes")
	c.Flags().StringVar(&version, "version", defaultNodeVersion, "OpenShift `version` as MAJOR.MINOR.PATCH, at most that of the control plane")
	c.Flags().StringVar(&vmSize, "vm-size", defaultVMSize, "virtual machine `size`")
	return c
}

// nodePoolScale returns the command that sets the size of a node pool: through ARM as the customer, or through admin as an
// SRE in the customer's place.
func (e *environment) nodePoolScale() *cobra.Command {
	var replicas, low, high int32
	var asSRE bool
	k := nodePools()
	customer := e.update(k, "scale", "", func(current armclient.Resource) (armclient.Resource, error) {
		stored, _ := current["properties"].(map[string]any)
		properties := map[string]any{}
		setSize(properties, stored, "replicas", replicas)
		return armclient.Resource{"properties": properties}, nil
	})
	c := &cobra.Command{
		Use: k.of("scale"), Short: "Set the number of nodes of a node pool", ValidArgsFunction: customer.ValidArgsFunction,
		Long: `Set the number of nodes of a node pool, which ends autoscaling.

By default the request goes through Azure Resource Manager with the customer's credentials. With --as-sre it goes through
admin, in the customer's place: CLUSTER is then any identifier that 'hcpctl cluster find' accepts, the size may be a range for
the autoscaler, and ARM shows the change as an update of the node pool. The customer's next update overrides it.`,
	}
	flags := c.Flags()
	flags.BoolVar(&asSRE, "as-sre", false, "send the request through admin, in the customer's place (role operator)")
	flags.Int32Var(&replicas, "replicas", 0, "`number` of nodes")
	flags.Int32Var(&low, "min", 0, "minimum `number` of nodes for the autoscaler; requires --as-sre")
	flags.Int32Var(&high, "max", 0, "maximum `number` of nodes for the autoscaler; requires --as-sre")
	c.MarkFlagsOneRequired("replicas", "max")
	c.MarkFlagsMutuallyExclusive("replicas", "max")
	c.MarkFlagsRequiredTogether("min", "max")
	e.requestAndShow(c, adminv1.ActionNodePoolScale, func() any {
		if flags.Changed("max") {
			return adminv1.ScaleRequest{AutoScaling: &hub.NodePoolAutoScaling{Min: low, Max: high}}
		}
		return adminv1.ScaleRequest{Replicas: &replicas}
	}, func(operation *adminv1.Operation) error {
		var result adminv1.ScaleResult
		if err := adminclient.DecodeResult(operation, &result); err != nil {
			return err
		}
		_, err := fmt.Fprintf(e.out, "node pool scaled by ARM operation %s, generation %d\n", result.ARMOperationID, result.Generation)
		return err
	})
	request, check := c.RunE, c.PreRunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if asSRE {
			return request(c, args)
		}
		if err := customer.Flags().Set("no-wait", flags.Lookup("no-wait").Value.String()); err != nil {
			return err
		}
		return customer.RunE(c, args)
	}
	c.PreRunE = func(c *cobra.Command, args []string) error {
		for _, name := range []string{"max", "reason", "as", "admin-endpoint", "admin-audience", "output"} {
			if !asSRE && flags.Changed(name) {
				return fmt.Errorf("--%s requires --as-sre", name)
			}
		}
		return check(c, args)
	}
	return c
}
