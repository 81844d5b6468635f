// Command image-sync mirrors OpenShift releases and single images between registries by digest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/tooling/image-sync/pkg/mirror"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
)

type options struct {
	plan, target        string
	source, destination registryclient.Options
	store, trustRoot    string
	parallel            int
	json, dryRun        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flags := flag.NewFlagSet("image-sync", flag.ExitOnError)
	flags.StringVar(&o.plan, "plan", "", "YAML `file` with the releases and images to mirror")
	flags.StringVar(&o.target, "target", "", "host `name` of the target registry")
	o.source.Prefix, o.destination.Prefix = "source-", "target-"
	flags.BoolVar(&o.source.PlainHTTP, "source-plain-http", false, "use HTTP for the sources, for registries on this machine")
	flags.StringVar(&o.source.Authorities, "source-ca-file", "", "PEM `file` with the authorities of the sources' certificates; empty means the system's")
	flags.StringVar(&o.source.Credentials, "source-credentials", "", "`file` with the credentials for the sources, in the format of Docker's config.json")
	flags.BoolVar(&o.destination.PlainHTTP, "target-plain-http", false, "use HTTP for the target, for a registry on this machine")
	flags.StringVar(&o.destination.Authorities, "target-ca-file", "", "PEM `file` with the authorities of the target's certificate; empty means the system's")
	flags.StringVar(&o.destination.Credentials, "target-credentials", "", "`file` with the credentials for the target, in the format of Docker's config.json")
	flags.StringVar(&o.store, "signature-store", signature.OpenShiftStore, "`URL` of the signatures of releases: https://HOST/PATH or file:///PATH")
	flags.StringVar(&o.trustRoot, "trust-root", "", "`file` with the public keys that sign releases; empty means the key of OpenShift's publisher")
	flags.IntVar(&o.parallel, "parallel", 4, "maximum `number` of images to copy at the same time")
	flags.BoolVar(&o.json, "json", false, "print the report as JSON")
	flags.BoolVar(&o.dryRun, "dry-run", false, "verify signatures and report what is missing, and copy nothing")
	_ = flags.Parse(os.Args[1:])
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "image-sync: unexpected argument %q\n", flags.Arg(0))
		os.Exit(2)
	}
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image-sync:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	configured, err := o.complete()
	if err != nil {
		return err
	}
	result, err := mirror.Run(ctx, configured)
	if err != nil {
		return err
	}
	write := result.Table
	if o.json {
		write = result.JSON
	}
	if err := write(out); err != nil {
		return err
	}
	if n := result.Count(mirror.Failed); n > 0 {
		return fmt.Errorf("%d images failed; run it again to continue", n)
	}
	return nil
}

// complete validates the flags. Errors name them.
func (o *options) complete() (mirror.Options, error) {
	m := mirror.Options{Parallel: o.parallel, DryRun: o.dryRun, SourceName: o.source.Name()}
	switch {
	case o.plan == "":
		return m, errors.New("-plan: is missing")
	case o.target == "":
		return m, errors.New("-target: is missing")
	case o.parallel < 1 || o.parallel > 64:
		return m, fmt.Errorf("-parallel: is %d and not between 1 and 64", o.parallel)
	}
	var err error
	if m.Target, err = name.NewRegistry(o.target, o.destination.Name()...); err != nil {
		return m, fmt.Errorf("-target: %w", err)
	}
	if m.Plan, err = mirror.LoadPlan(o.plan, o.source.Name()...); err != nil {
		return m, fmt.Errorf("-plan: %w", err)
	}
	if m.Source, err = o.source.Remote(); err != nil {
		return m, err
	}
	if m.Destination, err = o.destination.Remote(); err != nil {
		return m, err
	}
	root, err := signature.OpenShift()
	if o.trustRoot != "" {
		root, err = signature.LoadTrustRoot(o.trustRoot)
	}
	if err != nil {
		return m, fmt.Errorf("-trust-root: %w", err)
	}
	store, err := signature.OpenStore(o.store, &http.Client{Timeout: 30 * time.Second})
	if err != nil {
		return m, fmt.Errorf("-signature-store: %w", err)
	}
	m.Verifier = signature.NewVerifier(root, store, nil)
	return m, nil
}
