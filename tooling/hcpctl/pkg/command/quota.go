package command

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) quota() *cobra.Command {
	c := group("quota", "Show and set how many clusters a subscription may have", e.quotaShow(), e.quotaSet())
	c.Long = `Show and set how many clusters a subscription may have in the region. The runbook is docs/operators/quotas.md.`
	return c
}

func (e *environment) quotaShow() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "show SUBSCRIPTION", Short: "Show the quota of a subscription and how much of it is used", Args: cobra.ExactArgs(1)},
		func(ctx context.Context, client *adminclient.Client, args []string) error {
			quota, err := client.Quota(ctx, args[0])
			if err != nil {
				return err
			}
			return e.printAs(quota, func() error { return e.quotaTable(quota) })
		})
	e.addOutputFlag(c)
	return c
}

func (e *environment) quotaTable(quota *adminv1.Quota) error {
	limit := "default of the region"
	if quota.Clusters != nil {
		limit = strconv.Itoa(*quota.Clusters)
	}
	return display.Table(e.out, []string{"SUBSCRIPTION", "CLUSTERS", "QUOTA", "SET BY OPERATION"}, [][]string{{quota.SubscriptionID, strconv.Itoa(quota.Used), limit, quota.OperationID}})
}

func (e *environment) quotaSet() *cobra.Command {
	var clusters int
	request := &adminv1.SetQuotaRequest{}
	c := &cobra.Command{
		Use: "set SUBSCRIPTION", Short: "Set the quota of a subscription, or reset it to the default of the region", Args: cobra.ExactArgs(1),
		Long: `Set how many clusters a subscription may have in the region, or reset it to the default. A quota below the number of existing clusters
deletes nothing; it prevents new clusters.`,
	}
	c = e.requestAndShow(c, adminv1.ActionQuotaSet, func() any {
		if c.Flags().Changed("clusters") {
			request.Clusters = &clusters
		}
		return request
	}, func(operation *adminv1.Operation) error {
		_, err := fmt.Fprintf(e.out, "the quota of subscription %s is set\n", operation.Target.ID)
		return err
	})
	c.Flags().IntVar(&clusters, "clusters", 0, "`number` of clusters")
	c.Flags().BoolVar(&request.UseDefault, "use-default", false, "use the default of the region")
	c.MarkFlagsMutuallyExclusive("clusters", "use-default")
	c.MarkFlagsOneRequired("clusters", "use-default")
	return c
}
