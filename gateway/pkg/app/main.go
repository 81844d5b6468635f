package app

import (
	"context"
	"flag"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program gateway-access. It reads the arguments of the process.
func Main() {
	var options Options
	flags := flag.NewFlagSet("gateway-access", flag.ExitOnError)
	options.AddFlags(flags)
	// Libraries of Kubernetes would log the queries of requests that they cannot parse.
	klog.SetLogger(logr.Discard())
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("gateway-access", options.Process, func(ctx context.Context, p *process.Process) error {
		return Run(ctx, p, options)
	})
}
