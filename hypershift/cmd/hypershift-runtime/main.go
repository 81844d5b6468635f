// Command hypershift-runtime implements HyperShift on the management clusters of a local region. See the README of its
// module.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	flags := flag.NewFlagSet("hypershift-runtime", flag.ExitOnError)
	var common process.Options
	var options app.Options
	common.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), common, func(ctx context.Context, p *process.Process) error {
		runtime := app.New(options, p.Log)
		runtime.Register(p.Metrics)
		p.Ready("management cluster", runtime.Ready)
		return runtime.Run(ctx)
	})
}
