package command

import (
	"context"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

// completionTimeout limits how long shell completion waits for names.
const completionTimeout = 3 * time.Second

// completeNames completes the names of resources of a kind: the name of the cluster first, then the name of the resource.
func (e *environment) completeNames(k kind) cobra.CompletionFunc {
	return func(c *cobra.Command, names []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(names) == len(k.names)-1:
			return e.complete(c, prefix, func(ctx context.Context, client *armclient.Client) ([]armclient.Resource, error) {
				return k.list(ctx, client, names)
			})
		case len(names) == 0:
			return e.completeNames(clusters())(c, names, prefix)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
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
		if name := field(resource, "name"); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
