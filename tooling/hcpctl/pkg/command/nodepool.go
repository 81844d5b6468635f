package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

const defaultVMSize = "Standard_D8s_v3"

func (e *environment) nodePool() *cobra.Command {
	c := group("nodepool", "Work with the node pools of a cluster, through Azure Resource Manager",
		e.nodePoolCreate(), e.get(nodePools()), e.list(nodePools(), "List a cluster's node pools"), e.nodePoolScale(), e.nodePoolResize(),
		e.delete(nodePools(), "Delete a node pool and wait until it is gone"))
	e.addARMFlags(c)
	return c
}

func (e *environment) nodePoolCreate() *cobra.Command {
	var vmSize string
	var replicas int
	c := e.create(nodePools(), func(_ []string, location string) (armclient.Resource, error) {
		return nodePoolTemplate(location, vmSize, replicas), nil
	})
	c.Flags().IntVar(&replicas, "replicas", 2, "`number` of nodes")
	c.Flags().StringVar(&vmSize, "vm-size", defaultVMSize, "virtual machine `size`")
	return c
}

func (e *environment) nodePoolScale() *cobra.Command {
	var replicas int
	c := e.operate(nodePools(), nodePools().of("scale")+" --replicas N", "Change a node pool's number of nodes",
		func(ctx context.Context, client *armclient.Client, id string, _ []string) (armclient.Operation, error) {
			return client.Patch(ctx, id, armclient.Resource{"properties": map[string]any{"replicas": replicas}})
		})
	c.Flags().IntVar(&replicas, "replicas", 0, "`number` of nodes")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("replicas") {
			return errors.New("--replicas is required")
		}
		return nil
	}
	return c
}

// nodePoolResize is what cluster resize is for a node pool: the SREs' way, where scale is the customer's.
func (e *environment) nodePoolResize() *cobra.Command {
	var replicas, low, high int32
	c := &cobra.Command{
		Use: "resize CLUSTER NAME", Short: "Set the size of a node pool in the customer's place, as an SRE", Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeFleet,
		Long: `Set the size of a node pool in the customer's place, as an SRE: a number of nodes, or bounds for the autoscaler. ARM shows it as an
update of the node pool, and the customer's next update goes over it.

CLUSTER is anything that 'hcpctl cluster find' takes, as long as it means one cluster.`,
		Example: `  hcpctl nodepool resize demo workers --replicas 5 --reason "the batch does not get through" --ticket INC-42`,
	}
	flags := c.Flags()
	flags.Int32Var(&replicas, "replicas", 0, "`number` of nodes")
	flags.Int32Var(&low, "min", 0, "least `number` of nodes that the autoscaler leaves")
	flags.Int32Var(&high, "max", 0, "most `number` of nodes that it makes")
	c.MarkFlagsOneRequired("replicas", "max")
	c.MarkFlagsMutuallyExclusive("replicas", "max")
	c.MarkFlagsRequiredTogether("min", "max")
	return e.interveneAndShow(c, adminv1.Operator, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		size := adminv1.ScaleRequest{Replicas: &replicas}
		if flags.Changed("max") {
			size = adminv1.ScaleRequest{AutoScaling: &hub.NodePoolAutoScaling{Min: low, Max: high}}
		}
		return client.Scale(ctx, args[0], args[1], size)
	}, func(operation *adminv1.Operation) error {
		var result adminv1.ScaleResult
		if err := json.Unmarshal(operation.Result, &result); err != nil {
			return fmt.Errorf("reading the result of operation %s: %w", operation.ID, err)
		}
		_, err := fmt.Fprintf(e.out, "The node pool gets its size with ARM's operation %s, as generation %d.\n", result.ARMOperationID, result.Generation)
		return err
	})
}
