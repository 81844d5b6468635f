// Package command holds the commands of rollout. Results go to the output stream of the command; errors are returned.
package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

type environment struct{ configDir string }

// New returns the command tree.
func New() *cobra.Command {
	e := &environment{}
	root := &cobra.Command{
		Use:   "rollout",
		Short: "Deploy a region with the pipelines of its service groups",
		Long: `Deploy a region with the pipelines of its service groups.

The topology and the pipelines are files of a checkout. An error names the file, the line and the path in the file.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&e.configDir, "config-dir", "", "`folder` with the configuration (default: config in the checkout)")
	root.AddCommand(e.check(), e.graph())
	return root
}

// open reads configuration, topology and pipelines. The checkout is the folder that contains the configuration.
func (e *environment) open() (*deployment.Configuration, *definition.Topology, error) {
	dir := e.configDir
	if dir == "" {
		found, err := deployment.Find()
		if err != nil {
			return nil, nil, err
		}
		dir = found
	}
	configuration, err := deployment.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	topology, err := definition.Open(filepath.Dir(dir), configuration.Schema)
	return configuration, topology, err
}

func (e *environment) check() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the topology and all pipelines", Args: cobra.NoArgs,
		Long: `Check the topology and all pipelines: unknown references, cycles, keys that the configuration does not have, and secrets that are
not references. The command prints one line for each problem.`,
		RunE: func(c *cobra.Command, _ []string) error {
			_, topology, err := e.open()
			if err != nil {
				return err
			}
			steps := 0
			for _, g := range topology.Groups {
				steps += len(g.Steps)
			}
			fmt.Fprintf(c.OutOrStdout(), "%d service groups with %d steps are valid\n", len(topology.Groups), steps)
			return nil
		},
	}
}

func (e *environment) graph() *cobra.Command {
	return &cobra.Command{
		Use: "graph", Short: "Print the graph of all steps in the DOT language", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, topology, err := e.open()
			if err != nil {
				return err
			}
			return topology.DOT(c.OutOrStdout())
		},
	}
}
