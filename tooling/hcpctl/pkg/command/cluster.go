package command

import (
	"context"
	"errors"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
	"github.com/spf13/cobra"
)

func (e *environment) cluster() *cobra.Command {
	customers := []*cobra.Command{
		e.clusterCreate(), e.get(clusters()), e.clusterList(), e.clusterUpdate(), e.delete(clusters(), "Delete a cluster with its node pools, and wait until it is gone"),
		e.clusterWatch(), e.clusterCredential(), e.clusterKubeconfig(),
	}
	engineers := []*cobra.Command{e.clusterFind(), e.clusterDump(), e.clusterPause(), e.clusterResume(), e.clusterRetry(), e.clusterForce(), e.clusterSetSize()}
	c := group("cluster", "Work with clusters, through Azure Resource Manager", slices.Concat(customers, engineers)...)
	c.AddGroup(&cobra.Group{ID: forCustomers, Title: "As a customer, through Azure Resource Manager:"}, &cobra.Group{ID: forSREs, Title: "As an SRE, any cluster of the region:"})
	for _, customer := range customers {
		customer.GroupID = forCustomers
	}
	for _, engineer := range engineers {
		engineer.GroupID = forSREs
	}
	e.addARMFlags(c)
	return c
}

func (e *environment) clusterCreate() *cobra.Command {
	var version, channel string
	var tags []string
	c := e.create(clusters(), func(names []string, location string) (armclient.Resource, error) {
		return clusterTemplate(e.arm.Subscription, e.arm.Group, names[0], location, version, channel), nil
	}, func(body armclient.Resource) (err error) {
		if len(tags) > 0 {
			body["tags"], err = parseTags(tags)
		}
		return err
	})
	c.Long = `Create a cluster and wait until it is there.

Without --file the cluster gets the defaults of the api-version, and subnets and identities that are named after it;
a local region does not ask Azure whether they exist. With --file the body of the request is that file, in YAML or JSON.`
	c.Flags().StringVar(&version, "version", "4.20", "OpenShift `version` as MAJOR.MINOR")
	c.Flags().StringVar(&channel, "channel-group", "stable", "channel `group`")
	c.Flags().StringArrayVar(&tags, "tag", nil, "tag as `KEY=VALUE`; may be given again")
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

func (e *environment) clusterList() *cobra.Command {
	var everywhere bool
	k := clusters()
	k.list = func(ctx context.Context, client *armclient.Client, _ []string) ([]armclient.Resource, error) {
		return client.Clusters(ctx, everywhere)
	}
	c := e.list(k, "List the clusters of the resource group")
	c.Flags().BoolVarP(&everywhere, "all", "A", false, "of the whole subscription")
	return c
}

func (e *environment) clusterUpdate() *cobra.Command {
	var tags []string
	c := e.operate(clusters(), clusters().of("update")+" --tag KEY=VALUE", "Change a cluster's tags",
		func(ctx context.Context, client *armclient.Client, id string, _ []string) (armclient.Operation, error) {
			changed, err := parseTags(tags)
			if err != nil {
				return nil, err
			}
			// ARM merges tags as a whole, so that the others must be sent along.
			current, err := client.Get(ctx, id)
			if err != nil {
				return nil, err
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
			return client.Patch(ctx, id, armclient.Resource{"tags": merged})
		})
	c.Flags().StringArrayVar(&tags, "tag", nil, "tag as `KEY=VALUE`, or KEY- to remove one; may be given again")
	c.PreRunE = func(*cobra.Command, []string) error {
		if len(tags) == 0 {
			return errors.New("--tag is required")
		}
		return nil
	}
	return c
}

func (e *environment) clusterWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch NAME", Short: "Show a cluster's state until it is settled", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(clusters()),
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
administrator. What customers use is 'hcpctl cluster credential request'.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeNames(clusters()),
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
			kubeconfig, err := management.Kubeconfig(c.Context(), endpoints.Kubeconfigs, field(resource, "id"))
			if err != nil {
				return err
			}
			return e.writeSecret(file, kubeconfig)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`file` to write it to, readable by its owner only")
	return c
}
