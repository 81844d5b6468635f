package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) quota() *cobra.Command {
	c := group("quota", "Show and set how many clusters a subscription may have", e.quotaShow(), e.quotaSet())
	c.Long = `Show and set how many clusters a subscription may have in the region. The runbook is docs/operators/quotas.md.`
	return c
}

func (e *environment) quotaShow() *cobra.Command {
	return view(e, &cobra.Command{Use: "show SUBSCRIPTION", Short: "Show the quota of a subscription and how much of it is used"},
		adminv1.ReadQuota, noQuery, asTable(e, func(quota *adminv1.Quota) error { return display.List(e.out, []adminv1.Quota{*quota}, quotaRow) }))
}

func quotaRow(quota adminv1.Quota) display.Row {
	limit := "default of the region"
	if quota.Clusters != nil {
		limit = strconv.Itoa(*quota.Clusters)
	}
	return display.Row{{"SUBSCRIPTION", quota.SubscriptionID}, {"CLUSTERS", strconv.Itoa(quota.Used)}, {"QUOTA", limit}, {"SET BY OPERATION", quota.OperationID}}
}

func (e *environment) quotaSet() *cobra.Command {
	var clusters int
	request := &adminv1.SetQuotaRequest{}
	c := &cobra.Command{
		Use: "set SUBSCRIPTION", Short: "Set the quota of a subscription, or reset it to the default of the region",
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
