package app

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program hypershift-runtime. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("hypershift-runtime", flag.ExitOnError)
	var common process.Options
	var options Options
	common.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), common, func(ctx context.Context, p *process.Process) error {
		runtime := New(options, p.Log)
		runtime.Register(p.Metrics)
		p.Ready("management cluster", runtime.Ready)
		return runtime.Run(ctx)
	})
}
