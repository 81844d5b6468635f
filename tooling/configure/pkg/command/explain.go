package command

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

func (e *environment) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain KEY [TARGET]",
		Short: "Show what a key means, which layer sets it, and why",
		Long: `Show what a key means and who uses it. With TARGET, show the layer that sets it for a region or stamp, the comment there, and the
values of the outer layers that it overrides. Without TARGET, show its value and layer in all regions and stamps.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			configuration, err := e.open()
			if err != nil {
				return err
			}
			key := args[0]
			if err := printMeaning(c.OutOrStdout(), configuration, key); err != nil {
				return err
			}
			if len(args) == 1 {
				return explainAll(c.OutOrStdout(), configuration, key)
			}
			target, err := layer.ParseTarget(args[1])
			if err != nil {
				return err
			}
			return explainOne(c.OutOrStdout(), configuration, key, target)
		},
	}
}

// printMeaning prints what the schema and the rules contain about a key.
func printMeaning(out io.Writer, configuration *deployment.Configuration, key string) error {
	p := configuration.Schema.Lookup(document.Split(key)...)
	if p == nil || key == "" {
		return fmt.Errorf("%w: %s: the schema has no such key", document.ErrUnknownKey, key)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, value)
		}
	}
	row("key", key)
	row("meaning", p.Description)
	row("values", p.Limits())
	row("configures", strings.Join(p.Configures, ", "))
	row("used by", strings.Join(p.UsedBy, ", "))
	row("set by", settable(p.Computed, p.Layer))
	row("rules", strings.Join(configuration.Related(key), ", "))
	return table.Flush()
}

func settable(computed bool, level string) string {
	if computed {
		return "no layer; the key is computed"
	}
	if level == layer.Levels[0] {
		return level
	}
	return layer.Levels[0] + " to " + level
}

func explainAll(out io.Writer, configuration *deployment.Configuration, key string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nTARGET\tVALUE\tLAYER\tFILE")
	for _, target := range configuration.Owners(document.Split(key)[0]) {
		values, err := configuration.Render(target)
		if err != nil {
			return err
		}
		if n := values.Get(document.Split(key)...); n != nil {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", target, deployment.String(n), n.Origin.Layer, n.Origin)
		}
	}
	return table.Flush()
}

func explainOne(out io.Writer, configuration *deployment.Configuration, key string, target layer.Target) error {
	values, err := configuration.Render(target)
	if err != nil {
		return err
	}
	n := values.Get(document.Split(key)...)
	if n == nil {
		fmt.Fprintf(out, "\n%s does not have the key.\n", target)
		for i, value := range deployment.History(values.Deletion(document.Split(key)...)) {
			printValue(out, [...]string{"deleted by", "overrides"}[min(i, 1)], value)
		}
		return nil
	}
	for _, leaf := range deployment.Leaves(key, n) {
		fmt.Fprintf(out, "\n%s of %s is %s\n", leaf.Key, target, deployment.String(leaf.Node))
		verb := "set by"
		for _, value := range deployment.History(leaf.Node) {
			printValue(out, verb, value)
			verb = "overrides"
		}
	}
	return nil
}

// printValue prints a value of one layer with the comment at its key.
func printValue(out io.Writer, verb string, n *document.Node) {
	fmt.Fprintf(out, "  %s %s (%s)", verb, n.Origin.Layer, n.Origin)
	switch {
	case n.Text != "":
		fmt.Fprintf(out, ": %s", n.Text)
	case verb == "overrides":
		fmt.Fprintf(out, ": %s", deployment.String(n))
	}
	fmt.Fprintln(out)
	if n.Comment != "" {
		fmt.Fprintf(out, "    because: %s\n", n.Comment)
	}
}
