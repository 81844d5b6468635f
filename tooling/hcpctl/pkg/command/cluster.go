package command

import (
	"context"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
	"github.com/spf13/cobra"
)

func (e *environment) cluster() *cobra.Command {
	customers := []*cobra.Command{
		e.clusterCreate(), e.get(clusters()), e.clusterList(), e.clusterUpdate(), e.delete(clusters(), "Delete a cluster and its node pools"),
		e.clusterWatch(), e.clusterCredential(), e.clusterKubeconfig(),
	}
	engineers := []*cobra.Command{e.clusterFind(), e.clusterDump(), e.clusterJournal(), e.clusterStatus()}
	c := group("cluster", "Manage clusters", slices.Concat(customers, engineers)...)
	c.AddGroup(&cobra.Group{ID: forCustomers, Title: "Customer (through Azure Resource Manager):"}, &cobra.Group{ID: forSREs, Title: "SRE (through admin, any cluster of the region):"})
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
	tags := entryFlag{kind: "tag", form: "KEY=VALUE", parse: func(text string) (entry, bool) {
		tag, ok := parseTag(text)
		return tag, ok && !tag.remove
	}}
	c := e.create(clusters(), func(names []string, location string) (armclient.Resource, error) {
		return clusterTemplate(e.arm.Subscription, e.arm.Group, names[0], location, version, channel), nil
	}, func(body armclient.Resource) error {
		if len(tags.entries) > 0 {
			body["tags"] = tagPatch(tags.entries, nil)
		}
		return nil
	})
	c.Long = `Create a cluster and wait for the operation to complete.

Without --file the cluster has the defaults of the api-version, and subnets and identities named after it; a local region does
not check that they exist in Azure. With --file the body of the request is the file, in YAML or JSON.`
	c.Flags().StringVar(&version, "version", "4.20", "OpenShift `version` as MAJOR.MINOR")
	c.Flags().StringVar(&channel, "channel-group", "stable", "channel `group`")
	c.Flags().Var(&tags, "tag", "tag as `KEY=VALUE`; repeatable")
	return c
}

// location returns the location of the local region, or its default with another --endpoint.
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
	c := e.list(k, "List the clusters of a resource group or of the region")
	c.Flags().BoolVarP(&everywhere, "all", "A", false, "list the clusters of all resource groups")
	return e.addRegionList(c)
}

func (e *environment) clusterUpdate() *cobra.Command {
	tags := entryFlag{kind: "tag", form: setOrRemove, parse: parseTag}
	c := e.updateCommand(clusters(), func(current armclient.Resource) (armclient.Resource, error) {
		return armclient.Resource{"tags": tagPatch(tags.entries, current)}, nil
	})
	c.Flags().Var(&tags, "tag", "tag as `KEY=VALUE`, or KEY- to remove it; repeatable")
	eitherFileOr(c, "tag")
	return c
}

func (e *environment) clusterWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch NAME", Short: "Show the state of a cluster until its operation completes", ValidArgsFunction: e.completeNames(clusters()),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, args []string) error {
			return e.watch(ctx, client, client.ClusterID(args[0]), "cluster "+args[0])
		}),
	}
}

func (e *environment) clusterKubeconfig() *cobra.Command {
	var target kubeconfigTarget
	c := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print the administrator kubeconfig of a cluster of the local region",
		Long: `Print the administrator kubeconfig of a cluster of the local region.

This command bypasses Azure Resource Manager: it reads the kubeconfig from the management cluster, so it works only with a
local region. The kubeconfig is a secret that gives full access to the cluster. Customers use
'hcpctl cluster credential request' instead.

` + mergeHelp,
		ValidArgsFunction: e.completeNames(clusters()),
		RunE: with(e.client, func(ctx context.Context, client *armclient.Client, args []string) error {
			resource, err := client.Get(ctx, client.ClusterID(args[0]))
			if err != nil {
				return err
			}
			endpoints, err := e.endpoints()
			if err != nil {
				return err
			}
			kubeconfig, err := management.Kubeconfig(ctx, endpoints.Kubeconfigs, field(resource, "id"))
			if err != nil {
				return err
			}
			if kubeconfig, err = credential.WithProxy(kubeconfig, endpoints.Proxy); err != nil {
				return err
			}
			return e.writeKubeconfig(ctx, target, args[0], client.ClusterID(args[0]), kubeconfig)
		}),
	}
	target.add(c, "output `file`, readable by its owner only (default: standard output)")
	return c
}
