package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/boards"
	"github.com/spf13/cobra"
)

// completionTimeout limits how long shell completion waits for names.
const completionTimeout = 3 * time.Second

// completing returns the completion of the names that list returns within completionTimeout. args are the arguments before the completed one.
func completing(list func(ctx context.Context, args []string) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		names, err := list(ctx, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes the names of resources of a kind: the name of the cluster first, then the name of the resource.
func (e *environment) completeNames(k kind) cobra.CompletionFunc {
	return completing(func(ctx context.Context, args []string) ([]string, error) {
		listed := k
		switch {
		case len(args) == len(k.names)-1:
		case len(args) == 0:
			listed = clusters()
		default:
			return nil, nil
		}
		client, err := e.client()
		if err != nil {
			return nil, err
		}
		resources, err := listed.list(ctx, client, args)
		var names []string
		for _, resource := range resources {
			names = append(names, field(resource, "name"))
		}
		return names, err
	})
}

// completeFleet completes the names of all clusters of the region.
func (e *environment) completeFleet() cobra.CompletionFunc {
	return completing(func(ctx context.Context, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		client, err := e.adminClient()
		if err != nil {
			return nil, err
		}
		clusters, err := client.Clusters(ctx, "")
		var names []string
		for _, cluster := range clusters {
			names = append(names, cluster.Name)
		}
		slices.Sort(names)
		return slices.Compact(names), err
	})
}

// completeProcesses completes the names of processes of the local region.
func (e *environment) completeProcesses() cobra.CompletionFunc {
	return completing(func(ctx context.Context, _ []string) (names []string, err error) {
		dir, err := e.stateFolder()
		if err != nil {
			return nil, err
		}
		var status local.Status
		err = control.NewClient(dir).Status(ctx, &status)
		for _, p := range status.Processes {
			names = append(names, p.Name)
		}
		return names, err
	})
}

// completeDashboards completes the names of dashboards.
func completeDashboards() cobra.CompletionFunc {
	return completing(func(context.Context, []string) (names []string, _ error) {
		for _, d := range boards.All() {
			names = append(names, d.Name)
		}
		slices.Sort(names)
		return names, nil
	})
}
