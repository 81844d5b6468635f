package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// infrastructureOutputs are what the infrastructure of a region adds to its configuration.
type infrastructureOutputs struct {
	// ClientIDs are the client IDs of managed identities, by name.
	ClientIDs map[string]string `json:"clientIds"`
	// ObjectIDs are the object IDs of their principals.
	ObjectIDs map[string]string `json:"objectIds"`
	// EgressAddresses are the public addresses of the service cluster.
	EgressAddresses []string `json:"egressAddresses"`
}

// options are the flags of all commands.
type options struct{ configDir, outputs, secrets string }

// newCommand returns the commands. They print to the output of the command.
func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "charts", Short: "Compute values of Helm charts and render them", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(os.Stdout)
	var o options
	flags := root.PersistentFlags()
	flags.StringVar(&o.configDir, "config-dir", "", "`folder` of the configuration (default: the folder config in or above the working directory)")
	flags.StringVar(&o.outputs, "outputs", "", "YAML `file` with the outputs of the infrastructure: clientIds and objectIds, maps of managed identities to client IDs and to the object IDs of their principals, and egressAddresses, a list")
	flags.StringVar(&o.secrets, "secrets", "", "`provider` of secrets: csi reads Key Vaults, secret expects Kubernetes Secrets (default: that of the cluster's platform)")
	root.AddCommand(
		&cobra.Command{
			Use: "values TARGET CHART", Short: "Print the values of a chart", Example: "  charts values --outputs outputs.yaml public/prod/uksouth frontend", Args: cobra.ExactArgs(2),
			RunE: func(command *cobra.Command, args []string) error {
				r, err := o.release(args[0], args[1])
				if err != nil {
					return err
				}
				return printYAML(command, r.values)
			},
		},
		&cobra.Command{
			Use: "render TARGET CHART", Short: "Print the objects of a chart, after checking them against the rules", Args: cobra.ExactArgs(2),
			RunE: func(command *cobra.Command, args []string) error { return o.render(command, args[0], args[1]) },
		},
		&cobra.Command{
			Use: "list", Short: "List the charts", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error { return list(command.OutOrStdout()) },
		},
	)
	return root
}

// list prints the name, the clusters and the folder of each chart.
func list(out io.Writer) error {
	const line = "%-20s %-8s %-10s %s\n"
	where := map[bool]string{true: "yes", false: "no"}
	if _, err := fmt.Fprintf(out, line, "CHART", "SERVICE", "MANAGEMENT", "FOLDER"); err != nil {
		return err
	}
	for _, p := range values.Platforms() {
		if _, err := fmt.Fprintf(out, line, p.Name, where[p.Service], where[p.Management], p.Folder()); err != nil {
			return err
		}
	}
	for _, w := range workload.All() {
		if _, err := fmt.Fprintf(out, line, w.Peer, where[!w.Management], where[w.Management], w.Folder); err != nil {
			return err
		}
	}
	return nil
}

// release is a chart with its values.
type release struct {
	folder, namespace string
	values            any
}

// release returns a chart and its values for a target.
func (o *options) release(name, chartName string) (*release, error) {
	target, err := layer.ParseTarget(name)
	if err != nil {
		return nil, err
	}
	if level := target.Level(); level != layer.Region && level != layer.Stamp {
		return nil, fmt.Errorf("target %s: charts need a region or a stamp", name)
	}
	if o.secrets != "" && o.secrets != values.CSI && o.secrets != values.Secret {
		return nil, fmt.Errorf("--secrets: %q is neither %s nor %s", o.secrets, values.CSI, values.Secret)
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
	rendered, err := configuration.Render(target)
	if err != nil {
		return nil, err
	}
	outputs, err := o.readOutputs()
	if err != nil {
		return nil, err
	}
	full := values.Target{Name: name, Schema: configuration.Schema, Configuration: rendered, ClientIDs: outputs.ClientIDs, ObjectIDs: outputs.ObjectIDs,
		EgressAddresses: outputs.EgressAddresses, Secrets: o.secrets}
	found, err := values.Find(chartName, full)
	if err != nil {
		return nil, err
	}
	v, err := found.Values()
	return &release{found.Folder, found.Namespace, v}, err
}

func (o *options) readOutputs() (*infrastructureOutputs, error) {
	if o.outputs == "" {
		return &infrastructureOutputs{}, nil
	}
	text, err := os.ReadFile(o.outputs)
	if err != nil {
		return nil, fmt.Errorf("--outputs: %w", err)
	}
	outputs := &infrastructureOutputs{}
	if err := yaml.UnmarshalStrict(text, outputs); err != nil {
		return nil, fmt.Errorf("--outputs: %s: %w", o.outputs, err)
	}
	return outputs, nil
}

func (o *options) render(command *cobra.Command, name, chartName string) error {
	r, err := o.release(name, chartName)
	if err != nil {
		return err
	}
	loaded, err := chart.Load(filepath.Join(filepath.Dir(o.configDir), filepath.FromSlash(r.folder)))
	if err != nil {
		return err
	}
	objects, err := loaded.Render(r.namespace, r.values)
	if err != nil {
		return err
	}
	var broken []error
	for _, b := range checkObjects(objects) {
		broken = append(broken, errors.New(b.String()))
	}
	if err := errors.Join(broken...); err != nil {
		return err
	}
	for _, object := range objects {
		if err := printYAML(command, object.Object); err != nil {
			return err
		}
	}
	return nil
}

// printYAML prints a YAML document.
func printYAML(command *cobra.Command, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(command.OutOrStdout(), "---\n%s", text)
	return err
}
