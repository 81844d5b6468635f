// Package command is hcpctl's commands: flags, what they call, and what they print. What customers do goes through Azure
// Resource Manager (package armclient), what SREs do through admin (package adminclient); the region's commands drive the
// supervisor of package local. The defaults of all flags come from the state folder of a local region, so that a command needs
// none there.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// Where the commands work unless told otherwise.
const (
	DefaultSubscription = "11111111-1111-1111-1111-111111111111"
	DefaultGroup        = "demo"
)

// environment is what all commands share: the global flags and where to write.
type environment struct {
	out, err io.Writer

	stateDir string
	arm      armclient.Options
	admin    adminclient.Options
	// connect makes the client of admin of what the flags say.
	connect func(adminclient.Options) (*adminclient.Client, error)
	output  string
}

// New makes the command tree. Results go to out, progress to errOut.
func New(out, errOut io.Writer) *cobra.Command {
	e := &environment{out: display.Safe(out), err: errOut}
	e.connect = e.connectLocal
	return e.root()
}

// NewFor makes the command tree for whoever reaches admin in another way than through the folder of a local region: connect
// is given what the flags say.
func NewFor(out, errOut io.Writer, connect func(adminclient.Options) (*adminclient.Client, error)) *cobra.Command {
	return (&environment{out: display.Safe(out), err: errOut, connect: connect}).root()
}

func (e *environment) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "hcpctl",
		Short:         "Run a region of hcpmesh on this machine, and work with its clusters",
		Long:          long,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          requireSubcommand,
	}
	root.AddCommand(e.explain(), e.mustGather())
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.PersistentFlags().StringVar(&e.stateDir, "state-dir", os.Getenv("HCPMESH_STATE_DIR"), "`folder` of the local region (default .region in the checkout; HCPMESH_STATE_DIR)")
	root.AddCommand(e.region(), e.cluster(), e.nodePool(), e.externalAuth(), e.deletion(), e.shard(), e.upgrade(), e.version(),
		e.whoami(), e.elevate(), e.elevation(), e.operation(), e.audit(), e.work(), e.orphan(), e.drift(), e.breakGlass())
	root.AddGroup(&cobra.Group{ID: forSREs, Title: "When something is wrong, as an SRE:"}, &cobra.Group{ID: forCustomers, Title: "Clusters, through Azure Resource Manager:"},
		&cobra.Group{ID: forRegions, Title: "A region on this machine:"})
	for _, c := range root.Commands() {
		c.GroupID = cmp.Or(audience[c.Name()], forSREs)
	}
	root.SetFlagErrorFunc(asUsageError)
	wrapUsageErrors(root)
	return root
}

// Whom the commands are for.
const (
	forSREs      = "sre"
	forCustomers = "customer"
	forRegions   = "region"
)

// audience is whom a command is for that is not for SREs.
var audience = map[string]string{
	"cluster": forCustomers, "nodepool": forCustomers, "externalauth": forCustomers, "version": forCustomers, "region": forRegions,
}

const long = `Run a region of hcpmesh on this machine, and work with its clusters.

When something is wrong with a cluster, begin with 'hcpctl explain CLUSTER': it says what the cluster waits for, who must act, and which
command helps. 'hcpctl cluster find WHAT' finds a cluster by whatever you have in hand, 'hcpctl region status' shows the processes of
a local region. The runbooks are in docs/operators.

It ends with 0 when it did what was asked; 1 when that was refused or failed; 2 when the command line is wrong, and nothing was
asked; 3 when there is no such thing; 4 when nobody answered, and the same may succeed later; 130 when it was interrupted.`

// group is a command that only has others below it.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: requireSubcommand}
	c.AddCommand(children...)
	return c
}

// region's state folder, absolute.
func (e *environment) stateFolder() (string, error) {
	if e.stateDir != "" {
		return filepath.Abs(e.stateDir)
	}
	source, err := local.FindSource()
	if err != nil {
		return "", errors.New("found no region: run this inside a checkout of hcpmesh, or name the region's folder with --state-dir")
	}
	return filepath.Join(source, ".region"), nil
}

// addARMFlags adds the flags of the commands that talk to ARM.
func (e *environment) addARMFlags(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVar(&e.arm.Endpoint, "endpoint", "", "`URL` of Azure Resource Manager (default the local region's)")
	flags.StringVar(&e.arm.CAFile, "ca-file", "", "`file` with the authority of --endpoint's certificate (default the local region's)")
	flags.StringVar(&e.arm.CredentialsFile, "credentials-file", "", "`file` with the client's credentials (default the local region's)")
	flags.StringVar(&e.arm.Subscription, "subscription", DefaultSubscription, "subscription `id`")
	flags.StringVarP(&e.arm.Group, "resource-group", "g", DefaultGroup, "resource group's `name`")
}

func (e *environment) addOutputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&e.output, "output", "o", "table", "`format`: table, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if !strings.Contains(" table json yaml ", " "+e.output+" ") {
			return fmt.Errorf("--output: %q is not one of table, json, yaml", e.output)
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// client makes the ARM client; what the flags leave open comes from the local region.
func (e *environment) client() (*armclient.Client, error) {
	options := e.arm
	if options.Endpoint == "" || options.CAFile == "" || options.CredentialsFile == "" {
		endpoints, err := e.endpoints()
		if err != nil {
			return nil, err
		}
		options.Endpoint = cmp.Or(options.Endpoint, endpoints.ARM)
		options.CAFile = cmp.Or(options.CAFile, endpoints.CAFile)
		options.CredentialsFile = cmp.Or(options.CredentialsFile, endpoints.CredentialsFile)
	}
	return armclient.New(options)
}

func (e *environment) endpoints() (local.Endpoints, error) {
	dir, err := e.stateFolder()
	if err != nil {
		return local.Endpoints{}, err
	}
	return local.Describe(dir)
}
