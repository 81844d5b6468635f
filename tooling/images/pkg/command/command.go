// Package command has the commands of the program images.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/assemble"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

const usage = `Build the container images of this repository, and push them to a registry.

	images build -into DIR [-twice] [NAME...]
	images push  -from DIR -registry HOST [NAME...]

NAME selects images of tooling/images/images.yaml; without it, all are selected.
`

// The definitions of the images and the program that builds them, in the repository.
const (
	definitionsFile = "tooling/images/images.yaml"
	toolPackage     = "./tooling/images/cmd/images"
)

// Run runs a command in a folder of the repository.
func Run(ctx context.Context, dir string, arguments []string, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New("want a command: build or push")
	}
	flags := flag.NewFlagSet("images "+arguments[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var err error
	switch arguments[0] {
	case "build":
		into := flags.String("into", "", "`folder` for programs, image layout and list")
		twice := flags.Bool("twice", false, "build a second time from a copy of the sources and without a cache, and compare")
		if err = flags.Parse(arguments[1:]); err == nil {
			return build(ctx, dir, *into, *twice, flags.Args(), out)
		}
	case "push":
		from := flags.String("from", "", "`folder` of a build")
		client := registryclient.Options{}
		flags.BoolVar(&client.PlainHTTP, "plain-http", false, "use HTTP, for a registry on this machine")
		flags.StringVar(&client.Authorities, "ca-file", "", "PEM `file` with the authorities of the registry's certificate; empty means the system's")
		flags.StringVar(&client.Credentials, "credentials", "", "`file` with the credentials for the registry, in the format of Docker's config.json")
		registry := flags.String("registry", "", "host `name` of the registry")
		if err = flags.Parse(arguments[1:]); err == nil {
			return pushAll(ctx, *from, *registry, client, flags.Args(), out)
		}
	case "help", "-h", "-help", "--help":
		_, err = io.WriteString(out, usage)
		return err
	default:
		return fmt.Errorf("unknown command %q; want build or push", arguments[0])
	}
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return nil
	}
	return err
}

func build(ctx context.Context, dir, into string, twice bool, names []string, out io.Writer) error {
	if into == "" {
		return errors.New("-into: is missing")
	}
	top, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("find the Git working tree of %s: %w", dir, err)
	}
	root := strings.TrimSpace(string(top))
	defined, err := assemble.LoadImages(filepath.Join(root, filepath.FromSlash(definitionsFile)))
	if err != nil {
		return err
	}
	selected, err := selectImages(defined, names)
	if err != nil {
		return err
	}
	o := assemble.Options{Root: root, Into: into, Tool: []string{toolPackage}, File: definitionsFile}
	if _, err := assemble.Build(ctx, o, defined, selected); err != nil {
		return err
	}
	if twice {
		if err := compare(ctx, o, selected); err != nil {
			return err
		}
	}
	return list(into, out)
}

func selectImages(defined []assemble.Image, names []string) ([]assemble.Image, error) {
	if len(names) == 0 {
		return defined, nil
	}
	var selected []assemble.Image
	for _, name := range names {
		i := slices.IndexFunc(defined, func(image assemble.Image) bool { return image.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no image %q", definitionsFile, name)
		}
		selected = append(selected, defined[i])
	}
	return selected, nil
}

// compare builds images again, from a copy of the sources in another folder and with an empty build cache, and returns an error that names
// each image with another digest.
func compare(ctx context.Context, o assemble.Options, images []assemble.Image) error {
	first, err := imagelist.Load(filepath.Join(o.Into, assemble.ListFile))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	o.Source, o.Into, o.Cache = filepath.Join(work, "source"), filepath.Join(work, "images"), filepath.Join(work, "cache")
	if err := supplychain.CopySources(ctx, o.Root, o.Source); err != nil {
		return fmt.Errorf("copy the sources: %w", err)
	}
	second, err := assemble.Build(ctx, o, images, images)
	if err != nil {
		return err
	}
	var different []error
	for _, name := range slices.Sorted(maps.Keys(second.Images)) {
		if a, b := first.Images[name].Digest, second.Images[name].Digest; a != b {
			different = append(different, fmt.Errorf("image %s is not reproducible: the digests of two builds are %s and %s", name, a, b))
		}
	}
	return errors.Join(different...)
}

func pushAll(ctx context.Context, from, registry string, client registryclient.Options, names []string, out io.Writer) error {
	switch {
	case from == "":
		return errors.New("-from: is missing")
	case registry == "":
		return errors.New("-registry: is missing")
	}
	list, err := imagelist.Load(filepath.Join(from, assemble.ListFile))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(list.Images))
	}
	for _, name := range names {
		if _, ok := list.Images[name]; !ok {
			return fmt.Errorf("%s has no image %q", filepath.Join(from, assemble.ListFile), name)
		}
	}
	pusher, err := registryclient.NewPusher(filepath.Join(from, "layout"), registry, client)
	if err != nil {
		return err
	}
	for _, name := range names {
		image := list.Images[name]
		if err := pusher.Push(ctx, image); err != nil {
			return fmt.Errorf("push image %s: %w", name, err)
		}
		fmt.Fprintf(out, "%s/%s@%s\n", registry, image.Repository, image.Digest)
	}
	return nil
}

// list prints the images of a build.
func list(from string, out io.Writer) error {
	list, err := imagelist.Load(filepath.Join(from, assemble.ListFile))
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERSION\tIMAGE")
	for _, name := range slices.Sorted(maps.Keys(list.Images)) {
		image := list.Images[name]
		fmt.Fprintf(table, "%s\t%s\t%s@%s\n", name, image.Version, image.Repository, image.Digest)
	}
	return table.Flush()
}
