// Package command holds the commands of hcpctl: their flags, the calls that they make and the output that they print.
//
// Commands for customers use Azure Resource Manager (package armclient). Commands for SREs use admin (package adminclient).
// Commands for a local region use the supervisor of package local. Defaults come from the state folder of a local region.
package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	configure "github.com/hcpmesh/hcpmesh/tooling/configure/pkg/command"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// Defaults of --subscription and --resource-group. `region up` creates both.
const (
	DefaultSubscription = "11111111-1111-1111-1111-111111111111"
	DefaultGroup        = "demo"
)

// environment holds what all commands share: the global flags and the output streams.
type environment struct {
	out, err io.Writer

	stateDir string
	arm      armclient.Options
	admin    adminclient.Options
	// connect returns a client of admin for the given flags.
	connect func(adminclient.Options) (*adminclient.Client, error)
	output  string

	// browse opens a URL in the browser of the user. hasBrowser and hasTerminal report whether the user can use one.
	browse                  func(target string) error
	hasBrowser, hasTerminal func() bool
}

// New returns the command tree. Results go to out, progress and hints to errOut.
func New(out, errOut io.Writer) *cobra.Command {
	return newEnvironment(out, errOut).root()
}

// newEnvironment returns the environment of a user.
func newEnvironment(out, errOut io.Writer) *environment {
	e := &environment{out: display.Safe(out), err: errOut, browse: openBrowser, hasBrowser: displayOfUser, hasTerminal: terminalOfUser}
	e.connect = e.connectSelected
	return e
}

// NewFor returns the command tree with another way to connect to admin than the state folder of a local region. connect gets
// the values of the flags.
func NewFor(out, errOut io.Writer, connect func(adminclient.Options) (*adminclient.Client, error)) *cobra.Command {
	e := newEnvironment(out, errOut)
	e.connect = connect
	return e.root()
}

func (e *environment) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "hcpctl",
		Short:         "Control hcpmesh clusters and local regions",
		Long:          long,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          requireSubcommand,
	}
	root.AddCommand(e.explain(), e.timeline(), e.trace(), e.dashboard(), e.mustGather())
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.PersistentFlags().StringVar(&e.stateDir, "state-dir", os.Getenv("HCPMESH_STATE_DIR"), "state `folder` of the local region (default .region in the checkout, or $HCPMESH_STATE_DIR)")
	root.AddCommand(e.region(), e.cluster(), e.nodePool(), e.externalAuth(), e.deletion(), e.shard(), e.upgrade(), e.version(),
		e.login(), e.logout(), e.whoami(), e.access(), e.managementCluster(), e.serviceCluster(), e.operation(), e.audit(), e.alert(), e.work(), e.orphan(), e.azureOrphan(), e.drift(), e.quota(), e.egress(), e.breakGlass(), e.keys())
	root.AddCommand(deployments())
	e.addActions(root)
	root.AddGroup(&cobra.Group{ID: forSREs, Title: "Operations (SRE, through admin):"}, &cobra.Group{ID: forCustomers, Title: "Clusters (customer, through Azure Resource Manager):"},
		&cobra.Group{ID: forRegions, Title: "Local Region:"},
		&cobra.Group{ID: forDeployments, Title: "Deployments:"})
	for _, c := range root.Commands() {
		c.GroupID = cmp.Or(audience[c.Name()], forSREs)
	}
	limitArguments(root)
	groupCompletions(root)
	root.SetFlagErrorFunc(asUsageError)
	addExamples(root)
	wrapUsageErrors(root)
	return root
}

// The groups of commands in the help.
const (
	forSREs      = "sre"
	forCustomers = "customer"
	forRegions   = "region"
	// forDeployments is for commands that read a checkout and no service.
	forDeployments = "deployment"
)

// audience maps the commands that are not for SREs to their group.
var audience = map[string]string{
	"cluster": forCustomers, "nodepool": forCustomers, "externalauth": forCustomers, "version": forCustomers, "region": forRegions,
	"config": forDeployments, "keys": forDeployments,
}

const long = `Control hcpmesh clusters and local regions.

To investigate a cluster, start with 'hcpctl explain CLUSTER': it states what the cluster waits for, who must act, and which
command helps. 'hcpctl cluster find' finds a cluster by any identifier; 'hcpctl region status' lists the processes of a local
region. The runbooks are in docs/operators.

Exit codes:
  0    success
  1    the request was rejected, or failed
  2    invalid command line; nothing was requested
  3    the object does not exist
  4    the service is unavailable; a retry may succeed
  130  interrupted`

// deployments returns the commands of the deployments' configuration.
func deployments() *cobra.Command {
	config := configure.New("config")
	config.RunE = requireSubcommand
	return config
}

// group returns a command that only has subcommands.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: requireSubcommand}
	c.AddCommand(children...)
	return c
}

// with returns the function of a command that first opens something: a client of ARM or of admin, or the state folder of the local region.
func with[T any](open func() (T, error), run func(ctx context.Context, opened T, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		opened, err := open()
		if err != nil {
			return err
		}
		return run(c.Context(), opened, args)
	}
}

// stateFolder returns the absolute path of the state folder of the local region.
func (e *environment) stateFolder() (string, error) {
	if e.stateDir != "" {
		return filepath.Abs(e.stateDir)
	}
	source, err := local.FindSource()
	if err != nil {
		return "", errors.New("no local region found: run hcpctl inside a checkout of hcpmesh, or set --state-dir")
	}
	return filepath.Join(source, ".region"), nil
}

// addARMFlags adds the flags of the commands that use ARM.
func (e *environment) addARMFlags(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVar(&e.arm.Endpoint, "endpoint", "", "`URL` of Azure Resource Manager (default: the local region)")
	flags.StringVar(&e.arm.CAFile, "ca-file", "", "`file` with the certificate authority of --endpoint (default: the local region)")
	flags.StringVar(&e.arm.CredentialsFile, "credentials-file", "", "`file` with the client credentials (default: the local region)")
	flags.StringVar(&e.arm.Subscription, "subscription", DefaultSubscription, "subscription `id`")
	flags.StringVarP(&e.arm.Group, "resource-group", "g", DefaultGroup, "resource group `name`")
}

func (e *environment) addOutputFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVarP(&e.output, "output", "o", "table", "output `format`: table, json or yaml")
	oneOf(c, "output", "table", "json", "yaml")
	return c
}

// client returns the ARM client. Flags that are not set default to the local region.
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
