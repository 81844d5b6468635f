package command

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
	"github.com/spf13/cobra"
)

// completionTimeout bounds how long a shell waits for the names of clusters.
const completionTimeout = 3 * time.Second

func (e *environment) cluster() *cobra.Command {
	c := group("cluster", "Work with clusters, through Azure Resource Manager",
		e.clusterCreate(), e.clusterGet(), e.clusterList(), e.clusterUpdate(), e.clusterDelete(), e.clusterWatch(), e.clusterKubeconfig())
	e.addARMFlags(c)
	return c
}

func (e *environment) clusterCreate() *cobra.Command {
	var version, channel, file string
	var tags []string
	var noWait bool
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a cluster and wait until it is there",
		Long: `Create a cluster and wait until it is there.

Without --file the cluster gets the defaults of the api-version, and subnets and identities that are named after it;
a local region does not ask Azure whether they exist. With --file the body of the request is that file, in YAML or JSON.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			location, err := e.location()
			if err != nil {
				return err
			}
			body := clusterTemplate(e.arm.Subscription, e.arm.Group, args[0], location, version, channel)
			if file != "" {
				if body, err = readBody(file); err != nil {
					return err
				}
			}
			if len(tags) > 0 {
				if body["tags"], err = parseTags(tags); err != nil {
					return err
				}
			}
			id := client.ClusterID(args[0])
			operation, err := client.Put(c.Context(), id, body)
			if err != nil || noWait {
				return err
			}
			return e.await(c.Context(), client, operation, id, "cluster "+args[0])
		},
	}
	c.Flags().StringVar(&version, "version", "4.20", "OpenShift `version` as MAJOR.MINOR")
	c.Flags().StringVar(&channel, "channel-group", "stable", "channel `group`")
	c.Flags().StringVarP(&file, "file", "f", "", "`file` with the resource, instead of the flags above")
	c.Flags().StringArrayVar(&tags, "tag", nil, "tag as `KEY=VALUE`; may be given again")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

// location is the local region's; with another --endpoint it is what a local region has by default.
func (e *environment) location() (string, error) {
	if e.arm.Endpoint != "" {
		return local.DefaultLocation, nil
	}
	endpoints, err := e.endpoints()
	return endpoints.Location, err
}

func (e *environment) clusterGet() *cobra.Command {
	c := &cobra.Command{
		Use: "get NAME", Short: "Show a cluster", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			resource, err := client.Get(c.Context(), client.ClusterID(args[0]))
			if err != nil {
				return err
			}
			if e.output != "table" {
				return display.Object(e.out, e.output, resource)
			}
			if err := clusterTable(e, []armclient.Resource{resource}); err != nil {
				return err
			}
			for _, condition := range conditions(resource) {
				fmt.Fprintln(e.out, "  "+condition)
			}
			return nil
		},
	}
	e.addOutputFlag(c)
	return c
}

func (e *environment) clusterList() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "list", Short: "List the clusters of the resource group", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			resources, err := client.Clusters(c.Context(), everywhere)
			if err != nil {
				return err
			}
			if e.output != "table" {
				return display.Object(e.out, e.output, resources)
			}
			return clusterTable(e, resources)
		},
	}
	c.Flags().BoolVarP(&everywhere, "all", "A", false, "of the whole subscription")
	e.addOutputFlag(c)
	return c
}

func clusterTable(e *environment, resources []armclient.Resource) error {
	var rows [][]string
	for _, r := range resources {
		rows = append(rows, []string{
			at(r, "name"), groupOf(at(r, "id")), at(r, "location"), at(r, "properties", "version", "id"),
			at(r, "properties", "provisioningState"), at(r, "properties", "api", "url"),
		})
	}
	return display.Table(e.out, []string{"NAME", "RESOURCE GROUP", "LOCATION", "VERSION", "STATE", "API"}, rows)
}

func (e *environment) clusterUpdate() *cobra.Command {
	var tags []string
	var noWait bool
	c := &cobra.Command{
		Use: "update NAME --tag KEY=VALUE", Short: "Change a cluster's tags", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			if len(tags) == 0 {
				return errors.New("--tag is required")
			}
			changed, err := parseTags(tags)
			if err != nil {
				return err
			}
			client, err := e.client()
			if err != nil {
				return err
			}
			id := client.ClusterID(args[0])
			// ARM merges tags as a whole, so that the others must be sent along.
			current, err := client.Get(c.Context(), id)
			if err != nil {
				return err
			}
			merged := map[string]any{}
			if before, ok := current["tags"].(map[string]any); ok {
				merged = before
			}
			for key, value := range changed {
				if value == nil {
					delete(merged, key)
					continue
				}
				merged[key] = value
			}
			operation, err := client.Patch(c.Context(), id, armclient.Resource{"tags": merged})
			if err != nil || noWait {
				return err
			}
			return e.await(c.Context(), client, operation, id, "cluster "+args[0])
		},
	}
	c.Flags().StringArrayVar(&tags, "tag", nil, "tag as `KEY=VALUE`, or KEY- to remove one; may be given again")
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

func (e *environment) clusterDelete() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster with its node pools, and wait until it is gone", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			id := client.ClusterID(args[0])
			operation, err := client.Delete(c.Context(), id)
			if err != nil || noWait {
				return err
			}
			return e.await(c.Context(), client, operation, id, "cluster "+args[0])
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return when the request was accepted")
	return c
}

func (e *environment) clusterWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch NAME", Short: "Show a cluster's state until it is settled", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			return e.watch(c.Context(), client, client.ClusterID(args[0]), "cluster "+args[0])
		},
	}
}

func (e *environment) clusterKubeconfig() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print the administrator's kubeconfig of a cluster of the local region",
		Long: `Print the administrator's kubeconfig of a cluster of the local region.

This is the only command that looks behind Azure Resource Manager: it reads the kubeconfig from the management cluster
that the cluster is hosted on, and so works with a local region only. It is a secret: whoever has it is the cluster's
administrator.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeClusters,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := e.client()
			if err != nil {
				return err
			}
			resource, err := client.Get(c.Context(), client.ClusterID(args[0]))
			if err != nil {
				return err
			}
			endpoints, err := e.endpoints()
			if err != nil {
				return err
			}
			kubeconfig, err := management.Kubeconfig(c.Context(), endpoints.Kubeconfigs, at(resource, "id"))
			if err != nil {
				return err
			}
			if file != "" {
				return os.WriteFile(file, kubeconfig, 0o600)
			}
			_, err = e.out.Write(kubeconfig)
			return err
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`file` to write it to, readable by its owner only")
	return c
}
