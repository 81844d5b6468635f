package command

import (
	"cmp"
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

// The demo cluster and its node pool.
const (
	demoCluster  = "demo"
	demoNodePool = "workers"
	demoVersion  = "4.20"
	demoReplicas = 2
)

func (e *environment) regionDemo() *cobra.Command {
	c := &cobra.Command{
		Use: "demo", Short: "Create a demo cluster with a node pool",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.ensureDefaults(c); err != nil {
				return err
			}
			return e.demo(c)
		},
	}
	return c
}

// setDefaults sets the subscription and the resource group for commands without flags for them.
func (e *environment) setDefaults() {
	e.arm.Subscription = cmp.Or(e.arm.Subscription, DefaultSubscription)
	e.arm.Group = cmp.Or(e.arm.Group, DefaultGroup)
}

// ensureDefaults creates the default subscription and resource group.
func (e *environment) ensureDefaults(c *cobra.Command) error {
	e.setDefaults()
	client, err := e.client()
	if err != nil {
		return err
	}
	location, err := e.location()
	if err != nil {
		return err
	}
	return client.Ensure(c.Context(), location)
}

// demo creates the demo cluster and node pool if they do not exist, waits for them, and prints how to use them.
func (e *environment) demo(c *cobra.Command) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	location, err := e.location()
	if err != nil {
		return err
	}
	cluster := clusterTemplate(e.arm.Subscription, e.arm.Group, demoCluster, location, demoVersion, "stable")
	if err := e.ensure(c, client, client.ClusterID(demoCluster), "cluster "+demoCluster, cluster); err != nil {
		return err
	}
	pool := nodePoolTemplate(location, defaultNodeVersion, defaultVMSize, demoReplicas)
	if err := e.ensure(c, client, client.NodePoolID(demoCluster, demoNodePool), "node pool "+demoNodePool, pool); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, `
Cluster %q is ready. To use it:

    .build/bin/hcpctl cluster kubeconfig %s -f demo.kubeconfig
    make kubectl    # if you have no kubectl
    .build/third-party/bin/kubectl --kubeconfig demo.kubeconfig get nodes

`, demoCluster, demoCluster)
	return err
}

// ensure creates a resource unless it exists, and waits for its operation.
func (e *environment) ensure(c *cobra.Command, client *armclient.Client, id, what string, body armclient.Resource) error {
	_, err := client.Get(c.Context(), id)
	if err == nil {
		return e.watch(c.Context(), client, id, what)
	}
	if !armclient.IsNotFound(err) {
		return err
	}
	operation, err := client.Create(c.Context(), id, body)
	if err != nil {
		return fmt.Errorf("creating the %s: %w", what, err)
	}
	return e.await(c.Context(), client, operation, id, what, e.commandLine("cluster", "get", demoCluster))
}
