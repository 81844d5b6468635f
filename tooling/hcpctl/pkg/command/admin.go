package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// addAdminFlags adds the flags of a command that uses admin, and completes its help.
func (e *environment) addAdminFlags(c *cobra.Command) *cobra.Command {
	flags := c.Flags()
	if c.Long == "" {
		c.Long = c.Short + "."
	}
	if strings.Contains(c.Use, "CLUSTER") {
		if !strings.Contains(c.Long, "'hcpctl cluster find'") {
			c.Long += "\n\nCLUSTER is any identifier that 'hcpctl cluster find' accepts, if it matches exactly one cluster."
		}
		if c.ValidArgsFunction == nil {
			c.ValidArgsFunction = e.completeFleet()
		}
	}
	flags.StringVar(&e.admin.Endpoint, "admin-endpoint", "", "`URL` of admin (default: the local region)")
	flags.StringVar(&e.admin.Audience, "admin-audience", os.Getenv("HCPMESH_ADMIN_AUDIENCE"), "`audience` of the tokens for the admin of --admin-endpoint; they are those of `hcpctl login`, or else of the Azure CLI (default: the local region, or $HCPMESH_ADMIN_AUDIENCE)")
	flags.StringVar(&e.admin.Engineer, "as", os.Getenv("HCPMESH_ENGINEER"), "`name` of the engineer to act as: one of `hcpctl login`, or oncall, approver, operator or reader in a local region (default: the newest login, else oncall; or $HCPMESH_ENGINEER)")
	return c
}

// adminClient returns the client of admin.
func (e *environment) adminClient() (*adminclient.Client, error) { return e.connect(e.admin) }

// connectSelected returns a client of admin. It acts as a person who signed in with `hcpctl login`, if there is one; else, with an audience, as the
// person who is signed in to the Azure CLI, and in a local region as one of its engineers. Flags that are not set default to the local region.
func (e *environment) connectSelected(options adminclient.Options) (*adminclient.Client, error) {
	if options.Audience != "" {
		if options.Endpoint == "" {
			return nil, invalid("--admin-endpoint is required with --admin-audience")
		}
		signedIn, err := e.selectLogin(&options, "")
		switch {
		case err != nil:
			return nil, err
		case !signedIn && options.Engineer != "":
			return nil, invalid("--as selects an engineer of a local region or of `hcpctl login`: there is no login of %q for %s. Without --as you act as the person who is signed in to the Azure CLI", options.Engineer, options.Audience)
		}
		return adminclient.New(options)
	}
	endpoints, err := e.endpoints()
	if err != nil {
		return nil, err
	}
	options.Endpoint = cmp.Or(options.Endpoint, endpoints.Admin)
	options.Authority, options.CAFile = endpoints.ARM, endpoints.CAFile
	options.CredentialsFile, options.Audience = endpoints.EngineersFile, endpoints.AdminAudience
	if endpoints.AdminIssuer != "" {
		if _, err := e.selectLogin(&options, endpoints.AdminIssuer); err != nil {
			return nil, err
		}
	}
	return adminclient.New(options)
}

// readCommand completes a command that reads from admin.
func (e *environment) readCommand(c *cobra.Command, show func(ctx context.Context, client *adminclient.Client, args []string) error) *cobra.Command {
	c.RunE = with(e.adminClient, show)
	return e.addAdminFlags(c)
}

// printAs prints a value as JSON or YAML if --output requests it, else with table.
func (e *environment) printAs(value any, table func() error) error {
	if e.output == "table" {
		return table()
	}
	return display.Object(e.out, e.output, value)
}

// printList prints items as JSON or YAML if --output requests it, else as a table. row returns their columns, as display.List requires.
func printList[T any](e *environment, items []T, row func(T) display.Row) error {
	return e.printAs(items, func() error { return display.List(e.out, items, row) })
}

// asTable returns a function that prints a value as printAs does.
func asTable[R any](e *environment, table func(R) error) func(R) error {
	return func(value R) error { return e.printAs(value, func() error { return table(value) }) }
}

// view completes a command that reads a route of admin and shows the response. The arguments of the command are the values of the wildcards of the path.
func view[R any](e *environment, c *cobra.Command, read adminv1.ReadOf[R], query func() adminclient.Query, show func(*R) error) *cobra.Command {
	return answer(e, c, func(ctx context.Context, client *adminclient.Client, args []string) (*R, error) {
		return adminclient.Get(ctx, client, read, query(), args...)
	}, show)
}

// answer completes a command that sends requests to admin with ask, and shows what they return.
func answer[R any](e *environment, c *cobra.Command, ask func(ctx context.Context, client *adminclient.Client, args []string) (R, error), show func(R) error) *cobra.Command {
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		found, err := ask(ctx, client, args)
		if err != nil {
			return err
		}
		return show(found)
	})
}

// addReason adds the required flag of a reason.
func addReason(c *cobra.Command, reason *string) {
	c.Flags().StringVar(reason, "reason", "", "`text` with the reason, at least 8 characters")
	_ = c.MarkFlagRequired("reason")
}

