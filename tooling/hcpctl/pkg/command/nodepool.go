package command

import (
	"context"
	"errors"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

const defaultVMSize = "Standard_D8s_v3"

func (e *environment) nodePool() *cobra.Command {
	c := group("nodepool", "Work with the node pools of a cluster, through Azure Resource Manager",
		e.nodePoolCreate(), e.get(nodePools()), e.list(nodePools(), "List a cluster's node pools"), e.nodePoolScale(),
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
