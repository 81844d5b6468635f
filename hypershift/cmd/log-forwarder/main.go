// Command log-forwarder delivers the logs of the hosted control planes of a management cluster to the storage accounts of customers.
// See package logforwarder.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/logforwarder"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	flags := flag.NewFlagSet("log-forwarder", flag.ExitOnError)
	var common process.Options
	var options logforwarder.Flags
	common.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), common, func(ctx context.Context, p *process.Process) error { return options.Run(ctx, p) })
}
