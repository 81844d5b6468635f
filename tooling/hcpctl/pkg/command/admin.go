package command

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// addAdminFlags adds the flags of a command that talks to admin, the SREs' API.
func (e *environment) addAdminFlags(c *cobra.Command) *cobra.Command {
	flags := c.Flags()
	flags.StringVar(&e.admin.Endpoint, "admin-endpoint", "", "`URL` of admin, the SREs' API (default the local region's)")
	flags.StringVar(&e.admin.Engineer, "as", os.Getenv("HCPMESH_ENGINEER"), "`name` of the engineer to be: in a local region oncall (the default), operator or reader (HCPMESH_ENGINEER)")
	return c
}

// adminClient makes the client of admin.
func (e *environment) adminClient() (*adminclient.Client, error) { return e.connect(e.admin) }

// connectLocal takes what the flags leave open from the local region.
func (e *environment) connectLocal(options adminclient.Options) (*adminclient.Client, error) {
	endpoints, err := e.endpoints()
	if err != nil {
		return nil, err
	}
	options.Endpoint = cmp.Or(options.Endpoint, endpoints.Admin)
	options.Authority, options.CAFile = endpoints.ARM, endpoints.CAFile
	options.CredentialsFile, options.Audience = endpoints.EngineersFile, endpoints.AdminAudience
	return adminclient.New(options)
}

// readCommand makes a command that shows what admin knows.
func (e *environment) readCommand(c *cobra.Command, show func(ctx context.Context, client *adminclient.Client, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := e.adminClient()
		if err != nil {
			return err
		}
		return show(c.Context(), client, args)
	}
	return e.addAdminFlags(c)
}

// printAs prints a value as json or yaml when that was asked for, else as table does.
func (e *environment) printAs(value any, table func() error) error {
	if e.output == "table" {
		return table()
	}
	return display.Object(e.out, e.output, value)
}

// printMessage is present for a message of Cluster Service's, in the API's own form.
func (e *environment) printMessage(message proto.Message, table func() error) error {
	return e.printAs(adminv1.Message[proto.Message]{Of: message}, table)
}

// listLimit is how many items of a list that grows for ever are shown.
type listLimit struct{ most int }

func (l *listLimit) add(c *cobra.Command, most int) {
	c.Flags().IntVar(&l.most, "limit", most, "most `number` of them, the newest")
	c.PreRunE = func(*cobra.Command, []string) error {
		if l.most < 1 {
			return fmt.Errorf("--limit: %d is not 1 or more", l.most)
		}
		return nil
	}
}

// printTruncated says that there is more than was shown.
func (e *environment) printTruncated(l listLimit, more bool) {
	if more {
		fmt.Fprintf(e.err, "these are the newest %d; --limit shows more\n", l.most)
	}
}

func (e *environment) clusterFind() *cobra.Command {
	c := &cobra.Command{
		Use: "find WHAT", Short: "Find clusters of the whole region by anything, as an SRE", Args: cobra.ExactArgs(1),
		Long: `Find clusters of the whole region, as an SRE.

WHAT is a resource id, a name, a uid, the cluster id below ARM, the name of a namespace on a management cluster, the host
or URL of an API server, a subscription or a resource group.`,
		ValidArgsFunction: e.completeFleet,
	}
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		found, err := client.FindClusters(ctx, args[0])
		if err != nil {
			return err
		}
		return e.printAs(found, func() error {
			if len(found) == 0 {
				return &notFound{fmt.Sprintf("no cluster of this region is found by %q; it takes a whole name or id, see `hcpctl cluster find --help`", args[0])}
			}
			var rows [][]string
			for _, cluster := range found {
				rows = append(rows, clusterRow(cluster))
			}
			return display.Table(e.out, []string{"NAME", "STATE", "PHASE", "VERSION", "SHARD", "CLUSTER ID", "RESOURCE ID"}, rows)
		})
	})
}

func clusterRow(c adminv1.Cluster) []string {
	return []string{c.Name, c.ProvisioningState, c.Phase, c.Version, c.ProvisionShard, c.ClusterID, c.ResourceID}
}

func (e *environment) clusterDump() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "dump CLUSTER", Short: "Print what every layer knows of a cluster, as an SRE; secrets are removed", Args: cobra.ExactArgs(1),
		Long: `Print what every layer knows of a cluster: ARM's documents and operations, Cluster Service's rows and works, and Maestro's
bundles with what the management cluster says of them. Secrets are removed.

CLUSTER is anything that 'hcpctl cluster find' takes, as long as it means one cluster.`,
		ValidArgsFunction: e.completeFleet,
	}
	c.Flags().StringVarP(&format, "output", "o", "yaml", "`format`: yaml or json")
	c.PreRunE = func(*cobra.Command, []string) error {
		if format != "yaml" && format != "json" {
			return fmt.Errorf("--output: %q is neither yaml nor json", format)
		}
		return nil
	}
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		dump, err := client.Dump(ctx, args[0])
		if err != nil {
			return err
		}
		return display.Object(e.out, format, dump)
	})
}
