package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

// options are the flags of the commands.
type options struct {
	configDir, programs, templates, dir, backend string
	authorities                                  map[string]string
	allowed                                      []string
}

// newCommand returns the command tree.
func newCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "infrastructure",
		Short: "Plan, apply and destroy the infrastructure of a region in Azure",
		Long: `Plan, apply and destroy the infrastructure of a region in Azure.

SCOPE is global, region, service-cluster or management-cluster. TARGET is CLOUD/ENVIRONMENT/REGION, or CLOUD/ENVIRONMENT/REGION/STAMP for a
management cluster. The scope global has the same result for every region of an environment. The program authenticates as OpenTofu's
provider azapi does, with the environment variables ARM_… .`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.configDir, "config-dir", "", "`folder` with the configuration (default: config in the checkout)")
	flags.StringVar(&o.templates, "templates", "", "`folder` with the templates (default: dev-infrastructure/azure in the checkout)")
	flags.StringVar(&o.programs, "programs", "", "`folder` with tofu and its providers (default: .build/third-party/opentofu in the checkout)")
	flags.StringVar(&o.dir, "dir", ".infrastructure", "`folder` for states, outputs and work files")
	flags.StringVar(&o.backend, "backend", "", "`file` with a terraform block that selects the place of the state (default: a file in --dir)")
	flags.StringToStringVar(&o.authorities, "mqtt-authority", nil, "`NAME=FILE` of a certificate authority of MQTT clients, for the scope region")
	root.AddCommand(o.variables(), o.plan(), o.apply(), o.destroy())
	return root
}

// deployment is one scope of one target.
type deploymentScope struct {
	scope  tofu.Scope
	target layer.Target
	values *tofu.Variables
}

// open reads the configuration and computes the variables.
func (o *options) open(arguments []string) (*deploymentScope, error) {
	scope, err := tofu.ParseScope(arguments[0])
	if err != nil {
		return nil, err
	}
	target, err := layer.ParseTarget(arguments[1])
	if err != nil {
		return nil, err
	}
	if o.configDir == "" {
		if o.configDir, err = deployment.Find(); err != nil {
			return nil, err
		}
	}
	configuration, err := deployment.Open(o.configDir)
	if err != nil {
		return nil, err
	}
	values, err := tofu.NewVariables(configuration, scope, target)
	if err != nil {
		return nil, err
	}
	outputs := map[tofu.Scope]json.RawMessage{}
	for _, outer := range scope.Outer() {
		text, err := os.ReadFile(o.outputs(outer, target))
		if err == nil {
			outputs[outer] = text
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the outputs of %s: %w", outer, err)
		}
	}
	if err := values.SetOuter(scope, outputs); err != nil {
		return nil, err
	}
	if len(o.authorities) > 0 && scope != tofu.Region {
		return nil, fmt.Errorf("--mqtt-authority: only for the scope %s", tofu.Region)
	}
	return &deploymentScope{scope, target, values}, o.readAuthorities(values)
}

// readAuthorities reads the files of --mqtt-authority.
func (o *options) readAuthorities(values *tofu.Variables) error {
	for name, file := range o.authorities {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--mqtt-authority %s: %w", name, err)
		}
		if !strings.Contains(string(text), "-----BEGIN CERTIFICATE-----") {
			return fmt.Errorf("--mqtt-authority %s: %s has no certificate", name, file)
		}
		if values.MQTTAuthorities == nil {
			values.MQTTAuthorities = map[string]string{}
		}
		values.MQTTAuthorities[name] = string(text)
	}
	return nil
}

func (o *options) outputs(scope tofu.Scope, target layer.Target) string {
	return tofu.ScopePath(o.dir, scope, target, ".json")
}

// workspace prepares tofu for a scope.
func (o *options) workspace(c *cobra.Command, d *deploymentScope) (*tofu.Workspace, error) {
	top := filepath.Dir(o.configDir)
	for flag, otherwise := range map[*string]string{&o.templates: "dev-infrastructure/azure", &o.programs: ".build/third-party/opentofu"} {
		if *flag == "" {
			*flag = filepath.Join(top, otherwise)
		}
	}
	return tofu.OpenScope(c.Context(), d.scope, d.target, d.values, tofu.ScopeOptions{Templates: o.templates, Programs: o.programs, Dir: o.dir, Backend: o.backend}, c.ErrOrStderr())
}

func (o *options) variables() *cobra.Command {
	return &cobra.Command{Use: "variables SCOPE TARGET", Short: "Print the variables of a scope as JSON", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, arguments []string) error {
		d, err := o.open(arguments)
		if err != nil {
			return err
		}
		encoder := json.NewEncoder(c.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(d.values)
	}}
}

func (o *options) plan() *cobra.Command {
	var destroy bool
	c := &cobra.Command{Use: "plan SCOPE TARGET", Short: "List the changes that apply or destroy would make", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, arguments []string) error {
		_, plan, _, err := o.planned(c, arguments, destroy)
		if err != nil {
			return err
		}
		return plan.Check(nil)
	}}
	c.Flags().BoolVar(&destroy, "destroy", false, "plan a deletion of everything")
	return c
}

// planned stores a plan and prints its changes.
func (o *options) planned(c *cobra.Command, arguments []string, destroy bool) (*tofu.Workspace, *tofu.Plan, *deploymentScope, error) {
	d, err := o.open(arguments)
	if err != nil {
		return nil, nil, nil, err
	}
	w, err := o.workspace(c, d)
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := w.Plan(c.Context(), destroy, true)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, change := range plan.Pending() {
		fmt.Fprintln(c.OutOrStdout(), strings.Join(change.Change.Actions, "+"), change.Address)
	}
	return w, plan, d, nil
}

func (o *options) apply() *cobra.Command {
	var adopt bool
	c := &cobra.Command{Use: "apply SCOPE TARGET", Short: "Create and change the resources of a scope", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, arguments []string) error {
		w, d, err := o.applied(c, arguments, adopt)
		if err != nil {
			return err
		}
		outputs, err := w.Outputs(c.Context())
		if err != nil {
			return err
		}
		return os.WriteFile(o.outputs(d.scope, d.target), outputs, 0o600)
	}}
	o.allowLoss(c)
	c.Flags().BoolVar(&adopt, "adopt", false, "add resources to the state that exist under the names of the templates, after an interrupted apply")
	return c
}

// applied plans, checks and applies.
func (o *options) applied(c *cobra.Command, arguments []string, adopt bool) (*tofu.Workspace, *deploymentScope, error) {
	w, plan, d, err := o.planned(c, arguments, false)
	if err != nil {
		return nil, nil, err
	}
	return w, d, tofu.Apply(c.Context(), w, plan, o.allowed, adopt)
}

func (o *options) destroy() *cobra.Command {
	c := &cobra.Command{Use: "destroy SCOPE TARGET", Short: "Delete all resources of a scope", Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, arguments []string) error {
		w, plan, d, err := o.planned(c, arguments, true)
		if err != nil {
			return err
		}
		if err := plan.Check(o.allowed); err != nil {
			return err
		}
		if err := w.Apply(c.Context()); err != nil {
			return err
		}
		if err := os.Remove(o.outputs(d.scope, d.target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}}
	o.allowLoss(c)
	return c
}

func (o *options) allowLoss(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.allowed, "allow-loss", nil, "`ADDRESS` of a resource with data that may be deleted; repeat it for each")
}
