package update

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
)

type options struct {
	configDir, environment string
	list, from             string
	references             []string
	names                  []string
	registry               string
	client                 registryclient.Options
	dryRun                 bool
}

// Run executes the command. It writes one line for each digest that changes.
func Run(ctx context.Context, args []string, out, usage io.Writer) error {
	o, err := parse(args, usage)
	if err != nil {
		return err
	}
	configuration, err := o.open()
	if err != nil {
		return err
	}
	environment, err := layer.ParseTarget(o.environment)
	if err != nil {
		return fmt.Errorf("-environment: %w", err)
	}
	if _, err := configuration.Images(environment); err != nil {
		return fmt.Errorf("-environment: %w", err)
	}
	digests, err := o.digests(configuration, environment, out)
	if err != nil {
		return err
	}
	if o.registry != "" {
		if err := digests.Confirm(ctx, o.registry, o.client); err != nil {
			return fmt.Errorf("the registry does not have all images; nothing was written: %w", err)
		}
	}
	changed, err := Compute(configuration, environment, digests)
	if err != nil {
		return err
	}
	for _, change := range changed.Changes {
		fmt.Fprintln(out, change)
	}
	return o.write(changed, out)
}

// parse parses the flags. Errors name them.
func parse(args []string, usage io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("image-updater", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.configDir, "config-dir", "", "`folder` with the configuration (default: config in the checkout)")
	flags.StringVar(&o.environment, "environment", "", "`CLOUD/ENVIRONMENT` whose digests are updated")
	flags.StringVar(&o.list, "images", "", "`file` images.json of a build; arguments are the names of images in it, none means all")
	flags.StringVar(&o.from, "from", "", "`CLOUD/ENVIRONMENT` whose digests are copied")
	flags.Func("image", "`REPOSITORY@DIGEST` of one image; repeat it for several; needs -registry", func(text string) error {
		o.references = append(o.references, text)
		return nil
	})
	flags.StringVar(&o.registry, "registry", "", "host `name` of a registry that must have the images")
	flags.BoolVar(&o.client.PlainHTTP, "plain-http", false, "use HTTP, for a registry on this machine")
	flags.StringVar(&o.client.Authorities, "ca-file", "", "PEM `file` with the authorities of the registry's certificate; empty means the system's")
	flags.StringVar(&o.client.Credentials, "credentials", "", "`file` with the credentials for the registry, in the format of Docker's config.json")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would change, and write nothing")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.names = flags.Args()
	sources := 0
	for _, set := range []bool{o.list != "", o.from != "", len(o.references) > 0} {
		if set {
			sources++
		}
	}
	switch {
	case o.environment == "":
		return nil, errors.New("-environment: is missing")
	case sources != 1:
		return nil, errors.New("set one of -images, -from and -image")
	case len(o.names) > 0 && o.list == "":
		return nil, fmt.Errorf("unexpected argument %q: names of images need -images", o.names[0])
	case len(o.references) > 0 && o.registry == "":
		return nil, errors.New("-image: needs -registry, which must have the image")
	case o.registry == "" && (o.client.PlainHTTP || o.client.Authorities != "" || o.client.Credentials != ""):
		return nil, errors.New("-plain-http, -ca-file and -credentials need -registry")
	}
	return o, nil
}

func (o *options) open() (*deployment.Configuration, error) {
	dir := o.configDir
	if dir == "" {
		found, err := deployment.Find()
		if err != nil {
			return nil, err
		}
		dir = found
	}
	return deployment.Open(dir)
}

// digests returns the digests that the flags name. An image that the environment does not deploy is an error if the flags name it, and is
// left out if it is only one of a list.
func (o *options) digests(configuration *deployment.Configuration, environment layer.Target, out io.Writer) (Digests, error) {
	var digests Digests
	flagName, named := "-image", true
	var err error
	switch {
	case o.list != "":
		flagName, named = "-images", len(o.names) > 0
		var list *imagelist.List
		if list, err = imagelist.Load(o.list); err == nil {
			digests, err = FromList(list, o.names)
		}
	case o.from != "":
		flagName, named = "-from", false
		var from layer.Target
		if from, err = layer.ParseTarget(o.from); err == nil {
			digests, err = FromEnvironment(configuration, from)
		}
	default:
		digests, err = FromReferences(o.references)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flagName, err)
	}
	known, unknown, err := digests.Known(configuration, environment)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0 && named:
		return nil, fmt.Errorf("%s: no image of %s has the repository %s", flagName, environment, strings.Join(unknown, ", "))
	case len(known) == 0:
		return nil, fmt.Errorf("%s: has no image of %s", flagName, environment)
	case len(unknown) > 0:
		fmt.Fprintf(out, "not in the configuration: %s\n", strings.Join(unknown, ", "))
	}
	return known, nil
}

func (o *options) write(changed *Layer, out io.Writer) error {
	if len(changed.Changes) == 0 {
		fmt.Fprintln(out, "all digests are up to date")
		return nil
	}
	if o.dryRun {
		fmt.Fprintln(out, "dry run: nothing was written")
		return nil
	}
	file, err := changed.Write()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s; run `hcpctl config render --write` and commit both\n", filepath.ToSlash(file))
	return nil
}
