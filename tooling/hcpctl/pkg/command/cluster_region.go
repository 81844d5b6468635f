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
	region bool
	filter adminclient.FleetFilter
	limit  listLimit
}

// addRegionList adds the flags that make the command `cluster list` list the clusters of all subscriptions through admin.
func (e *environment) addRegionList(c *cobra.Command) *cobra.Command {
	l := &regionList{}
	flags := c.Flags()
	flags.BoolVar(&l.region, "region", false, "list the clusters of all subscriptions, through admin")
	flags.BoolVar(&l.filter.NotReady, "not-ready", false, "with --region: only clusters that are not in their desired state, those that have waited longest first")
	flags.DurationVar(&l.filter.OlderThan, "older-than", 0, "with --not-ready: only clusters that have waited at least this `duration`, for example 10m")
	flags.StringSliceVar(&l.filter.Concerns, "concern", nil, "with --not-ready: only this `LAYER` or LAYER/STATE, for example node-pool/WaitingForNodes; repeatable")
	flags.StringVar(&l.filter.Shard, "shard", "", "with --region: only clusters on this provision `shard`")
	flags.StringVar(&l.filter.Version, "version", "", "with --region: only clusters that have this `version` or are being changed to it, for example 4.19 or 4.19.3")
	flags.StringSliceVar(&l.filter.Phases, "phase", nil, "with --region, without --not-ready: only clusters in this `phase` of Cluster Service, for example Installing; repeatable")
	l.limit.add(c, 500)
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
		{"region", l.filter.NotReady, "not-ready"},
		{"region", l.filter.Shard != "", "shard"},
		{"region", l.filter.Version != "", "version"},
		{"region", len(l.filter.Phases) > 0, "phase"},
		{"region", c.Flags().Changed("as"), "as"},
		{"region", c.Flags().Changed("admin-endpoint"), "admin-endpoint"},
		{"region", c.Flags().Changed("admin-audience"), "admin-audience"},
		{"not-ready", c.Flags().Changed("older-than"), "older-than"},
		{"not-ready", len(l.filter.Concerns) > 0, "concern"},
	} {
		if needs.set && !c.Flags().Changed(needs.flag) {
			return fmt.Errorf("--%s requires --%s", needs.on, needs.flag)
		}
	}
	if l.region && c.Flags().Changed("all") {
		return errors.New("--region and --all exclude each other")
	}
	if l.filter.NotReady && len(l.filter.Phases) > 0 {
		return errors.New("--not-ready and --phase exclude each other")
	}
	if l.filter.OlderThan < 0 {
		return fmt.Errorf("--older-than: %s is negative", l.filter.OlderThan)
	}
	return nil
}

// listRegion prints the clusters of the region.
func (e *environment) listRegion(ctx context.Context, client *adminclient.Client, l *regionList) error {
	clusters, more, err := client.FleetClusters(ctx, l.filter, l.limit.most)
	if err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.err, "the region has more such clusters; use --limit to list more than %d\n", l.limit.most)
	}
	return e.printAs(clusters, func() error {
		var rows [][]string
		for _, cluster := range clusters {
			if l.filter.NotReady {
				rows = append(rows, waitingRow(cluster, time.Now()))
			} else {
				rows = append(rows, clusterRow(cluster))
			}
		}
		if l.filter.NotReady {
			return display.Table(e.out, []string{"NAME", "AGE", "CONCERN", "SUBJECT", "VERDICT", "VERSION", "SHARD", "RESOURCE ID"}, rows)
		}
		return display.Table(e.out, []string{"NAME", "STATE", "VERDICT", "VERSION", "SHARD", "CLUSTER ID", "RESOURCE ID"}, rows)
	})
}

// waitingRow returns the row of a cluster that is not in its desired state.
func waitingRow(c adminv1.Cluster, now time.Time) []string {
	concern := adminv1.ClusterConcern{}
	if c.Concern != nil {
		concern = *c.Concern
	}
	subject := strings.TrimPrefix(strings.TrimPrefix(concern.SubjectID, c.ResourceID), "/")
	return []string{c.Name, now.Sub(concern.Since).Round(time.Second).String(), concern.Layer + "/" + concern.State, subject, c.Verdict, c.Version, c.ProvisionShard, c.ResourceID}
}
