package agent

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program gateway-tunnel. It reads the arguments of the process.
func Main() {
	var options Flags
	flags := flag.NewFlagSet("gateway-tunnel", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), options.Process, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}