// addTicket adds the flag of a ticket.
func addTicket(c *cobra.Command, ticket *string) {
	c.Flags().StringVar(ticket, "ticket", "", "`ID` of the incident or change")
}

// noQuery is the query of a view without parameters.
func noQuery() adminclient.Query { return nil }

// history is view for a list of a history, newest first, of which the command shows as many items as its flag --limit allows.
func history[L interface{ Page() ([]T, string) }, T any](e *environment, c *cobra.Command, read adminv1.ReadOf[L], limit int, query func() adminclient.Query, show func([]T) error) *cobra.Command {
	addLimit(c, &limit)
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		items, more, err := adminclient.List(ctx, client, read, query(), limit, args...)
		if err != nil {
			return err
		}
		if more {
			fmt.Fprintf(e.err, "older items exist; use --limit to list more than the newest %d\n", limit)
		}
		return show(items)
	})
}

// addLimit adds the flag of the number of items to list, whose default is the value of limit.
func addLimit(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", *limit, "maximum `number` of items, newest first")
	alsoCheck(c, func(*cobra.Command, []string) error {
		if *limit < 1 {
			return fmt.Errorf("--limit: %d is less than 1", *limit)
		}
		return nil
	})
}

func (e *environment) clusterFind() *cobra.Command {
	c := &cobra.Command{
		Use: "find IDENTIFIER", Short: "Find clusters of the region by any identifier",
		Long: `Find clusters of the region by any identifier.

IDENTIFIER is a resource ID, a name, a UID, a cluster ID, the name of a namespace on a management cluster, the host or URL of
an API server, a subscription, or a resource group. Partial names do not match.`,
		ValidArgsFunction: e.completeFleet(),
	}
	return answer(e, c, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.ClusterList, error) {
		found, err := adminclient.Get(ctx, client, adminv1.ReadClusters, adminclient.Query{"q": args[0]})
		if err == nil && len(found.Items) == 0 && e.output == "table" {
			err = notFound("no cluster in this region matches %q; partial names do not match, see `hcpctl cluster find --help`", args[0])
		}
		return found, err
	}, func(found *adminv1.ClusterList) error { return printList(e, found.Items, clusterRow) })
}

func clusterRow(c adminv1.Cluster) display.Row {
	return display.Row{{"NAME", c.Name}, {"STATE", c.ProvisioningState}, {"VERDICT", c.Verdict}, {"VERSION", c.Version}, {"SHARD", c.ProvisionShard}, {"CLUSTER ID", c.ClusterID}, {"RESOURCE ID", c.ResourceID}}
}

func (e *environment) clusterJournal() *cobra.Command {
	return view(e, &cobra.Command{
		Use: "journal CLUSTER", Short: "Show the state of a cluster's API and how it changed",
		Long: `Show whether the API of a cluster is available, and how that and monitor's concerns changed in the last 14 days, newest first.
The state is unknown, with the reason, while monitor does not see the cluster.`,
	}, adminv1.ReadJournal, noQuery, asTable(e, func(journal *adminv1.Journal) error {
		fmt.Fprintln(e.out, "API: "+healthText(journal.Health))
		return display.List(e.out, journal.Items, func(entry adminv1.JournalEntry) display.Row {
			return display.Row{{"TIME", entry.Time.UTC().Format(time.RFC3339)}, {"EVENT", entry.Event}, {"STATE", entryText(entry)}, {"FAULT", entry.Fault},
				{"SINCE", entry.Since.UTC().Format(time.RFC3339)}, {"EVIDENCE", entry.Evidence}}
		})
	}))
}

// healthText returns the state of an API, with the reason if it is unknown.
func healthText(h adminv1.Health) string {
	text := h.API
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	if !h.Since.IsZero() {
		text += " since " + h.Since.UTC().Format(time.RFC3339)
	}
	if h.Detail != "" {
		text += ": " + h.Detail
	}
	return text
}

// entryText returns the new state of an API, or the kind of a concern.
func entryText(entry adminv1.JournalEntry) string {
	if entry.Event != adminv1.JournalAPI {
		return entry.Kind
	}
	text := strings.TrimPrefix(entry.From+" → "+entry.To, " → ")
	if entry.Reason != "" {
		text += " (" + entry.Reason + ")"
	}
	return text
}

func (e *environment) clusterDump() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "dump CLUSTER", Short: "Print what every layer holds of a cluster, without secrets",
		Long: `Print what every layer holds of a cluster: ARM's documents and operations, Cluster Service's records and works, and Maestro's
bundles with the status that the agent reports. Secrets are removed.`,
	}
	c.Flags().StringVarP(&format, "output", "o", "yaml", "output `format`: yaml or json")
	oneOf(c, "output", "yaml", "json")
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		dump, err := adminclient.Get(ctx, client, adminv1.ReadDump, nil, args[0])
		if err != nil {
			return err
		}
		return display.Object(e.out, format, dump)
	})
}
