package command

import (
	"context"
	"errors"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

const defaultVMSize = "Standard_D8s_v3"

func (e *environment) nodePool() *cobra.Command {
	c := group("nodepool", "Work with the node pools of a cluster, through Azure Resource Manager",
		e.nodePoolCreate(), e.nodePoolGet(), e.nodePoolList(), e.nodePoolScale(), e.nodePoolDelete())
	e.addARMFlags(c)
	return c
}

func (e *environment) nodePoolCreate() *cobra.Command {
	var vmSize, file string
	var replicas int
	var noWait bool
	c := &cobra.Command{
		Use: "create CLUSTER NAME", Short: "Create a node pool and wait until it is there", Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			location, err := e.location()
			if err != nil {
				return err
			}
			body := nodePoolTemplate(location, vmSize, replicas)
			if file != "" {
				if body, err = readBody(file); err != nil {
					return err
				}
			}
			return e.do(c.Context(), client, client.NodePoolID(args[0], args[1]), "node pool "+args[1], noWait, func(id string) (armclient.Operation, error) {
				return client.Put(c.Context(), id, body)
			})
		},
	}
	c.Flags().IntVar(&replicas, "replicas", 2, "`number` of nodes")
	c.Flags().StringVar(&vmSize, "vm-size", defaultVMSize, "virtual machine `size`")
	c.Flags().StringVarP(&file, "file", "f", "", "`file` with the resource, instead of the flags above")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

// do begins an operation on a resource and waits for it.
func (e *environment) do(ctx context.Context, client *armclient.Client, id, what string, noWait bool, begin func(id string) (armclient.Operation, error)) error {
	operation, err := begin(id)
	if err != nil || noWait {
		return err
	}
	return e.await(ctx, client, operation, id, what)
}

func (e *environment) nodePoolGet() *cobra.Command {
	c := &cobra.Command{
		Use: "get CLUSTER NAME", Short: "Show a node pool", Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeNodePools,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			resource, err := client.Get(c.Context(), client.NodePoolID(args[0], args[1]))
			if err != nil {
				return err
			}
			if e.output != "table" {
				return display.Object(e.out, e.output, resource)
			}
			return nodePoolTable(e, []armclient.Resource{resource})
		},
	}
	e.addOutputFlag(c)
	return c
}

func (e *environment) nodePoolList() *cobra.Command {
	c := &cobra.Command{
		Use: "list CLUSTER", Short: "List a cluster's node pools", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			resources, err := client.NodePools(c.Context(), args[0])
			if err != nil {
				return err
			}
			if e.output != "table" {
				return display.Object(e.out, e.output, resources)
			}
			return nodePoolTable(e, resources)
		},
	}
	e.addOutputFlag(c)
	return c
}

func nodePoolTable(e *environment, resources []armclient.Resource) error {
	var rows [][]string
	for _, r := range resources {
		nodes := at(r, "properties", "replicas")
		if low := at(r, "properties", "autoScaling", "min"); low != "" {
			nodes = low + "–" + at(r, "properties", "autoScaling", "max")
		}
		rows = append(rows, []string{
			at(r, "name"), at(r, "properties", "version", "id"), at(r, "properties", "platform", "vmSize"), nodes,
			at(r, "properties", "provisioningState"),
		})
	}
	return display.Table(e.out, []string{"NAME", "VERSION", "VM SIZE", "NODES", "STATE"}, rows)
}

func (e *environment) nodePoolScale() *cobra.Command {
	var replicas int
	var noWait bool
	c := &cobra.Command{
		Use: "scale CLUSTER NAME --replicas N", Short: "Change a node pool's number of nodes", Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeNodePools,
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("replicas") {
				return errors.New("--replicas is required")
			}
			client, err := e.client()
			if err != nil {
				return err
			}
			body := armclient.Resource{"properties": map[string]any{"replicas": replicas}}
			return e.do(c.Context(), client, client.NodePoolID(args[0], args[1]), "node pool "+args[1], noWait, func(id string) (armclient.Operation, error) {
				return client.Patch(c.Context(), id, body)
			})
		},
	}
	c.Flags().IntVar(&replicas, "replicas", 0, "`number` of nodes")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

func (e *environment) nodePoolDelete() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use: "delete CLUSTER NAME", Short: "Delete a node pool and wait until it is gone", Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeNodePools,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			return e.do(c.Context(), client, client.NodePoolID(args[0], args[1]), "node pool "+args[1], noWait, func(id string) (armclient.Operation, error) {
				return client.Delete(c.Context(), id)
			})
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

// completeClusters completes the first argument with the names of clusters.
func (e *environment) completeClusters(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return e.complete(c, prefix, func(ctx context.Context, client *armclient.Client) ([]armclient.Resource, error) {
		return client.Clusters(ctx, false)
	})
}

// completeNodePools completes the first argument with clusters and the second with the cluster's node pools.
func (e *environment) completeNodePools(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return e.completeClusters(c, args, prefix)
	}
	return e.complete(c, prefix, func(ctx context.Context, client *armclient.Client) ([]armclient.Resource, error) {
		return client.NodePools(ctx, args[0])
	})
}

func (e *environment) complete(c *cobra.Command, prefix string, list func(context.Context, *armclient.Client) ([]armclient.Resource, error)) ([]string, cobra.ShellCompDirective) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	client, err := e.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	resources, err := list(ctx, client)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, resource := range resources {
		if name := at(resource, "name"); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
