package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// environment holds the flags.
type environment struct {
	configDir, stateDir, secretsDir, caFile, output string
	registryCredentials, images                     string
	kubeconfigDir, infrastructureDir, openTofu      string
	mqttAuthorities                                 map[string]string
	allowDeletion                                   []string
	adopt                                           bool
	diff, dryRun                                    bool
	parallel                                        int
	allowLoss                                       []string
	// root is the checkout, which open sets.
	root string
}

// newCommand returns the command tree.
func newCommand() *cobra.Command {
	e := &environment{}
	root := &cobra.Command{
		Use:   "rollout",
		Short: "Deploy a region with the pipelines of its service groups",
		Long: `Deploy a region with the pipelines of its service groups.

The topology and the pipelines are files of a checkout. An error names the file, the line and the path in the file. REGION is
CLOUD/ENVIRONMENT/REGION; a rollout of a region includes the steps of its environment and of its stamps.

Exit codes: 0 success, 1 a step failed, 2 wrong input or a refused rollout (nothing was changed), 4 another rollout runs, 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &inputError{err} })
	root.PersistentFlags().StringVar(&e.configDir, "config-dir", "", "`folder` with the configuration (default: config in the checkout)")
	root.AddCommand(e.check(), e.graph(), e.planCommand(), e.runCommand(), e.statusCommand(), e.forgetCommand(), e.deleteCommand())
	for _, c := range root.Commands() {
		accepts := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if err := accepts(c, args); err != nil {
				return &inputError{err}
			}
			return nil
		}
	}
	return root
}

// addFlags adds the flags of commands that read the state.
func (e *environment) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&e.stateDir, "state-dir", "", "`folder` with the state of rollouts; required")
	c.Flags().StringVarP(&e.output, "output", "o", "text", "output `format`: text or json")
	c.PreRunE = func(*cobra.Command, []string) error {
		if e.stateDir == "" {
			return &inputError{errors.New("--state-dir: is required")}
		}
		if e.output != "text" && e.output != "json" {
			return &inputError{fmt.Errorf("--output: %q is not one of text, json", e.output)}
		}
		return nil
	}
}

// addPlanFlags adds the flags of commands that plan.
func (e *environment) addPlanFlags(c *cobra.Command) {
	e.addFlags(c)
	c.Flags().StringVar(&e.secretsDir, "secrets-dir", "", "`folder` with a file VAULT/SECRET for each secret")
	c.Flags().StringVar(&e.kubeconfigDir, "kubeconfig-dir", "", "`folder` with a file CLUSTER.kubeconfig for each cluster")
	c.Flags().StringVar(&e.images, "images", "", "`file` images.json of a build, whose digests replace those of the environment; refused for production")
	c.Flags().StringVar(&e.registryCredentials, "registry-credentials", "", "`file` with the credentials of registries by host name, in the format of Docker's config.json")
	c.Flags().StringArrayVar(&e.allowLoss, "allow-loss", nil, "allow the change of a key of a data store, `TARGET:KEY`, or the removal of a TARGET; repeat it for several")
	e.addInfrastructureFlags(c)
}

// addInfrastructureFlags adds the flags of commands that create or delete infrastructure, and check gates.
func (e *environment) addInfrastructureFlags(c *cobra.Command) {
	c.Flags().StringVar(&e.infrastructureDir, "infrastructure-dir", "", "`folder` for the states and work files of OpenTofu (default: infrastructure in --state-dir)")
	c.Flags().StringVar(&e.openTofu, "opentofu", "", "`folder` with tofu and its providers (default: .build/third-party/opentofu in the checkout)")
	c.Flags().StringToStringVar(&e.mqttAuthorities, "mqtt-authority", nil, "`NAME=FILE` of a certificate authority of MQTT clients")
	c.Flags().StringArrayVar(&e.allowDeletion, "allow-deletion", nil, "`STEP:ADDRESS` of a resource with data that the step may delete; repeat it for each")
	c.Flags().StringVar(&e.caFile, "ca-file", "", "`file` with the authorities of HTTPS servers and registries (default: those of the system)")
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
	e.root = filepath.Dir(dir)
	topology, err := definition.Open(e.root, configuration.Schema)
	return configuration, topology, err
}

// requestTimeout is the time for one HTTP request of a gate.
const requestTimeout = 30 * time.Second

func (e *environment) client() (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	if e.caFile != "" {
		authorities, err := certfile.LoadRoots(e.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: authorities.Pool()}
	}
	return &http.Client{Transport: transport, Timeout: requestTimeout}, nil
}

func (e *environment) check() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the topology and all pipelines", Args: cobra.NoArgs,
		Long: `Check the topology and all pipelines: unknown references, cycles, keys that the configuration does not have, and secrets that are
not references. The command prints one line for each problem.`,
		RunE: func(c *cobra.Command, _ []string) error {
			_, topology, err := e.open()
			if err != nil {
				return &inputError{err}
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
				return &inputError{err}
			}
			return topology.DOT(c.OutOrStdout())
		},
	}
}

func (e *environment) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "plan REGION", Short: "Print what a rollout of a region does, and why", Args: cobra.ExactArgs(1),
		Long: `Print what a rollout of a region does: for each step whether it runs, and why. The command changes nothing.

With --diff, it also calls the services and the clusters and prints the changes that each step would make, without secrets.

It fails if a step cannot run, or if the rollout would drop a data store or delete a cluster and --allow-loss does not name it.`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := e.session(args[0])
			if err != nil {
				return err
			}
			if e.diff && e.output == "json" {
				return &inputError{errors.New("--diff: needs the output format text")}
			}
			decisions, losses, err := s.plan()
			if err != nil {
				return err
			}
			if err := printPlan(c.OutOrStdout(), decisions, losses, e.output); err != nil {
				return err
			}
			if e.diff {
				if err := s.previews(c.Context(), c.OutOrStdout(), decisions); err != nil {
					return err
				}
			}
			return refusal(decisions, losses)
		},
	}
	e.addPlanFlags(c)
	c.Flags().BoolVar(&e.diff, "diff", false, "print the changes that each step would make")
	return c
}

func (e *environment) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run REGION", Short: "Deploy a region", Args: cobra.ExactArgs(1),
		Long: `Deploy a region. Steps that have succeeded and whose definition, inputs and files have not changed are skipped. After a failure, no
further step starts. A rollout that failed or was interrupted, in whatever way, goes on when the command is run again.`,
		RunE: func(c *cobra.Command, args []string) error {
			if e.parallel < 1 {
				return &inputError{fmt.Errorf("--parallel: %d is less than 1", e.parallel)}
			}
			s, err := e.session(args[0])
			if err != nil {
				return err
			}
			shown := newProgress(c.ErrOrStderr())
			result, err := s.run(c.Context(), shown.report)
			shown.close()
			if err != nil && result.Steps() == 0 {
				return err // refused
			}
			return errors.Join(err, printResult(c.OutOrStdout(), result, e.output))
		},
	}
	e.addPlanFlags(c)
	c.Flags().BoolVar(&e.adopt, "adopt", false, "add resources to the state of OpenTofu that exist under the names of the templates, after an interrupted rollout")
	c.Flags().IntVar(&e.parallel, "parallel", 4, "largest `number` of steps that run at the same time")
	return c
}

func (e *environment) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status REGION", Short: "Print the state of all steps of a region", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := e.session(args[0])
			if err != nil {
				return err
			}
			return printStatus(c.OutOrStdout(), s.instances, s.planner.Record, e.output)
		},
	}
	e.addFlags(c)
	return c
}
