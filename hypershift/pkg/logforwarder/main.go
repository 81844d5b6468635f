package logforwarder

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program log-forwarder. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("log-forwarder", flag.ExitOnError)
	var common process.Options
	var options Flags
	common.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), common, func(ctx context.Context, p *process.Process) error { return options.Run(ctx, p) })
}
