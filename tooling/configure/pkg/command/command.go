// Package command holds the commands of configure, which are also those of `hcpctl config`. Results go to the output stream of the
// command; errors are returned.
package command

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

type environment struct{ dir string }

// New returns the command tree with the given name of its root.
func New(name string) *cobra.Command {
	e := &environment{}
	root := &cobra.Command{
		Use:   name,
		Short: "Render, validate and explain the configuration of deployments",
		Long: `Render, validate and explain the configuration of deployments.

The configuration is in the folder config of a checkout. A target is CLOUD/ENVIRONMENT/REGION, or CLOUD/ENVIRONMENT/REGION/STAMP for
one management cluster. An error names the file, the line, the key and the layer.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&e.dir, "config-dir", "", "`folder` with the configuration (default: config in the checkout)")
	root.AddCommand(e.list(), e.render(), e.validate(), e.explain(), e.diff())
	return root
}

func (e *environment) open() (*deployment.Configuration, error) {
	dir := e.dir
	if dir == "" {
		found, err := deployment.Find()
		if err != nil {
			return nil, err
		}
		dir = found
	}
	return deployment.Open(dir)
}

func (e *environment) list() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the regions and stamps", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		configuration, err := e.open()
		if err != nil {
			return err
		}
		for _, target := range configuration.Targets(nil) {
			fmt.Fprintln(c.OutOrStdout(), target)
		}
		return nil
	}}
}

func (e *environment) render() *cobra.Command {
	var write, check, deploy bool
	var allowed []string
	c := &cobra.Command{
		Use:   "render [TARGET]",
		Short: "Print the configuration of a region or stamp, or write those of all",
		Long: `Print the configuration of a region or stamp as YAML, or write those of all targets to config/rendered.

With --write, a change that would replace a data store, or remove a region or stamp, is refused unless --allow-loss names it.`,
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			switch {
			case (len(args) == 1) == (write || check):
				return errors.New("name a TARGET, or set --write or --check for all targets")
			case len(allowed) > 0 && !write:
				return errors.New("--allow-loss: needs --write")
			case deploy && len(args) == 0:
				return errors.New("--deploy: needs a TARGET")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := e.open()
			if err != nil {
				return err
			}
			switch {
			case write:
				return writeAll(c.OutOrStdout(), configuration, allowed)
			case check:
				return checkAll(configuration)
			}
			return print(c.OutOrStdout(), configuration, args[0], deploy)
		},
	}
	c.Flags().BoolVar(&write, "write", false, "write all targets to config/rendered")
	c.Flags().BoolVar(&check, "check", false, "fail if config/rendered is not up to date")
	c.Flags().BoolVar(&deploy, "deploy", false, "fail if the target lacks a key that a deployment needs, for example the digest of an image")
	c.Flags().StringArrayVar(&allowed, "allow-loss", nil, "allow --write to change the key of a data store, `TARGET:KEY`, or to remove a TARGET; repeat it for several")
	c.MarkFlagsMutuallyExclusive("write", "check")
	return c
}

func print(out io.Writer, configuration *deployment.Configuration, name string, deploy bool) error {
	target, err := layer.ParseTarget(name)
	if err != nil {
		return err
	}
	values, err := configuration.Render(target)
	if err != nil {
		return err
	}
	if missing := configuration.Missing(target, values); deploy && len(missing) > 0 {
		return missing.Err()
	}
	text, err := deployment.YAML(values)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

func writeAll(out io.Writer, configuration *deployment.Configuration, allowed []string) error {
	all, err := configuration.CheckAll()
	if err != nil {
		return err
	}
	changed, err := configuration.Write(all, allowed)
	for _, name := range changed {
		fmt.Fprintln(out, "wrote", path.Join(deployment.RenderedFolder, name))
	}
	return err
}

func checkAll(configuration *deployment.Configuration) error {
	all, err := configuration.CheckAll()
	if err != nil {
		return err
	}
	stale, err := configuration.Stale(all)
	if err == nil && len(stale) > 0 {
		err = fmt.Errorf("config/%s is not up to date: %s; run `hcpctl config render --write`", deployment.RenderedFolder, strings.Join(stale, ", "))
	}
	return err
}

func (e *environment) validate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate [TARGET]",
		Short: "Check one region or stamp, or all of them",
		Long: `Check one region or stamp against schema and rules. Without TARGET, check all of them, and that names are unique among them.

The command prints one line for each problem.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := e.open()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				target, err := layer.ParseTarget(args[0])
				if err == nil {
					_, err = configuration.Render(target)
				}
				return err
			}
			all, err := configuration.CheckAll()
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "%d regions and stamps are valid\n", len(all))
			}
			return err
		},
	}
}

func (e *environment) diff() *cobra.Command {
	var resolved bool
	c := &cobra.Command{
		Use:   "diff FIRST THEN",
		Short: "Compare two environments, regions or stamps",
		Long: `Compare two environments, regions or stamps, key by key, with the file and line of each value.

The command compares what the layers contain, so that ${region} does not make every name different. --resolved compares the values
in effect.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := e.open()
			if err != nil {
				return err
			}
			var targets [2]layer.Target
			for i, name := range args {
				if targets[i], err = layer.ParseTarget(name); err != nil {
					return err
				}
			}
			found, err := configuration.Diff(targets[0], targets[1], resolved)
			if err != nil {
				return err
			}
			return printDifferences(c.OutOrStdout(), args, found)
		},
	}
	c.Flags().BoolVar(&resolved, "resolved", false, "compare the values in effect, of regions or stamps")
	return c
}

func printDifferences(out io.Writer, names []string, found []deployment.Difference) error {
	if len(found) == 0 {
		fmt.Fprintf(out, "%s and %s do not differ\n", names[0], names[1])
		return nil
	}
	for _, d := range found {
		fmt.Fprintln(out, d.Key)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for i, n := range []*document.Node{d.First, d.Then} {
			value, origin := "not set", ""
			if n != nil {
				value, origin = deployment.String(n), n.Origin.String()
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\n", names[i], value, origin)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
