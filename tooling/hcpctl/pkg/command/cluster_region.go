package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// regionList holds the flags of a list of the clusters of the region.
type regionList struct {
	region, notReady bool
	olderThan        time.Duration
	concerns, phases []string
	shard, version   string
	limit            int
}

// addRegionList adds the flags that make the command `cluster list` list the clusters of all subscriptions through admin.
func (e *environment) addRegionList(c *cobra.Command) *cobra.Command {
	l := &regionList{limit: 500}
	flags := c.Flags()
	flags.BoolVar(&l.region, "region", false, "list the clusters of all subscriptions, through admin")
	flags.BoolVar(&l.notReady, "not-ready", false, "with --region: only clusters that are not in their desired state, those that have waited longest first")
	flags.DurationVar(&l.olderThan, "older-than", 0, "with --not-ready: only clusters that have waited at least this `duration`, for example 10m")
	flags.StringSliceVar(&l.concerns, "concern", nil, "with --not-ready: only this `LAYER` or LAYER/STATE, for example node-pool/WaitingForNodes; repeatable")
	flags.StringVar(&l.shard, "shard", "", "with --region: only clusters on this provision `shard`")
	flags.StringVar(&l.version, "version", "", "with --region: only clusters that have this `version` or are being changed to it, for example 4.19 or 4.19.3")
	flags.StringSliceVar(&l.phases, "phase", nil, "with --region, without --not-ready: only clusters in this `phase` of Cluster Service, for example Installing; repeatable")
	addLimit(c, &l.limit)
	flags.Lookup("limit").Usage = "with --region: maximum `number` of clusters"
	alsoCheck(c, func(c *cobra.Command, _ []string) error { return l.validate(c) })
	list := c.RunE
	e.addAdminFlags(c)
	c.Long = `List the clusters of a resource group. STATE is ARM's provisioningState, the result of the last operation. A cluster whose last
operation succeeded can be in a state other than the desired one.

With --region list the clusters of all subscriptions, as an SRE. With --not-ready list those that are not in their desired state
with what they wait for: the cluster itself, or else the child that has waited longest. VERDICT is Ready only if neither the cluster
nor one of its node pools waits for anything.`
	c.RunE = func(c *cobra.Command, args []string) error {
		if !l.region {
			return list(c, args)
		}
		client, err := e.adminClient()
		if err != nil {
			return err
		}
		return e.listRegion(c.Context(), client, l)
	}
	return c
}

// validate returns an error for flags that do not fit together.
func (l *regionList) validate(c *cobra.Command) error {
	for _, needs := range []struct {
		flag string
		set  bool
		on   string
	}{
		{"region", l.notReady, "not-ready"},
		{"region", l.shard != "", "shard"},
		{"region", l.version != "", "version"},
		{"region", len(l.phases) > 0, "phase"},
		{"region", c.Flags().Changed("as"), "as"},
		{"region", c.Flags().Changed("admin-endpoint"), "admin-endpoint"},
		{"region", c.Flags().Changed("admin-audience"), "admin-audience"},
		{"not-ready", c.Flags().Changed("older-than"), "older-than"},
		{"not-ready", len(l.concerns) > 0, "concern"},
	} {
		if needs.set && !c.Flags().Changed(needs.flag) {
			return fmt.Errorf("--%s requires --%s", needs.on, needs.flag)
		}
	}
	if l.region && c.Flags().Changed("all") {
		return errors.New("--region and --all exclude each other")
	}
	if l.notReady && len(l.phases) > 0 {
		return errors.New("--not-ready and --phase exclude each other")
	}
	if l.olderThan < 0 {
		return fmt.Errorf("--older-than: %s is negative", l.olderThan)
	}
	return nil
}

// listRegion prints the clusters of the region.
func (e *environment) listRegion(ctx context.Context, client *adminclient.Client, l *regionList) error {
	clusters, more, err := adminclient.List(ctx, client, adminv1.ReadClusters, adminclient.Query{
		"shard": l.shard, "version": l.version, "phase": l.phases, "notReady": l.notReady, "olderThan": l.olderThan, "concern": l.concerns,
	}, l.limit)
	if err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.err, "the region has more such clusters; use --limit to list more than %d\n", l.limit)
	}
	row := clusterRow
	if l.notReady {
		row = func(c adminv1.Cluster) display.Row { return waitingRow(c, time.Now()) }
	}
	return printList(e, clusters, row)
}

// waitingRow returns the row of a cluster that is not in its desired state.
func waitingRow(c adminv1.Cluster, now time.Time) display.Row {
	concern := adminv1.ClusterConcern{}
	if c.Concern != nil {
		concern = *c.Concern
	}
	subject := strings.TrimPrefix(strings.TrimPrefix(concern.SubjectID, c.ResourceID), "/")
	return display.Row{{"NAME", c.Name}, {"AGE", now.Sub(concern.Since).Round(time.Second).String()}, {"CONCERN", concern.Layer + "/" + concern.State}, {"SUBJECT", subject},
		{"VERDICT", c.Verdict}, {"VERSION", c.Version}, {"SHARD", c.ProvisionShard}, {"RESOURCE ID", c.ResourceID}}
}
